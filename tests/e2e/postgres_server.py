"""A real PostgreSQL on a free port, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from quack.cluster.bootstrap import free_ports

#: The JDBC driver: Debian's package libpostgresql-jdbc-java.
JAR = pathlib.Path("/usr/share/java/postgresql.jar")
DRIVER = "org.postgresql.Driver"


@dataclass(frozen=True)
class Postgres:
    """A running server.

    Attributes:
        url: for JDBC; names the database, not the user.
        psql: the command, for `run`.

    """

    url: str
    user: str
    password: str
    port: int
    psql: pathlib.Path

    def run(self, script: str) -> None:
        """Run statements; the first that fails ends it."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, "-d", "postgres"]
        subprocess.run(
            [str(self.psql), "-q", "-v", "ON_ERROR_STOP=1", *where, "-f", "-"],
            input=script,
            env={**os.environ, "PGPASSWORD": self.password},
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def programs() -> pathlib.Path | None:
    """Return the folder of the newest server that is installed with the driver, if any."""
    found = [
        folder
        for folder in pathlib.Path("/usr/lib/postgresql").glob("*/bin")
        if folder.parent.name.isdigit() and (folder / "initdb").exists()
    ]
    if not found or not JAR.exists():
        return None
    return max(found, key=lambda folder: int(folder.parent.name))


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a fresh server whose one user has a password."""
    binaries = programs()
    assert binaries is not None, "apt-get install postgresql libpostgresql-jdbc-java"
    user, password = "quack", secrets.token_hex(12)
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="quack-postgres-") as folder:
        data, secret = pathlib.Path(folder, "data"), pathlib.Path(folder, "password")
        secret.write_text(password)
        as_user = []
        if os.getuid() == 0:  # PostgreSQL refuses root
            shutil.chown(folder, "postgres")
            shutil.chown(secret, "postgres")
            as_user = ["runuser", "-u", "postgres", "--"]

        def run(program: str, *arguments: str) -> None:
            command = [*as_user, str(binaries / program), "-D", str(data), *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

        run("initdb", "-U", user, f"--pwfile={secret}", "-A", "scram-sha-256", "--no-sync")
        settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", settings, "start")
        try:
            url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
            yield Postgres(url, user, password, port, binaries / "psql")
        finally:
            run("pg_ctl", "-w", "-m", "fast", "stop")
