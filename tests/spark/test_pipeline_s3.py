"""Goal: the same on S3; wrong credentials and a full disk are named, and nothing is half-written."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quack.pipeline
from quack.errors import PipelineError, StorageError
from s3_server import s3_server

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3"), "lake") as environment:
        yield environment


@pytest.fixture
def on_s3(pipeline, server, monkeypatch):
    """The pipeline with a bucket; the credentials are in variables that the job names."""
    pipeline.location = f"s3://lake/{pipeline.schema}"
    pipeline.place = {
        "endpoint": server["AWS_ENDPOINT_URL"],
        "region": server["AWS_REGION"],
        "access_key_id_env": "QUACK_TEST_KEY",
        "secret_access_key_env": "QUACK_TEST_SECRET",
    }
    variables = {
        "QUACK_TEST_KEY": server["AWS_ACCESS_KEY_ID"],
        "QUACK_TEST_SECRET": server["AWS_SECRET_ACCESS_KEY"],
    }
    # The session started before the server: its workers get variables of their own.
    of_workers = pipeline.spark.sparkContext.environment
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(of_workers, name, value)
    return pipeline


def rows_on_s3(pipeline) -> list[int]:
    store = pipeline.job({"kind": "verify"}).lake.store()
    found: list[int] = []
    for (path,) in pipeline.sql(f"SELECT path FROM {pipeline.schema}.quack_live_files"):
        assert path.startswith(pipeline.location + "/")
        data = store.get(path.removeprefix(pipeline.location + "/"))
        found += pq.read_table(pa.BufferReader(data))["id"].to_pylist()
    return sorted(found)


def test_ingest_compact_expire_and_verify(on_s3, server):
    job = on_s3.job(on_s3.ingest(0, 60), {"kind": "verify"})
    first = quack.pipeline.run(job, spark=on_s3.spark)
    assert first.ok
    assert first.steps[0].counts["files"] == 3
    assert quack.pipeline.run(job, spark=on_s3.spark).steps[0].state == "already_done"
    done = on_s3.run(
        on_s3.ingest(60, 90),
        {"kind": "compact", "table": "rows"},
        {"kind": "expire", "older_than_s": 0, "grace_s": 0},
        {"kind": "verify"},
    )
    assert done.ok
    assert rows_on_s3(on_s3) == list(range(90))
    assert done.steps[2].counts["files"] == 6
    assert done.steps[3].counts["orphans"] == 0
    secret = server["AWS_SECRET_ACCESS_KEY"]
    shown = json.dumps(done.as_dict()) + job.model_dump_json()
    kept = on_s3.metadata("ducklake_metadata") + on_s3.metadata("quack_step")
    assert secret not in shown + str(kept)

    store = job.lake.store()
    lost = next(name for name in store.sizes() if name.endswith(".parquet"))
    store.delete(lost)
    found = on_s3.run({"kind": "verify", "checksums": False})
    assert f"missing: {on_s3.location}/{lost}" in found.steps[0].notes


def test_wrong_credentials_are_named(on_s3, monkeypatch):
    step = on_s3.ingest(0, 1)
    monkeypatch.setenv("QUACK_WRONG_SECRET", "not-the-secret")
    on_s3.place["secret_access_key_env"] = "QUACK_WRONG_SECRET"
    with pytest.raises(StorageError, match="QUACK_WRONG_SECRET") as raised:
        on_s3.run(step)
    assert raised.value.code == "unauthorized"
    assert "not-the-secret" not in str(raised.value)
    on_s3.place["secret_access_key_env"] = "QUACK_UNSET"
    with pytest.raises(StorageError, match="variable QUACK_UNSET .* is not set"):
        on_s3.run(step)


def test_a_full_disk_leaves_nothing(pipeline):
    place = pathlib.Path(pipeline.location)
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0777", "tmpfs", str(place)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this user cannot mount a small file system: {done.stderr.strip()}")
    try:
        step = pipeline.ingest(0, 20_000)
        with pytest.raises(PipelineError, match="No space left on device") as raised:
            pipeline.run(step)
        assert "quack:io_error" in str(raised.value)
        assert pipeline.files() == []
        assert pipeline.metadata("ducklake_table") == []
        pipeline.run(pipeline.ingest(0, 9))
        assert pipeline.ids() == list(range(9))
        pipeline.run(pipeline.ingest(9, 12))
        files = pipeline.files()
        filler = place / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        compact = {"kind": "compact", "table": "rows"}
        # Whoever looks first says it: the trial of the storage, or the task that writes.
        with pytest.raises((PipelineError, StorageError), match="No space left on device"):
            pipeline.run(compact)
        filler.unlink()
        assert pipeline.files() == files
        assert pipeline.ids() == list(range(12))
        assert pipeline.run(compact, {"kind": "verify"}).steps[0].counts["files"] == 3
        assert pipeline.ids() == list(range(12))
    finally:
        subprocess.run(["umount", str(place)], check=True)
