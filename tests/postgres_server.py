"""A PostgreSQL server from the system's packages that tests may stop and start."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

PASSWORD = "x8-not-to-be-seen"
_DEBIAN = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; Debian has one for each version, and not on PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = [each for each in _DEBIAN.glob("*/bin") if (each / "initdb").exists()]
    return max(versions, key=lambda each: float(each.parent.name), default=None)


def server_user() -> str | None:
    """Whom the server runs as: it refuses root. None is whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class PostgresServer:
    """One server with a data directory of its own; it listens on loopback and wants a password."""

    def __init__(self, programs: Path, *, durable: bool = False) -> None:
        self._programs = programs
        # Tests bring about no lost machine, so that the disk need not be waited for.
        self._waits_not = "" if durable else "-F"
        self._user = server_user()
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        password = self.directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._data = self.directory / "data"
        self._run("initdb", "-D", self._data, "-U", "tests", "-A", "scram-sha-256", "-N",
                  f"--pwfile={password}")  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self.directory} {self._waits_not}"
        log = self.directory / "log"
        self._run("pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        """Stop as a crash would: no goodbye to clients, recovery at the next start."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def close(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.directory)

    def dsn(
        self, database: str = "postgres", *, password: str = PASSWORD, user: str = "tests"
    ) -> str:
        host = f"host=127.0.0.1 port={self.port}"
        return f"{host} user={user} dbname={database} password={password}"

    def create_database(self, name: str) -> str:
        """An empty database; returns its connection string."""
        self.query(self.dsn(), f'CREATE DATABASE "{name}"')
        return self.dsn(name)

    @staticmethod
    def query(dsn: str, text: Any, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(text, params)
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self._programs / program, *map(str, arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
            cwd=self.directory,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
