"""Frontdesk: the front desk for a team's AI agents."""

__version__ = "0.1.0"
