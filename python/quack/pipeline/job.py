"""Job files: what a pipeline does, checked in full before anything runs."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from quack.documents import Document, read_document
from quack.errors import ConfigError
from quack.spark.options import QuackOptions, TableName
from quack.storage import S3Settings, Store, check_location, open_store

__all__ = [
    "Cluster",
    "Compact",
    "Expire",
    "Ingest",
    "Job",
    "LakePlace",
    "Rules",
    "Source",
    "Step",
    "Tier",
    "Verify",
    "load_job",
]

_SECRET = re.compile(r"password|passwd|secret|token|credential|access.?key", re.IGNORECASE)
#: A secret within a value: ``...?password=x``, ``//user:x@host``, ``thin:user/x@host``.
_SECRET_WITHIN = re.compile(
    rf"(?:{_SECRET.pattern})\w*\s*=|//[^/@\s]*:[^/@\s]+@|thin:[^/@\s]+/[^@\s]+@", re.IGNORECASE
)
_SECRET_SETTING = re.compile(
    r"password|secret|token(?!file)|(?:access|account).?key", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DEFAULT_FILE_BYTES = 128 * 1024 * 1024


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _table(value: object) -> object:
    return TableName.parse(value) if isinstance(value, str) else value


Table = Annotated[TableName, BeforeValidator(_table)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Cluster(_Strict):
    """The cluster whose catalog names the files; the token is in an environment variable."""

    #: ``quack:host:port[,host:port...]``
    url: str
    #: Environment variable that holds the token.
    token_env: str | None = None
    ca_file: pathlib.Path | None = None
    cert_file: pathlib.Path | None = None
    key_file: pathlib.Path | None = None
    request_timeout_s: float = Field(60, gt=0, le=86_400)
    commit_timeout_s: float = Field(600, gt=0, le=86_400)

    def options(self) -> QuackOptions:
        """Return the same as options of a session.

        Raises:
            SparkError: the variable is not set, or a file is missing.

        """
        given = {
            name: str(value)
            for name, value in self.model_dump(exclude_none=True, exclude={"token_env"}).items()
        }
        if self.token_env is not None or self.cert_file is None:
            given["token_env"] = self.token_env or "QUACK_TOKEN"
        return QuackOptions.parse(given)


class LakePlace(_Strict):
    """Where the Parquet files lie, and which schema of the catalog names them."""

    #: A folder that all executors share, or ``s3://bucket/prefix``.
    location: str
    #: Schema of the replicated catalog that holds the ``ducklake_`` tables.
    catalog: str = Field("quack_lake", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    endpoint: str | None = None
    region: str | None = None
    access_key_id_env: Name = "AWS_ACCESS_KEY_ID"
    secret_access_key_env: Name = "AWS_SECRET_ACCESS_KEY"
    session_token_env: Name = "AWS_SESSION_TOKEN"

    @field_validator("location")
    @classmethod
    def _has_form(cls, value: str) -> str:
        return check_location(value).rstrip("/") or "/"

    def store(self) -> Store:
        """Return the storage; nothing is read or made yet.

        Raises:
            StorageError: its client is missing.

        """
        settings = S3Settings(
            self.endpoint,
            self.region,
            self.access_key_id_env,
            self.secret_access_key_env,
            self.session_token_env,
        )
        return open_store(self.location, settings)


class Source(_Strict):
    """What Spark reads."""

    #: Any format of Spark's: csv, json, parquet, orc, jdbc, ...; ``table`` for what the Spark
    #: session knows by name, such as a temporary view.
    format: Name
    #: One path or several, or the name of the table; None for formats without one.
    path: str | list[str] | None = None
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    #: Name of an option -> environment variable that holds it, for what is secret.
    options_env: dict[str, Name] = Field(default_factory=dict)
    #: Name of an option -> file that holds it, for what is secret.
    options_file: dict[str, pathlib.Path] = Field(default_factory=dict)
    #: Name -> Spark type of every column that must come. Needed for csv and json.
    columns: dict[str, str] | None = None

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        secret = sorted(
            name
            for name, one in value.items()
            if _SECRET.search(name) or (isinstance(one, str) and _SECRET_WITHIN.search(one))
        )
        if secret:
            raise ValueError(
                f"{', '.join(secret)}: secrets are not for job files; name an environment "
                "variable for it in options_env, or a file in options_file"
            )
        return value

    @model_validator(mode="after")
    def _has_types(self) -> Source:
        if self.format in ("csv", "json") and not self.columns:
            raise ValueError(f"{self.format} files have no types: give columns, name: type")
        if self.format == "table" and not isinstance(self.path, str):
            raise ValueError("format table needs path, the name of one table")
        return self

    def paths(self) -> list[str]:
        """Return the paths."""
        return [self.path] if isinstance(self.path, str) else list(self.path or [])


class Range(_Strict):
    """Bounds of a value, both included."""

    min: int | float | str | None = None
    max: int | float | str | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Range:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        return self


class Rules(_Strict):
    """What every row must fulfil."""

    not_null: list[Name] = Field(default_factory=list)
    #: Each a list of columns whose values together come once in the rows of this step.
    unique: list[list[Name]] = Field(default_factory=list)
    range: dict[str, Range] = Field(default_factory=dict)
    #: Name -> Spark SQL condition; a row where it is not true breaks it.
    check: dict[str, str] = Field(default_factory=dict)


class _Step(_Strict):
    #: Names the step within the job; ``ingest-1`` and so on when not given.
    name: Name | None = None

    def digest(self) -> str:
        """Return what tells this step from another one under the same name."""
        return hashlib.sha256(self.model_dump_json(exclude={"name"}).encode()).hexdigest()[:16]


class Ingest(_Step):
    """Rows from anywhere become Parquet files of a lake table."""

    kind: Literal["ingest"]
    table: Table
    source: Source
    #: Spark SQL expressions that make the columns; all columns of the source when not given.
    select: list[str] | None = None
    where: str | None = None
    rules: Rules = Rules()
    #: ``fail``: nothing is written; ``reject``: such rows go to ``_rejected/`` and are counted.
    on_bad_rows: Literal["fail", "reject"] = "fail"
    #: Columns by whose values files are separated; for a table that is made now.
    partition_by: list[Name] = Field(default_factory=list)
    sort_by: list[Name] = Field(default_factory=list)
    #: View of the catalog that shows the table, kept up to date; nodes must reach the files.
    view: Table | None = None
    target_file_bytes: int = Field(_DEFAULT_FILE_BYTES, ge=1024)


class Tier(_Step):
    """Rows of a replicated table move to Parquet files of a lake table."""

    kind: Literal["tier"]
    #: The replicated table that gives the rows away.
    source: Table
    #: The lake table that takes them.
    table: Table
    #: SQL condition of the rows that move.
    where: str
    partition_by: list[Name] = Field(default_factory=list)
    sort_by: list[Name] = Field(default_factory=list)
    #: View of the catalog that shows hot and cold rows together.
    view: Table | None = None
    target_file_bytes: int = Field(_DEFAULT_FILE_BYTES, ge=1024)


class Compact(_Step):
    """Small files of a lake table become larger ones."""

    kind: Literal["compact"]
    table: Table
    target_file_bytes: int = Field(_DEFAULT_FILE_BYTES, ge=1024)
    #: A partition with fewer small files is left alone.
    min_files: int = Field(2, ge=2)


class Expire(_Step):
    """Old snapshots are forgotten, and files that no snapshot names any more are removed."""

    kind: Literal["expire"]
    #: Snapshots younger than this stay, and always the last one.
    older_than_s: float = Field(7 * 24 * 3600, ge=0)
    #: Files stay so long after their last snapshot went, for readers that have just listed them.
    grace_s: float = Field(3600, ge=0)
    #: Files of a run that began so long ago and never committed are removed.
    staging_ttl_s: float = Field(24 * 3600, ge=0)


class Verify(_Step):
    """Storage is compared with the metadata."""

    kind: Literal["verify"]
    #: Tables to look at; all when not given.
    tables: list[Table] | None = None
    #: Also read every file and compare its checksum and rows; else only presence and size.
    checksums: bool = True


Step = Annotated[Ingest | Tier | Compact | Expire | Verify, Field(discriminator="kind")]


class Job(_Strict):
    """A pipeline: steps that run one after the other."""

    #: Names the job: a step that was committed under it is not done again.
    job_id: Name
    cluster: Cluster | None = None
    lake: LakePlace
    #: Settings of the Spark session, when the pipeline starts it.
    spark: dict[str, str | int | bool] = Field(default_factory=dict)
    steps: list[Step] = Field(min_length=1)

    @field_validator("spark")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        secret = sorted(name for name in value if _SECRET_SETTING.search(name))
        if secret:
            raise ValueError(
                f"{', '.join(secret)}: secrets are not for job files, and Spark shows its settings "
                "in the arguments of its process; put them into Spark's spark-defaults.conf"
            )
        return value

    @model_validator(mode="after")
    def _names_differ(self) -> Job:
        names = [name for name, _ in self.named_steps()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two steps are named {', '.join(twice)}; rename one")
        return self

    def named_steps(self) -> list[tuple[str, Ingest | Tier | Compact | Expire | Verify]]:
        """Return the steps with their names.

        A step without one is called by its kind and its place among those of the kind: when
        others are added or removed it keeps its name, or another step has it, whose definition
        differs and is refused. Neither does anything twice.
        """
        counted: Counter[str] = Counter()
        found = []
        for step in self.steps:
            counted[step.kind] += 1
            found.append((step.name or f"{step.kind}-{counted[step.kind]}", step))
        return found


def load_job(file: pathlib.Path, variables: Mapping[str, str] | None = None) -> Job:
    """Read and check a job file. Relative paths in it start at its folder.

    Args:
        file: YAML.
        variables: values for ``${name}`` in texts of the file.

    Raises:
        ConfigError: every mistake, with file, line, key and the fix.

    """
    document = read_document(file)
    used: set[str] = set()
    content = _filled(document, document.content, variables or {}, (), used)
    for name in sorted(set(variables or {}) - used):
        document.add((), f"variable {name} is not used in the file; remove it from the command")
    if not isinstance(content, dict):
        raise ConfigError([f"{file}:1: expected a mapping with job_id:, lake: and steps:"])
    try:
        job = Job.model_validate(content)
    except ValidationError as error:
        document.add_all(error)
        raise ConfigError(document.problems) from None
    if document.problems:
        raise ConfigError(document.problems)
    return _absolute(job, file.resolve().parent)


def _filled(
    document: Document,
    value: Any,
    variables: Mapping[str, str],
    path: tuple[str, ...],
    used: set[str],
) -> Any:
    if isinstance(value, dict):
        return {
            key: _filled(document, one, variables, (*path, str(key)), used)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [
            _filled(document, one, variables, (*path, str(number)), used)
            for number, one in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        used.add(name)
        if name not in variables:
            document.add(path, f"variable {name} has no value; give --set {name}=...")
    return _VARIABLE.sub(lambda found: variables.get(found.group(1), ""), value)


def _place(base: pathlib.Path, path: str) -> str:
    return path if "://" in path else os.path.normpath(base / path)


def _absolute_source(source: Source, base: pathlib.Path) -> Source:
    changed: dict[str, Any] = {
        "options_file": {name: base / file for name, file in source.options_file.items()}
    }
    if source.format != "table" and source.path:
        changed["path"] = [_place(base, path) for path in source.paths()]
    return source.model_copy(update=changed)


def _absolute(job: Job, base: pathlib.Path) -> Job:
    lake = job.lake.model_copy(update={"location": _place(base, job.lake.location)})
    cluster = job.cluster
    if cluster is not None:
        files = {name: getattr(cluster, name) for name in ("ca_file", "cert_file", "key_file")}
        changed = {name: base / file for name, file in files.items() if file is not None}
        cluster = cluster.model_copy(update=changed)
    steps: list[Any] = []
    for step in job.steps:
        if isinstance(step, Ingest):
            step = step.model_copy(update={"source": _absolute_source(step.source, base)})
        steps.append(step)
    return job.model_copy(update={"lake": lake, "cluster": cluster, "steps": steps})
