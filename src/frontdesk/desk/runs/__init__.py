"""Runs: rows of provenance that say who started what, and from which conversation.

Owns the table `runs`. Invariants: the origin is written by the server alone, from a conversation it has just proven, or
inherited from a proven parent; a run that names neither has none for good; a request id starts one run.
"""

from __future__ import annotations

from frontdesk.desk.runs.model import Origin, Run, Started
from frontdesk.desk.runs.service import find_run, find_run_scope, get_run, list_runs, start_run

__all__ = ["Origin", "Run", "Started", "find_run", "find_run_scope", "get_run", "list_runs", "start_run"]
