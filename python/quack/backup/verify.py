"""Reads a backup through and compares every checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import zstandard

from quack.backup.create import Progress
from quack.backup.manifest import Manifest, Part, read_manifest
from quack.errors import BackupError
from quack.storage import Store

__all__ = ["read_image", "verify_backup"]


def _nothing(done: int, total: int) -> None:
    pass


def _unpack(store: Store, part: Part) -> bytes:
    place = f"{store.location}/{part.file}"
    packed = store.get(part.file)
    if len(packed) != part.bytes:
        raise BackupError(
            "corruption", f"{place}: has {len(packed)} bytes, the manifest says {part.bytes}"
        )
    if hashlib.sha256(packed).hexdigest() != part.sha256:
        raise BackupError("corruption", f"{place}: the file is damaged (its checksum is wrong)")
    try:
        run = zstandard.ZstdDecompressor().decompress(packed, max_output_size=part.image_bytes)
    except zstandard.ZstdError as error:
        raise BackupError("corruption", f"{place}: cannot be unpacked: {error}") from error
    if len(run) != part.image_bytes:
        raise BackupError(
            "corruption",
            f"{place}: holds {len(run)} bytes of the image, the manifest says {part.image_bytes}",
        )
    return run


def read_image(
    store: Store, manifest: Manifest, take: Callable[[bytes], object], progress: Progress
) -> None:
    """Hand out the image, part after part, each checked before it is handed out.

    Raises:
        BackupError: a part is missing or damaged; names the file.

    """
    whole = hashlib.sha256()
    for part in manifest.parts:
        run = _unpack(store, part)
        whole.update(run)
        take(run)
        progress(part.offset + len(run), manifest.image_bytes)
    if whole.hexdigest() != manifest.image_sha256:
        raise BackupError(
            "corruption", f"{store.location}: the parts do not make up the image of the manifest"
        )


def verify_backup(store: Store, *, progress: Progress = _nothing) -> Manifest:
    """Check that a backup is whole and undamaged.

    Raises:
        BackupError: it is not; names the file.

    """
    manifest = read_manifest(store)
    read_image(store, manifest, lambda run: None, progress)
    return manifest
