"""`quack backup` and `quack restore`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quack.cli.failures import failure_as_json
from quack.cli.options import AsJson, CaFile, Config, Timeout, TokenFile, Url
from quack.errors import ClusterError, StorageError

if TYPE_CHECKING:
    from quack.backup.manifest import Manifest

app = typer.Typer(help="Consistent copies of a cluster's state.", no_args_is_help=True)

_FAILURES = (StorageError, ClusterError)
_Location = Annotated[str, typer.Argument(help="A folder, or s3://bucket/prefix.")]


class _Progress:
    """Whole percents on standard error: standard output holds the answer alone."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._last = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        if percent != self._last:
            print(f"{self._verb}: {percent} % of {total} bytes", file=sys.stderr)
        self._last = percent


def _document(location: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "ok": True,
        "location": location,
        "backup_id": manifest.backup_id,
        "created_at": manifest.created_at,
        "cluster_id": manifest.cluster_id,
        "node_id": manifest.node_id,
        "index": manifest.index,
        "image_bytes": manifest.image_bytes,
        "bytes": manifest.packed_bytes(),
        "parts": len(manifest.parts),
    }


def _tell(as_json: bool, words: str, document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document) if as_json else words)


@app.command()
def create(
    to: Annotated[str, typer.Option("--to", help="An empty folder, or s3://bucket/prefix.")],
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    timeout: Timeout = 600,
    as_json: AsJson = False,
) -> None:
    """Back up everything that is committed now; writes go on meanwhile."""
    from quack.backup.create import create_backup
    from quack.cluster.target import Target
    from quack.storage import open_store

    target = Target.from_options(config, url, ca_file, token_file)
    with failure_as_json(as_json, *_FAILURES, location=to):
        store = open_store(to)
        with target.open(timeout_s=timeout) as session:
            manifest = create_backup(session, store, progress=_Progress("backup"))
    words = (
        f"backup {manifest.backup_id} of index {manifest.index} lies in {to}: "
        f"{manifest.image_bytes} bytes, {manifest.packed_bytes()} compressed"
    )
    _tell(as_json, words, _document(to, manifest))


@app.command()
def verify(location: _Location, as_json: AsJson = False) -> None:
    """Read a backup through and compare every checksum. Exit code 1 on damage."""
    from quack.backup.verify import verify_backup
    from quack.storage import open_store

    with failure_as_json(as_json, *_FAILURES, location=location):
        manifest = verify_backup(open_store(location), progress=_Progress("verify"))
    words = f"backup {manifest.backup_id} of index {manifest.index} is whole and undamaged"
    _tell(as_json, words, _document(location, manifest))


def restore(
    location: _Location,
    config: Annotated[
        pathlib.Path, typer.Option("--config", help="File of a node with an empty data_dir.")
    ],
    as_json: AsJson = False,
) -> None:
    """Fill a node's empty data_dir from a backup; the first members of the new cluster each do so.

    The node's file needs a new cluster_id. Start the nodes when all are restored.
    """
    from quack.backup.restore import restore_backup
    from quack.config import load_config
    from quack.storage import open_store

    loaded = load_config(config)
    with failure_as_json(as_json, *_FAILURES, location=location):
        manifest = restore_backup(open_store(location), loaded, progress=_Progress("restore"))
    words = (
        f"{loaded.data_dir} holds index {manifest.index} of cluster '{manifest.cluster_id}'; "
        f"start the first members of cluster '{loaded.cluster_id()}' when all are restored"
    )
    document = {
        **_document(location, manifest),
        "data_dir": str(loaded.data_dir),
        "cluster_id": loaded.cluster_id(),
        "from_cluster_id": manifest.cluster_id,
    }
    _tell(as_json, words, document)
