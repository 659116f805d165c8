"""Makes a backup: reads the image of a checkpoint from a node, compresses it, writes it away."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import zstandard

from quack.backup.manifest import MANIFEST, ROOT_GROUP, Manifest, Part, Position
from quack.errors import BackupError, QuackError, StorageError
from quack.storage import Store

__all__ = ["PART_BYTES", "Progress", "Session", "create_backup"]

#: Bytes of the image in one part. A node closes an image that nobody reads for a minute, and a part
#: is written before the next one is read.
PART_BYTES = 16 * 1024 * 1024
#: Bytes per question to the node.
_CHUNK_BYTES = 4 * 1024 * 1024
_LEVEL = 3

#: Gets bytes of the image done and in all.
Progress = Callable[[int, int], None]


class Session(Protocol):
    """Calls functions of one node: a `quack.cluster.target.NodeSession`, or the node itself."""

    def rows(self, function: str, *arguments: str | None) -> list[dict[str, Any]]:
        """Return what a table function answers.

        Raises:
            ClusterError: with the node's words.

        """
        ...


def _nothing(done: int, total: int) -> None:
    pass


def create_backup(
    session: Session,
    store: Store,
    *,
    progress: Progress = _nothing,
    part_bytes: int = PART_BYTES,
) -> Manifest:
    """Write a backup of everything that was committed before the call.

    Writes go on meanwhile. On failure no manifest is left, so what was written is no backup; it is
    removed where that is possible.

    Args:
        session: with a node of the cluster.
        store: an empty place.
        progress: called after every part.
        part_bytes: of the image in one part.

    Raises:
        BackupError: the place is in use, or something cannot be written.
        ClusterError: the node refused, with its words.

    """
    _require_empty(store)
    opened = session.rows("quack_backup_open")[0]
    image = str(opened["image"])
    written: list[str] = []
    try:
        manifest = _copy(session, store, opened, progress, part_bytes, written)
        written.append(MANIFEST)
        store.put(MANIFEST, manifest.encode())
    except BaseException:
        _remove(store, written)
        raise
    finally:
        with contextlib.suppress(QuackError):  # it closes by itself
            session.rows("quack_backup_close", image)
    return manifest


def _require_empty(store: Store) -> None:
    try:
        names = list(store.sizes())
    except StorageError as error:
        if error.code != "not_found":
            raise
        return
    if names:
        raise BackupError(
            "already_exists",
            f"{store.location}: is not empty (it holds {names[0]}); give each backup a place of "
            "its own",
        )


def _remove(store: Store, names: list[str]) -> None:
    with contextlib.suppress(QuackError):  # the first failure is the one to show
        for name in reversed(names):
            store.delete(name)


def _copy(
    session: Session,
    store: Store,
    opened: dict[str, Any],
    progress: Progress,
    part_bytes: int,
    written: list[str],
) -> Manifest:
    image, total = str(opened["image"]), int(opened["bytes"])
    positions = [Position.model_validate(one) for one in json.loads(str(opened["positions"]))]
    index = next((one.index for one in positions if one.group == ROOT_GROUP), 0)
    whole = hashlib.sha256()
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    parts: list[Part] = []
    offset = 0
    while offset < total:
        run = _read(session, image, offset, min(part_bytes, total - offset))
        whole.update(run)
        packed = compressor.compress(run)
        name = f"part-{len(parts):05}.zst"
        written.append(name)
        store.put(name, packed)
        parts.append(
            Part(
                file=name,
                offset=offset,
                image_bytes=len(run),
                bytes=len(packed),
                sha256=hashlib.sha256(packed).hexdigest(),
            )
        )
        offset += len(run)
        progress(offset, total)
    return Manifest(
        backup_id=secrets.token_hex(16),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cluster_id=str(opened["cluster_id"]),
        node_id=str(opened["node_id"]),
        duckdb_version=str(opened["duckdb_version"]),
        index=index,
        positions=positions,
        image_bytes=total,
        image_sha256=whole.hexdigest(),
        parts=parts,
    )


def _read(session: Session, image: str, offset: int, size: int) -> bytes:
    run = bytearray()
    while len(run) < size:
        ask = min(_CHUNK_BYTES, size - len(run))
        row = session.rows("quack_backup_read", image, str(offset + len(run)), str(ask))[0]
        data = bytes(row["data"])
        if not data or len(data) > ask:
            raise BackupError(
                "internal",
                f"image {image}: got {len(data)} bytes at {offset + len(run)} instead of {ask}",
            )
        run += data
    return bytes(run)
