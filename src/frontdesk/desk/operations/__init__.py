"""What operators see of the whole desk at one moment: counts, ages, unknown deliveries. Owns no table."""

from frontdesk.desk.operations.numbers import DeskNumbers, read_numbers

__all__ = ["DeskNumbers", "read_numbers"]
