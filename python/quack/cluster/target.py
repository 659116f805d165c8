"""Where a command goes: the nodes of a cluster, the token and the certificates to reach them by."""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from quack.config import load_config
from quack.errors import ClusterError, ConfigError
from quack.extension import connect

__all__ = ["NodeSession", "Target"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Target:
    """One or more nodes of a cluster. The token is in no representation."""

    hosts: str
    token: str = field(repr=False)
    ca_file: pathlib.Path | None = None

    @classmethod
    def from_config(cls, file: pathlib.Path, *, all_peers: bool = False) -> Target:
        """Reach the node of a configuration file, or first it and then the others it names.

        Raises:
            ConfigError: the file has mistakes.

        """
        loaded = load_config(file, check_files=False)
        mode = loaded.cluster_mode
        hosts = [f"{mode.advertised_host}:{mode.cp_metadata_port}"]
        if all_peers:
            hosts += [f"{peer.host}:{peer.port}" for peer in loaded.peers()]
        return cls(
            ",".join(dict.fromkeys(hosts)),
            mode.cp_metadata_token.get_secret_value(),
            mode.tls.ca_file if mode.tls else None,
        )

    @classmethod
    def from_options(
        cls,
        config: pathlib.Path | None,
        url: str | None,
        ca_file: pathlib.Path | None,
        token_file: pathlib.Path | None,
        *,
        all_peers: bool = False,
    ) -> Target:
        """Build from the options that all commands share.

        Raises:
            ConfigError: not exactly one of ``config`` and ``url``, a bad file, or no token.

        """
        if (config is None) == (url is None):
            raise ConfigError(["give exactly one of --config and --url"])
        if config is not None:
            return cls.from_config(config, all_peers=all_peers)
        if token_file is not None:
            try:
                token = token_file.read_text().strip()
            except OSError as error:
                raise ConfigError([f"{token_file}: cannot be read: {error.strerror}"]) from error
        else:
            token = os.environ.get("QUACK_TOKEN", "")
        if not token:
            raise ConfigError(
                ["no token: --url needs --token-file or the environment variable QUACK_TOKEN"]
            )
        return cls(str(url).removeprefix("quack:"), token, ca_file)

    def at(self, address: str) -> Target:
        """Return the same credentials for one other node."""
        return replace(self, hosts=address)

    def attach_sql(self, alias: str = "cp", *, timeout_s: float = 40) -> str:
        """Return the ATTACH statement. Holds the token: do not log it."""
        options = ["TYPE quack", f"TOKEN {_quoted(self.token)}"]
        options.append(f"request_timeout_ms {int(timeout_s * 1000)}")
        if self.ca_file is not None:
            options.append(f"client_ca_file {_quoted(str(self.ca_file))}")
        else:
            options.append("disable_ssl true")
        return f"ATTACH {_quoted('quack:' + self.hosts)} AS {alias} ({', '.join(options)})"

    def each(self) -> list[Target]:
        """Return one target per host."""
        return [self.at(host) for host in self.hosts.split(",")]

    def open(self, *, timeout_s: float = 40) -> NodeSession:
        """Attach.

        Args:
            timeout_s: for each statement, repetitions included.

        Raises:
            ClusterError: no node answered, or it refused; with its words.

        """
        return NodeSession(self.attached(timeout_s=timeout_s))

    def attached(self, *, timeout_s: float = 40) -> duckdb.DuckDBPyConnection:
        """Return a plain session with the cluster as ``cp``; arguments and errors as `open`."""
        session = connect()
        try:
            session.execute(self.attach_sql(timeout_s=timeout_s))
        except duckdb.Error as error:
            session.close()
            raise ClusterError(str(error)) from error
        return session


class NodeSession:
    """An attached session that calls functions of the node. A context manager."""

    def __init__(self, session: duckdb.DuckDBPyConnection) -> None:
        self._session = session

    def __enter__(self) -> NodeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def rows(self, function: str, *arguments: str | None) -> list[dict[str, Any]]:
        """Return what a table function of the node answers, one dictionary per row.

        Raises:
            ClusterError: with the node's words; its cause carries the code.

        """
        places = ", ".join("?" for _ in arguments)
        call = f"{function}({places}{', ' if places else ''}'cp')"
        try:
            cursor = self._session.execute(f"SELECT * FROM {call}", list(arguments))
            names = [column[0] for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.Error as error:
            raise ClusterError(str(error)) from error
