"""A real S3 server (SeaweedFS) on free ports, for tests."""

from __future__ import annotations

import contextlib
import json
import pathlib
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import obstore
from obstore.store import S3Store

from quack.cluster.bootstrap import free_ports

_PARTS = ("master", "volume", "filer", "s3")


@contextlib.contextmanager
def s3_server(folder: pathlib.Path, bucket: str) -> Iterator[dict[str, str]]:
    """Run a server with one bucket; gives the environment variables by which clients reach it."""
    data = folder / "s3"
    data.mkdir(parents=True)
    access, secret = secrets.token_hex(8), secrets.token_hex(16)
    config = folder / "s3.json"
    identity = {
        "name": "admin",
        "credentials": [{"accessKey": access, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}))
    ports = iter(free_ports(2 * len(_PARTS)))
    options = []
    endpoint = ""
    for part in _PARTS:
        port = next(ports)
        options += [f"-{part}.port={port}", f"-{part}.port.grpc={next(ports)}"]
        endpoint = f"http://127.0.0.1:{port}"
    weed = pathlib.Path(sys.executable).parent / "weed"
    with (folder / "s3.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(str(weed), "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1"),
                *("-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={config}", "-s3.iam=false"),
                *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
                *("-master.volumeSizeLimitMB=64", "-volume.max=0", "-volume.minFreeSpace=1"),
                *("-volume.preStopSeconds=0", "-master.electionTimeout=1s", *options),
            ],
            stdout=log,
            stderr=log,
        )
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": access,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
    }
    try:
        _wait(process, environment, bucket, folder / "s3.log")
        yield environment
    finally:
        process.kill()  # it takes long to stop otherwise, and its data are ours
        process.wait()


def _wait(
    process: subprocess.Popen[bytes], environment: dict[str, str], bucket: str, log: pathlib.Path
) -> None:
    """Make the bucket (a folder of the filer) and wait until an object can be written."""
    client = S3Store(
        bucket,
        endpoint=environment["AWS_ENDPOINT_URL"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=5)},
    )
    deadline = time.monotonic() + 120
    while True:
        try:
            _make_bucket(environment, bucket)
            obstore.put(client, "ready", b"ready")
            obstore.delete(client, "ready")
            return
        except (OSError, obstore.exceptions.BaseError) as error:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, f"{error}\n{log.read_text()[-2000:]}"
            time.sleep(0.2)


def _make_bucket(environment: dict[str, str], bucket: str) -> None:
    """PUT bucket, signed by the client."""
    root = S3Store(
        bucket,
        endpoint=environment["AWS_ENDPOINT_URL"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    signed = obstore.sign(root, "PUT", "", timedelta(minutes=1))
    request = urllib.request.Request(signed, method="PUT", data=b"")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there
            raise
