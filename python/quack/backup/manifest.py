"""What a backup consists of. The manifest is written last: without it there is no backup."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quack.errors import BackupError, StorageError
from quack.storage import Store

__all__ = ["FORMAT", "MANIFEST", "ROOT_GROUP", "Manifest", "Part", "Position", "read_manifest"]

MANIFEST = "manifest.json"
#: Number of the group that every cluster has.
ROOT_GROUP = 1
#: Raised when an older release could not read a backup any more.
FORMAT = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Position(_Strict):
    """How far a group's log is in the image: everything up to and including ``index``."""

    group: int
    index: int
    term: int


class Part(_Strict):
    """One file: a run of the image, compressed on its own.

    Attributes:
        file: its name.
        offset: where the run begins in the image.
        image_bytes: length of the run.
        bytes: length of the file.
        sha256: of the file, as it lies there.

    """

    file: str
    offset: int = Field(ge=0)
    image_bytes: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str = Field(pattern="[0-9a-f]{64}")


class Manifest(_Strict):
    """The document ``manifest.json``.

    Attributes:
        backup_id: random; tells a backup from every other one.
        created_at: UTC, ISO 8601.
        cluster_id: of the cluster that the state is from.
        node_id: the node whose image it is.
        index: position in the root group, also in ``positions``.
        image_bytes: length of the image, a DuckDB file.
        image_sha256: of the image.

    """

    format: Literal[1] = 1
    backup_id: str = Field(pattern="[0-9a-f]{32}")
    created_at: str
    cluster_id: str
    node_id: str
    duckdb_version: str
    compression: Literal["zstd"] = "zstd"
    index: int = Field(ge=1)
    positions: list[Position] = Field(min_length=1)
    image_bytes: int = Field(ge=1)
    image_sha256: str = Field(pattern="[0-9a-f]{64}")
    parts: list[Part] = Field(min_length=1)

    def packed_bytes(self) -> int:
        """Return what the parts take where they lie."""
        return sum(part.bytes for part in self.parts)

    def encode(self) -> bytes:
        """Return the file, with a checksum over the rest of it."""
        document = self.model_dump()
        return json.dumps({**document, "sha256": _digest(document)}, indent=1).encode() + b"\n"


def _digest(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(store: Store) -> Manifest:
    """Read and check the manifest of the backup in a store.

    Raises:
        BackupError: there is none, it is damaged, or another release wrote it.

    """
    place = f"{store.location}/{MANIFEST}"
    try:
        text = store.get(MANIFEST)
    except StorageError as error:
        if error.code != "not_found":
            raise
        raise BackupError(
            "not_found",
            f"{error.words}; no backup lies here, or one that was never finished: make a new one",
        ) from error
    try:
        document = json.loads(text)
        claimed = document.pop("sha256")
        intact = claimed == _digest(document)
    except (ValueError, KeyError, TypeError, AttributeError):
        intact = False
    if not intact:
        raise BackupError("corruption", f"{place}: the file is damaged (its checksum is wrong)")
    if document.get("format") != FORMAT:
        raise BackupError(
            "incompatible",
            f"{place}: has format {document.get('format')}, this release reads {FORMAT}; "
            "use the release that wrote it",
        )
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        raise BackupError("corruption", f"{place}: {error.errors()[0]['msg']}") from error
    offset = 0
    for part in manifest.parts:
        if part.offset != offset:
            raise BackupError("corruption", f"{place}: {part.file} does not follow the part before")
        offset += part.image_bytes
    if offset != manifest.image_bytes:
        raise BackupError("corruption", f"{place}: the parts hold {offset} bytes of the image")
    return manifest
