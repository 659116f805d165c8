"""Object storage: named objects in a folder or below a prefix of an S3 bucket."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from quack.errors import StorageError

__all__ = ["FolderStore", "S3Settings", "S3Store", "Store", "check_location", "open_store"]

_S3_FORM = re.compile(r"s3://(?P<bucket>[^/]{3,})(/(?P<prefix>.*))?")

#: Seconds after which a request to S3 is given up, its repetitions included.
_S3_GIVE_UP_S = 60


def check_location(location: str) -> str:
    """Return the location, or say what is wrong with it.

    Raises:
        ValueError: neither a path nor ``s3://bucket/prefix``.

    """
    if not location.strip():
        raise ValueError("is empty; expected a path or s3://bucket/prefix")
    if location.startswith(("s3a://", "s3n://")):
        raise ValueError(
            f"'{location}': these are names of Hadoop's clients and not used here; "
            "write it as s3://bucket/prefix"
        )
    if "://" in location and _S3_FORM.fullmatch(location) is None:
        raise ValueError(f"'{location}': expected a path or s3://bucket/prefix")
    return location


class Store(Protocol):
    """Objects with names such as ``part-00000.zst``; ``/`` separates levels."""

    #: As the operator wrote it, for messages.
    location: str

    def put(self, name: str, data: bytes) -> None:
        """Write an object whole; it is durable on return and never seen half.

        Raises:
            StorageError: it cannot be written; with the reason.

        """
        ...

    def get(self, name: str) -> bytes:
        """Return an object.

        Raises:
            StorageError: it is missing or cannot be read.

        """
        ...

    def sizes(self) -> dict[str, int]:
        """Return name and size in bytes of each object, at any level, sorted by name."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; a missing one is no mistake."""
        ...

    def below(self, name: str) -> Store:
        """Return the store of what lies below a level."""
        ...


class FolderStore:
    """A folder; made by the first `put`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.location = str(folder)
        self._folder = folder

    @contextlib.contextmanager
    def _words(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise StorageError("not_found", f"{self._folder / name}: no such file") from error
        except OSError as error:
            raise StorageError(
                "io_error", f"{self._folder / name}: cannot be {action}: {error.strerror}"
            ) from error

    def put(self, name: str, data: bytes) -> None:
        """Write it beside, flush, then rename."""
        target = self._folder / name
        with self._words("written", name):
            target.parent.mkdir(parents=True, exist_ok=True)
            passing = target.with_name(target.name + ".tmp")
            try:
                with passing.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                passing.rename(target)
            except OSError:
                passing.unlink(missing_ok=True)  # the space it took may be what is lacking
                raise
            descriptor = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def get(self, name: str) -> bytes:
        """Return an object."""
        with self._words("read", name):
            return (self._folder / name).read_bytes()

    def sizes(self) -> dict[str, int]:
        """Return name and size of each object."""
        found = {}
        with self._words("listed", ""):
            for file in sorted(self._folder.rglob("*")):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if file.is_file():
                        found[str(file.relative_to(self._folder))] = file.stat().st_size
        return found

    def delete(self, name: str) -> None:
        """Remove an object, and the levels that it leaves empty."""
        with self._words("removed", name):
            file = self._folder / name
            file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other objects are left
                for level in file.parents:
                    if not level.is_relative_to(self._folder):
                        break
                    level.rmdir()

    def below(self, name: str) -> Store:
        """Return what lies below a level."""
        return FolderStore(self._folder / name)


@dataclass(frozen=True)
class S3Settings:
    """Where an S3 server is, and which environment variables hold the credentials.

    Attributes:
        endpoint: address of a server other than Amazon's; None for ``AWS_ENDPOINT_URL``, if set.
        region: None for ``AWS_REGION``.
        access_key_id_env: name of the variable with the access key.
        secret_access_key_env: name of the variable with the secret key.
        session_token_env: name of the variable with the token, for temporary credentials.

    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id_env: str = "AWS_ACCESS_KEY_ID"
    secret_access_key_env: str = "AWS_SECRET_ACCESS_KEY"
    session_token_env: str = "AWS_SESSION_TOKEN"

    def given(self) -> dict[str, str]:
        """Return what the client is told; it holds secrets.

        Raises:
            StorageError: a variable that was named is not set in this process.

        """
        found = {"endpoint": self.endpoint, "region": self.region}
        usual = S3Settings()
        for name in ("access_key_id", "secret_access_key", "session_token"):
            variable: str = getattr(self, f"{name}_env")
            found[name] = os.environ.get(variable)
            if not found[name] and variable != getattr(usual, f"{name}_env"):
                raise StorageError(
                    "invalid_argument",
                    f"the environment variable {variable} ({name} of S3) is not set in this "
                    "process; export it before the process starts, on executors too",
                )
        return {name: value for name, value in found.items() if value}


class S3Store:
    """A prefix of an S3 bucket.

    What `S3Settings` leaves open comes from the environment, as for other S3 clients
    (``AWS_ENDPOINT_URL``, ``AWS_REGION``); ``http://`` is allowed where the address says so.
    """

    def __init__(self, bucket: str, prefix: str, settings: S3Settings | None = None) -> None:
        self.location = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self._settings = settings or S3Settings()
        try:
            import obstore
            from obstore.store import S3Store as Client
        except ImportError as error:
            raise StorageError(
                "not_supported",
                f"{self.location}: needs the package obstore: pip install 'quack-duckdb[s3]'",
            ) from error
        self._obstore: Any = obstore
        endpoint = self._settings.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
        given: Any = self._settings.given()
        try:
            self._client = Client(
                bucket,
                config=given,
                virtual_hosted_style_request=not endpoint,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "timeout": f"{_S3_GIVE_UP_S}s",
                },
                retry_config={
                    "max_retries": 5,
                    "retry_timeout": _seconds(_S3_GIVE_UP_S),
                },
            )
        except Exception as error:
            raise StorageError("invalid_argument", f"{self.location}: {_told(error)}") from error

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    @contextlib.contextmanager
    def _words(self, action: str, name: str) -> Iterator[None]:
        place = f"{self.location}/{name}" if name else self.location
        exceptions = self._obstore.exceptions
        refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            told = _told(error)
            # A listing does not tell the cases apart by type.
            missing = isinstance(error, FileNotFoundError | exceptions.NotFoundError)
            if missing or "404 Not Found" in told:
                raise StorageError("not_found", f"{place}: no such object or bucket") from error
            if isinstance(error, refusals) or "403 Forbidden" in told:
                raise StorageError(
                    "unauthorized",
                    f"{place}: cannot be {action}: the server refused the credentials "
                    f"({self._settings.access_key_id_env} and "
                    f"{self._settings.secret_access_key_env}): {told}",
                ) from error
            raise StorageError("io_error", f"{place}: cannot be {action}: {told}") from error

    def put(self, name: str, data: bytes) -> None:
        """Write an object; S3 shows it whole or not at all."""
        with self._words("written", name):
            self._obstore.put(self._client, self._key(name), data)

    def get(self, name: str) -> bytes:
        """Return an object."""
        with self._words("read", name):
            return bytes(self._obstore.get(self._client, self._key(name)).bytes())

    def sizes(self) -> dict[str, int]:
        """Return name and size of each object."""
        start = f"{self._prefix}/" if self._prefix else ""
        with self._words("listed", ""):
            pages = self._obstore.list(self._client, prefix=self._prefix or None)
            found = {str(item["path"]): int(item["size"]) for page in pages for item in page}
        return {
            key.removeprefix(start): found[key] for key in sorted(found) if key.startswith(start)
        }

    def delete(self, name: str) -> None:
        """Remove an object."""
        with self._words("removed", name), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._client, self._key(name))

    def below(self, name: str) -> Store:
        """Return what lies below a level."""
        return S3Store(self._bucket, self._key(name), self._settings)


def _seconds(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


def _told(error: BaseException) -> str:
    """Return the first sentence; the client's further lines repeat the request."""
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else repr(error)


def open_store(location: str, settings: S3Settings | None = None) -> Store:
    """Return the store at a path or ``s3://bucket/prefix``. Nothing is read or made yet.

    Args:
        location: where.
        settings: of S3; without effect on a path.

    Raises:
        StorageError: the location has another form, or its client is missing.

    """
    try:
        check_location(location)
    except ValueError as error:
        raise StorageError("invalid_argument", str(error)) from error
    found = _S3_FORM.fullmatch(location)
    if found is not None:
        return S3Store(found["bucket"], found["prefix"] or "", settings)
    return FolderStore(pathlib.Path(location).absolute())
