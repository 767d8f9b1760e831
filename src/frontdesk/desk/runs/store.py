"""One function per statement on `runs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from frontdesk.desk.runs.model import Origin, Run
from frontdesk.desk.runs.tables import RUNS
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.paging import page
from frontdesk.storage.prepared import ById
from frontdesk.storage.tx import Tx

Position = tuple[int, str]


def try_insert_run(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert a run; False where its starter used the request id in this workflow before."""
    return try_insert(tx, RUNS, {"created_at": tx.now, "updated_at": tx.now, **values})


_RUN = ById(RUNS)


def find_run(tx: Tx, run_id: str, *, share: bool = False) -> Run | None:
    """The run by id."""
    row = _RUN.find(tx, run_id, share=share)
    return None if row is None else _run(row)


def find_run_of_request(tx: Tx, workflow_id: str, started_by: str, request_id: str) -> Run | None:
    """The run that a starter's request id made."""
    column = RUNS.c
    row = tx.find(
        select(RUNS).where(
            column.workflow == workflow_id, column.started_by == started_by, column.request_id == request_id
        )
    )
    return None if row is None else _run(row)


def page_runs(tx: Tx, project_id: str, limit: int, after: Position | None) -> tuple[list[Run], Position | None]:
    """Runs of a project, newest first."""
    statement = select(RUNS).where(RUNS.c.project == project_id)
    rows, following = page(tx, RUNS, statement, limit, after)
    return [_run(row) for row in rows], following


def _run(row: Mapping[Any, Any]) -> Run:
    origin = None
    if row["origin_conversation"] is not None:
        origin = Origin(row["origin_conversation"], row["origin_revision"], row["origin_user"])
    return Run(
        id=row["id"],
        workspace_id=row["workspace"],
        project_id=row["project"],
        workflow_id=row["workflow"],
        parent_run_id=row["parent_run"],
        started_by=row["started_by"],
        request_id=row["request_id"],
        create_request_hash=row["create_request_hash"],
        input=row["input"],
        origin=origin,
        archived_at=row["archived_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
