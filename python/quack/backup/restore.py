"""Puts a backup into the data directory of a node of a new cluster."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import duckdb

from quack.backup.create import Progress
from quack.backup.manifest import Manifest, read_manifest
from quack.backup.verify import read_image
from quack.config import NodeConfig
from quack.errors import BackupError
from quack.extension import connect
from quack.storage import Store

__all__ = ["restore_backup"]


def _nothing(done: int, total: int) -> None:
    pass


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(store: Store, manifest: Manifest, config: NodeConfig) -> None:
    if manifest.duckdb_version.lstrip("v") != duckdb.__version__:
        raise BackupError(
            "incompatible",
            f"{store.location}: was made with DuckDB {manifest.duckdb_version}, this is DuckDB "
            f"{duckdb.__version__}; restore with that version, then upgrade",
        )
    if manifest.cluster_id == config.cluster_id():
        raise BackupError(
            "invalid_argument",
            f"{store.location}: is of cluster '{manifest.cluster_id}', which the node's file names "
            "too: a restored cluster is another one. Give cluster_mode.cluster_id a new UUID, the "
            "same in the file of every node",
        )
    if config.data_dir.exists() and any(config.data_dir.iterdir()):
        raise BackupError(
            "already_exists",
            f"{config.data_dir}: is not empty; a backup is restored into an empty data_dir",
        )


def restore_backup(store: Store, config: NodeConfig, *, progress: Progress = _nothing) -> Manifest:
    """Fill the empty ``data_dir`` of a node with the state of a backup.

    Every first member of the new cluster (all that its files name) is restored from the same
    backup; nodes that join later start empty. Nothing of a failed attempt is left.

    Args:
        store: where the backup lies.
        config: of the node; its cluster id must be a new one.
        progress: called after every part.

    Raises:
        BackupError: the backup is damaged or does not fit, or the directory is in use.

    """
    manifest = read_manifest(store)
    _check(store, manifest, config)
    existed = config.data_dir.exists()
    try:
        _fill(store, manifest, config, progress)
    except BaseException as error:
        for name in ("restored.json", "catalog"):
            path = config.data_dir / name
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(
                missing_ok=True
            )
        if not existed and config.data_dir.is_dir():
            config.data_dir.rmdir()
        if isinstance(error, OSError):
            raise BackupError(
                "io_error", f"{error.filename or config.data_dir}: {error.strerror}"
            ) from error
        raise
    return manifest


def _fill(store: Store, manifest: Manifest, config: NodeConfig, progress: Progress) -> None:
    folder = config.data_dir / "catalog"
    folder.mkdir(parents=True)
    passing = folder / "cp.duckdb.restoring"
    with passing.open("wb") as file:
        read_image(store, manifest, file.write, progress)
        file.flush()
        os.fsync(file.fileno())
    session = connect()
    try:
        session.execute(
            "CALL quack_restore_catalog(?, ?)", [str(passing), config.cluster_id()]
        ).fetchall()
    except duckdb.Error as error:
        raise BackupError("corruption", f"{store.location}: {error}") from error
    finally:
        session.close()
    passing.rename(folder / "cp.duckdb")
    _sync(folder)
    # Last: the node takes the state for a restored one only with this word.
    document = {
        "backup_id": manifest.backup_id,
        "index": manifest.index,
        "from": store.location,
        "from_cluster_id": manifest.cluster_id,
        "created_at": manifest.created_at,
    }
    note = config.data_dir / "restored.json"
    with note.open("w") as text:
        text.write(json.dumps(document, indent=1) + "\n")
        text.flush()
        os.fsync(text.fileno())
    _sync(config.data_dir)
