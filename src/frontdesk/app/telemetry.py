"""Structured logs with one redaction boundary: only listed fields pass, whatever a caller hands in."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

FIELDS: Final = frozenset(
    {
        "event",
        "level",
        "timestamp",
        "logger",
        "operation",
        "id",
        "phase",
        "status",
        "code",
        "duration_ms",
        "count",
        "method",
    }
)

# Libraries that say at debug level what they send: addresses with tickets, headers, statements.
FOREIGN: Final = (
    "Lark",
    "httpx",
    "httpx2",
    "httpcore",
    "urllib3",
    "websockets",
    "sqlalchemy",
    "alembic",
    "asyncio",
    "uvicorn",
)


def keep_listed_fields(_logger: Any, _name: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop every field that is not listed (desk.md 8.5): no text, sender, chat, token or exception can pass."""
    kept = {name: value for name, value in entry.items() if name in FIELDS}
    for name, value in kept.items():
        if isinstance(value, str) and len(value) > 128:
            kept[name] = value[:128]
    return kept


def configure_logging(level: str) -> None:
    """JSON lines on stderr. Other libraries stay at warning, and their lines carry no arguments."""
    number = getattr(logging, level.upper())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            keep_listed_fields,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_PlainHandler()]
    root.setLevel(logging.WARNING)
    for name in FOREIGN:
        logging.getLogger(name).setLevel(max(logging.WARNING, number))


class _PlainHandler(logging.Handler):
    """What foreign libraries log: their name, level and code place, never their message, arguments or traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one constant-shaped line."""
        structlog.get_logger("foreign").warning(
            "library.log",
            operation=record.name[:64],
            status=record.levelname.lower(),
            code=f"{record.module}:{record.lineno}",
        )
