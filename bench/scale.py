"""What finding work and listing cost with a million finished and a hundred thousand waiting rows, against a thousand.

    python -m bench.scale [--finished 1000000] [--waiting 100000] [--engine sqlite]

Two databases in the same run, `small` (1,000 finished and 1,000 waiting) and `large`. The rows are copies of one real
receipt and one real delivery, made by the database itself; everything else comes from the product's verbs. Each query
is the product's own function in a transaction of its own, which is rolled back; the median of many is printed, and the
ratio of large to small.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench.world import make_world
from frontdesk.app.schema import METADATA
from frontdesk.app.settings import database_url, load_settings
from frontdesk.desk.inbox import claiming
from frontdesk.desk.inbox import store as receipts
from frontdesk.desk.outbox import store as deliveries
from frontdesk.kernel.clock import HOUR, SECOND, SystemClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.database import Database
from frontdesk.storage.opening import open_database
from frontdesk.storage.tx import Tx

GRANTS = 5_000  # twenty waiting receipts each, which is what a grant may have


def number_source(engine: str, count: int) -> str:
    """A relation n(i) of 1..count."""
    if engine == "postgresql":
        return f"generate_series(1, {count}) AS n(i)"
    return f"(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count}) SELECT i FROM c) AS n"


def hexed(engine: str, prefix: str, number: str) -> str:
    """An id made of a number."""
    digits = f"lpad(to_hex({number}), 32, '0')" if engine == "postgresql" else f"printf('%032x', {number})"
    return f"'{prefix}_' || {digits}"


def copy_rows(tx: Tx, engine: str, table: str, count: int, changes: dict[str, str]) -> None:
    """`count` copies of the table's first row with some columns replaced by SQL over `n.i`."""
    template = tx.conn.exec_driver_sql(
        f"SELECT min(id) FROM {table} WHERE created_at = (SELECT min(created_at) FROM {table})"
    ).scalar_one()
    columns = [column.name for column in METADATA.tables[table].columns]
    quoted = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join(changes.get(name, f't."{name}"') for name in columns)
    source = number_source(engine, count)
    tx.conn.exec_driver_sql(
        f"INSERT INTO {table} ({quoted}) SELECT {values} FROM {source}, {table} AS t WHERE t.id = '{template}'"
    )


def fill(tx: Tx, engine: str, finished: int, waiting: int) -> None:
    """Grants, receipts and deliveries, finished and waiting."""
    now, grants, age = tx.now, max(1, min(GRANTS, waiting // 20)), f"{tx.now - HOUR} + n.i"
    text = "CAST(n.i AS TEXT)"
    copy_rows(
        tx, engine, "reply_grants", grants,
        {"id": hexed(engine, "grt", "n.i"), "create_request_id": f"'c' || {text}", "active_slot": f"'s' || {text}"},
    )  # fmt: skip
    of_grant = hexed(engine, "grt", f"1 + mod(n.i, {grants})")
    for count, status, base in ((finished, "completed", 1_000_000_000), (waiting, "received", 2_000_000_000)):
        copy_rows(
            tx, engine, "receipts", count,
            {
                "id": hexed(engine, "rcp", f"{base} + n.i"), "provider_message_id": f"'om_{base}_' || {text}",
                "created_at": age, "not_before": age, "status": f"'{status}'", "reply_grant": of_grant,
                "intent": "'reply'", "error_code": "NULL",
                "processed_at": str(now) if status == "completed" else "NULL",
            },
        )  # fmt: skip
    for count, status, base in ((finished, "sent", 1_000_000_000), (waiting, "pending", 2_000_000_000)):
        copy_rows(
            tx, engine, "deliveries", count,
            {
                "id": hexed(engine, "dlv", f"{base} + n.i"), "operation_id": f"'o{base}' || {text}",
                "provider_uuid": f"'u{base}' || {text}", "dedupe_key": f"'d{base}' || {text}",
                "provider_message_id": f"'om_{base}_' || {text}" if status == "sent" else "NULL",
                "created_at": age, "not_before": age, "status": f"'{status}'", "reply_grant": of_grant,
                "chat_id": f"'oc_' || CAST(mod(n.i, {grants}) AS TEXT)", "receipt": "NULL",
                "lease_owner": "NULL", "lease_expires_at": "NULL",
            },
        )  # fmt: skip


def questions(workspace: str) -> dict[str, Callable[[Tx], Any]]:
    """The product's own functions, by what they answer."""
    r, d = METADATA.tables["receipts"].c, METADATA.tables["deliveries"].c
    order = claiming.Claim("bench", 60 * SECOND, 8)
    mine = [r.workspace == workspace]
    theirs = [d.workspace == workspace]
    return {
        "receipts: claim eight": lambda tx: claiming.claim(tx, order, None),  # type: ignore[arg-type]
        "receipts: heads": lambda tx: receipts.heads(tx, 100),
        "receipts: lapsed": lambda tx: receipts.lapsed(tx, 100),
        "receipts: first page": lambda tx: receipts.list_page(tx, mine, 20, None),
        "receipts: completed": lambda tx: receipts.list_page(tx, [*mine, r.status == "completed"], 20, None),
        "receipts: a status none has": lambda tx: receipts.list_page(tx, [*mine, r.status == "proposal"], 20, None),
        "deliveries: due": lambda tx: deliveries.due_ids(tx, 100),
        "deliveries: lapsed": lambda tx: deliveries.lapsed_ids(tx, 100),
        "deliveries: too old": lambda tx: deliveries.aged_ids(tx, tx.now - 4 * HOUR, 100),
        "deliveries: first page": lambda tx: deliveries.list_page(tx, theirs, 20, None),
        "deliveries: a status none has": lambda tx: deliveries.list_page(tx, [*theirs, d.status == "failed"], 20, None),
    }


class Undone(Exception):
    """Rolls a measured transaction back."""


async def measure(database: Database, workspace: str, repeats: int) -> dict[str, float]:
    """Median microseconds of each question."""
    medians: dict[str, float] = {}
    for name, ask in questions(workspace).items():
        times: list[int] = []

        def timed(tx: Tx, ask: Callable[[Tx], Any] = ask, times: list[int] = times) -> None:
            started = time.perf_counter_ns()
            ask(tx)
            times.append(time.perf_counter_ns() - started)
            raise Undone

        for _ in range(repeats):
            with contextlib.suppress(Undone):
                await database.write(timed)
        medians[name] = statistics.median(times) / 1000
    return medians


async def one_size(url: str, finished: int, waiting: int, repeats: int) -> dict[str, float]:
    """Fill a prepared database and measure it."""
    database = open_database(url, SystemClock(), SystemEntropy())
    engine = database.engine_name
    await database.write(lambda tx: fill(tx, engine, finished, waiting))
    with database.engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    workspace = await database.read(lambda tx: tx.conn.execute(sa.text("SELECT min(id) FROM workspaces")).scalar_one())
    medians = await measure(database, workspace, repeats)
    await database.close()
    return medians


def run(engine: str, finished: int, waiting: int, repeats: int) -> None:
    """Both sizes on one engine, and the ratios."""
    sizes = {"small": (1_000, 1_000), "large": (finished, waiting)}
    seen: dict[str, dict[str, float]] = {}
    for size, (done, open_) in sizes.items():
        with tempfile.TemporaryDirectory(prefix="frontdesk-scale-") as folder, server(engine) as env:
            os.environ.update(env)
            make_world(Path(folder), "cli_bench", "tenant", encrypt_key="k", token="t", people=1)
            url = database_url(load_settings(Path(folder)), Path(folder))
            seen[size] = asyncio.run(one_size(url, done, open_, repeats))
            for name in env:
                del os.environ[name]
    print(f"{engine}: {finished:,} finished and {waiting:,} waiting rows against 1,000 and 1,000; median of {repeats}")
    for name, small in seen["small"].items():
        large = seen["large"][name]
        print(f"  {name:48s} {small:9.0f} us {large:9.0f} us   ratio {large / small:5.2f}")


@contextlib.contextmanager
def server(engine: str) -> Iterator[dict[str, str]]:
    """The environment that points settings at a database of this engine."""
    if engine == "sqlite":
        yield {}
        return
    from tests.support.postgres import PostgresServer

    with PostgresServer(durable=True) as running:
        assert running.address is not None
        yield {"FRONTDESK_DATABASE_URL": running.address.url("postgres")}


def main() -> None:
    """Run on one engine or on both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--engine", choices=("sqlite", "postgresql"))
    options = parser.parse_args()
    for engine in [options.engine] if options.engine else ["sqlite", "postgresql"]:
        run(engine, options.finished, options.waiting, options.repeats)


if __name__ == "__main__":
    main()
