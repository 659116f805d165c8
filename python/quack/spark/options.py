"""The options of the data source, checked on the driver before anything runs."""

from __future__ import annotations

import os
import pathlib
import re
import tempfile
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from quack.changes import Start, parse_start
from quack.errors import SparkError

__all__ = ["QuackOptions", "TableName", "quoted", "text"]

_READ_ONLY = {
    "query",
    "columns",
    "pushdown",
    "num_partitions",
    "partition_column",
    "lower_bound",
    "upper_bound",
    "staging_dir",
    "inline_bytes_max",
    "snapshot_ttl_s",
}
#: Of a stream of changes.
_CHANGES_ONLY = {"starting_position", "max_rows_per_batch", "max_bytes_per_batch"}
_WRITE_ONLY = {
    "mode",
    "create_table",
    "group",
    "shard_key",
    "initial_groups",
    "max_connections",
    "job_id",
    "commit_timeout_s",
    "staging_ttl_s",
}
#: Options that Spark itself puts beside ours.
_OF_SPARK = {"checkpointlocation", "queryname", "outputmode"}
_URL = re.compile(r"quack:(//)?[^\s,/@?#]+(\s*,\s*[^\s,/@?#]+)*")
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s",](?:[^,]*[^\s,])?))\s*(,|$)')
_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s".]+))\s*')


def quoted(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


class TableName(BaseModel):
    """A table of the cluster."""

    model_config = ConfigDict(frozen=True)

    schema_name: str
    name: str

    @classmethod
    def parse(cls, words: str) -> TableName:
        """Read ``table``, ``schema.table`` or the same with double quotes.

        Raises:
            ValueError: it is neither; says what it is.

        """
        parts: list[str] = []
        position = 0
        while position < len(words):
            found = _PART.match(words, position)
            if not found:
                break
            parts.append((found.group(1) or "").replace('""', '"') or found.group(2))
            position = found.end()
            if position < len(words) and words[position] == ".":
                position += 1
                continue
            break
        if position != len(words) or not 1 <= len(parts) <= 2 or words.rstrip().endswith("."):
            raise ValueError(
                f"'{words}' is no table name; expected table or schema.table, names with other "
                'characters in double quotes: "my.schema"."my table"'
            )
        if len(parts) == 1:
            parts.insert(0, "main")
        if parts[0].lower() in ("quack_spark", "__quack"):
            raise ValueError(f"'{words}': schema {parts[0]} is reserved; name a table of yours")
        return cls(schema_name=parts[0], name=parts[1])

    def sql(self, catalog: str = "cp") -> str:
        """Return the full name for a statement."""
        return f"{catalog}.{quoted(self.schema_name)}.{quoted(self.name)}"

    def lower(self) -> TableName:
        """Return it in small letters, for comparison: names of DuckDB have no case."""
        return TableName(schema_name=self.schema_name.lower(), name=self.name.lower())

    def __str__(self) -> str:
        return f"{self.schema_name}.{self.name}"


def _names(value: object) -> object:
    if not isinstance(value, str):
        return value
    names: list[str] = []
    position = 0
    while found := _NAME.match(value, position):
        names.append((found.group(1) or "").replace('""', '"') or found.group(2))
        position = found.end()
        if not found.group(3):
            break
    if not names or position != len(value) or value.endswith(","):
        raise ValueError(
            "expected column names with commas between them; names that hold commas or begin "
            'with a space in double quotes: a, "b, c"'
        )
    if len({name.lower() for name in names}) != len(names):
        raise ValueError("a column is named twice")
    return tuple(names)


def _table(value: object) -> object:
    return TableName.parse(value) if isinstance(value, str) else value


def _url(value: object) -> object:
    if isinstance(value, str) and not _URL.fullmatch(value.strip()):
        raise ValueError("expected quack:host:port[,host:port...]")
    return value.strip() if isinstance(value, str) else value


def _token(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


def _starting_position(value: object) -> object:
    return parse_start(value) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class QuackOptions(BaseModel):
    """What a user gave to ``spark.read/df.write.format("quack").option(...)``.

    The token is in no representation; the object may travel to executors, plans show none of it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: ``quack:host:port[,host:port...]``; the client goes on through the others when one dies.
    url: Annotated[str, BeforeValidator(_url)]
    token: Annotated[SecretStr, BeforeValidator(_token)] | None = None
    #: Environment variable that holds the token, on the driver and on every executor that writes.
    token_env: str | None = None
    cert_file: pathlib.Path | None = None
    key_file: pathlib.Path | None = None
    #: Authority that signs the nodes' certificates.
    ca_file: pathlib.Path | None = None
    consistency: Literal["eventual", "session", "linearizable"] = "linearizable"
    #: Seconds for one statement with all its repetitions.
    request_timeout_s: float = Field(60, gt=0, le=86_400)
    table: Annotated[TableName, BeforeValidator(_table)] | None = None

    query: str | None = None
    columns: Names | None = None
    #: Refused when true: see DESIGN.md, "No filter pushdown".
    pushdown: bool = False
    num_partitions: int | None = Field(None, ge=1, le=10_000)
    partition_column: str | None = None
    lower_bound: str | None = None
    upper_bound: str | None = None
    #: Folder that driver and executors share, for reads above inline_bytes_max.
    staging_dir: pathlib.Path = pathlib.Path(tempfile.gettempdir())
    #: Reads up to so many bytes travel inside the tasks and need no shared folder.
    inline_bytes_max: int = Field(4 * 1024 * 1024, ge=0, le=256 * 1024 * 1024)
    #: Seconds after its last use until the staged rows of a read may be removed.
    snapshot_ttl_s: float = Field(24 * 3600, ge=1)

    #: The rows are changes of the table: spark.readStream only.
    change_feed: bool = False
    #: earliest, latest, or a position: '{"cluster_id": "...", "applied": "1:120"}'.
    starting_position: Annotated[Start, BeforeValidator(_starting_position)] = "earliest"
    #: A micro-batch ends with the commit that reaches so many changed rows, or so many bytes.
    max_rows_per_batch: int | None = Field(None, ge=1)
    max_bytes_per_batch: int | None = Field(None, ge=1)

    mode: Literal["append", "upsert"] = "append"
    #: Columns that identify a row for mode=upsert; the primary key with create_table; with
    #: change_feed and num_partitions the changes of one key stay in one partition.
    key: Names | None = None
    create_table: bool = False
    #: With create_table: the group that the table is pinned to, or the columns whose hash spreads
    #: its rows over so many groups (as of WITH in CREATE TABLE).
    group: str | None = Field(None, min_length=1)
    shard_key: Names | None = None
    initial_groups: int = Field(8, ge=1)
    #: Tasks of one executor host that write at the same time; the others wait their turn.
    max_connections: int = Field(16, ge=1, le=10_000)
    #: Names the write: a second one with the same name changes nothing.
    job_id: str | None = Field(None, min_length=1, max_length=200)
    #: Seconds for the commit with all its repetitions.
    commit_timeout_s: float = Field(600, gt=0, le=86_400)
    #: Seconds after which rows that a dead job left in staging are removed by the next job.
    staging_ttl_s: float = Field(24 * 3600, ge=1)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> QuackOptions:
        """Check the options of a read or a write.

        Args:
            given: names in any case.

        Raises:
            SparkError: names every mistake, with what was expected; no secret is in the text.

        """
        lower = {name.lower(): value for name, value in given.items()}
        lower = {name: value for name, value in lower.items() if name not in _OF_SPARK}
        try:
            options = cls.model_validate(lower)
        except ValidationError as error:
            raise SparkError("\n".join(_problems(error))) from None
        problems = options._contradictions()
        if problems:
            raise SparkError("\n".join(problems))
        return options

    def _contradictions(self) -> list[str]:
        problems = []
        if self.token is not None and self.token_env is not None:
            problems.append("options token and token_env: give one of them")
        if self.token is None and self.token_env is None and self.cert_file is None:
            problems.append(
                "no token: give token, or token_env with the name of an environment variable, "
                "or a client certificate by cert_file and key_file"
            )
        if self.token_env is not None and not os.environ.get(self.token_env):
            problems.append(
                f"option token_env: the environment variable {self.token_env} is not set on this "
                "host; export it before Spark starts"
            )
        if (self.cert_file is None) != (self.key_file is None):
            problems.append("options cert_file and key_file: give both or none")
        for name in ("cert_file", "key_file", "ca_file"):
            file: pathlib.Path | None = getattr(self, name)
            if file is not None and not file.is_file():
                problems.append(f"option {name}: {file}: no such file on this host")
        return problems

    def check_read(self) -> None:
        """Check what a read needs.

        Raises:
            SparkError: names every mistake.

        """
        problems = self._foreign(_WRITE_ONLY | {"key"}, "writes")
        problems += self._foreign(_CHANGES_ONLY | {"change_feed"}, "spark.readStream")
        if (self.table is None) == (self.query is None):
            problems.append("options table and query: a read needs exactly one of them")
        if self.pushdown:
            problems.append(
                "option pushdown: Spark 4.3 gives wrong rows when a DataFrame with pushed filters "
                "is used twice (it keeps the rows of the first filter); filter by option query, "
                "as in SELECT ... WHERE ..."
            )
        bounds = (self.partition_column, self.lower_bound, self.upper_bound)
        if any(bounds) and not all(bounds):
            problems.append(
                "options partition_column, lower_bound and upper_bound: give all three or none"
            )
        if self.partition_column and self.num_partitions is None:
            problems.append("option partition_column needs num_partitions")
        if problems:
            raise SparkError("\n".join(problems))

    def check_changes(self) -> TableName:
        """Check what a stream of changes needs; returns the table.

        Raises:
            SparkError: names every mistake.

        """
        streams_only = {"query", "columns", "pushdown", "partition_column"}
        problems = self._foreign(_WRITE_ONLY, "writes")
        problems += self._foreign(streams_only | {"lower_bound", "upper_bound"}, "spark.read")
        if not self.change_feed:
            problems.append(
                "a stream reads the changes of a table: add option change_feed=true (the rows then "
                "begin with change, commit_group, commit_index, commit_order, request_id)"
            )
        if self.table is None:
            problems.append("option table is missing: a stream reads the changes of one table")
        if (self.num_partitions or 1) > 1 and self.key is None:
            problems.append(
                "option num_partitions needs key with change_feed: the changes of one key must "
                "stay in one partition to keep their order"
            )
        if problems:
            raise SparkError("\n".join(problems))
        assert self.table is not None
        return self.table

    def check_write(self, *, overwrite: bool) -> TableName:
        """Check what a write needs; returns the target.

        Raises:
            SparkError: names every mistake.

        """
        problems = self._foreign(_READ_ONLY | _CHANGES_ONLY | {"change_feed"}, "reads")
        if self.table is None and "query" not in self.model_fields_set:
            problems.append("option table is missing: a write needs the name of its target")
        if self.mode == "upsert" and self.key is None:
            problems.append("option mode=upsert needs key, the columns that identify a row")
        if self.mode == "upsert" and overwrite:
            problems.append(
                "option mode=upsert contradicts save mode overwrite: use .mode('append'), "
                "or .outputMode('append') for a stream"
            )
        if self.mode == "append" and self.key is not None and not self.create_table:
            problems.append("option key is for mode=upsert or create_table=true")
        for name in ("group", "shard_key"):
            if getattr(self, name) is not None and not self.create_table:
                problems.append(f"option {name} is for create_table=true; use ALTER TABLE else")
        if self.job_id is not None and self.job_id.startswith("unnamed-"):
            problems.append("option job_id: names that begin with unnamed- are reserved")
        if self.group is not None and self.shard_key is not None:
            problems.append("options group and shard_key: give one of them")
        if "initial_groups" in self.model_fields_set and self.shard_key is None:
            problems.append("option initial_groups needs shard_key")
        if problems:
            raise SparkError("\n".join(problems))
        assert self.table is not None
        return self.table

    def _foreign(self, names: set[str], side: str) -> list[str]:
        given = sorted(names & self.model_fields_set)
        return [f"option {name} is for {side} only; remove it" for name in given]

    def secret(self) -> str:
        """Return the token; empty when the client certificate is the credential.

        Raises:
            SparkError: the variable of token_env is not set on this host.

        """
        if self.token is not None:
            return self.token.get_secret_value()
        if self.token_env is None:
            return ""
        value = os.environ.get(self.token_env, "")
        if not value:
            raise SparkError(
                f"option token_env: the environment variable {self.token_env} is not set on this "
                "host; export it for the executors too (spark.executorEnv." + self.token_env + ")"
            )
        return value

    def without_secret(self) -> QuackOptions:
        """Return the options for a process that must not connect."""
        return self.model_copy(update={"token": None})


def _problems(error: ValidationError) -> list[str]:
    problems = []
    for one in error.errors(include_input=False, include_url=False):
        name = str(one["loc"][0]) if one["loc"] else ""
        if one["type"] == "extra_forbidden":
            known = ", ".join(sorted(QuackOptions.model_fields))
            hint = " (name the table by option table)" if name == "path" else ""
            problems.append(f"unknown option '{name}'{hint}; known are {known}")
        elif one["type"] == "missing":
            problems.append(f"option {name} is missing")
        else:
            words = one["msg"].removeprefix("Value error, ")
            problems.append(f"option {name}: {words}")
    return problems
