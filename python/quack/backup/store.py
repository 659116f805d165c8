"""Where backups lie: named objects in a folder or below a prefix of an S3 bucket."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Protocol

from quack.backup.location import S3_FORM, check_location
from quack.errors import BackupError

__all__ = ["FolderStore", "S3Store", "Store", "open_store"]

#: Seconds after which a request to S3 is given up, its repetitions included.
_S3_GIVE_UP_S = 60


class Store(Protocol):
    """Objects with names such as ``part-00000.zst``; ``/`` separates levels."""

    #: As the operator wrote it, for messages.
    location: str

    def put(self, name: str, data: bytes) -> None:
        """Write an object whole; it is durable on return and never seen half.

        Raises:
            BackupError: it cannot be written; with the reason.

        """
        ...

    def get(self, name: str) -> bytes:
        """Return an object.

        Raises:
            BackupError: it is missing or cannot be read.

        """
        ...

    def names(self) -> list[str]:
        """Return the names of all objects, at any level, sorted."""
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
            raise BackupError("not_found", f"{self._folder / name}: no such file") from error
        except OSError as error:
            raise BackupError(
                "io_error", f"{self._folder / name}: cannot be {action}: {error.strerror}"
            ) from error

    def put(self, name: str, data: bytes) -> None:
        """Write it beside, flush, then rename."""
        target = self._folder / name
        with self._words("written", name):
            target.parent.mkdir(parents=True, exist_ok=True)
            passing = target.with_name(target.name + ".tmp")
            with passing.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            passing.rename(target)
            descriptor = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def get(self, name: str) -> bytes:
        """Return an object."""
        with self._words("read", name):
            return (self._folder / name).read_bytes()

    def names(self) -> list[str]:
        """Return the names of all objects."""
        with self._words("listed", ""):
            files = [file for file in self._folder.rglob("*") if file.is_file()]
        return sorted(str(file.relative_to(self._folder)) for file in files)

    def delete(self, name: str) -> None:
        """Remove an object, and a level that it leaves empty."""
        with self._words("removed", name):
            (self._folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other objects are left
                (self._folder / name).parent.rmdir()

    def below(self, name: str) -> Store:
        """Return what lies below a level."""
        return FolderStore(self._folder / name)


class S3Store:
    """A prefix of an S3 bucket.

    Address and credentials come from the environment, as for other S3 clients:
    ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_REGION`` and, for
    servers other than Amazon's, ``AWS_ENDPOINT_URL`` (``http://`` is allowed where it says so).
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        self.location = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        try:
            import obstore
            from obstore.store import S3Store as Client
        except ImportError as error:
            raise BackupError(
                "not_supported",
                f"{self.location}: needs the package obstore: pip install 'quack-duckdb[s3]'",
            ) from error
        self._obstore: Any = obstore
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        try:
            self._client = Client(
                bucket,
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
            raise BackupError("invalid_argument", f"{self.location}: {_told(error)}") from error

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
                raise BackupError("not_found", f"{place}: no such object or bucket") from error
            if isinstance(error, refusals) or "403 Forbidden" in told:
                raise BackupError(
                    "unauthorized",
                    f"{place}: cannot be {action}: the server refused the credentials "
                    f"(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY): {told}",
                ) from error
            raise BackupError("io_error", f"{place}: cannot be {action}: {told}") from error

    def put(self, name: str, data: bytes) -> None:
        """Write an object; S3 shows it whole or not at all."""
        with self._words("written", name):
            self._obstore.put(self._client, self._key(name), data)

    def get(self, name: str) -> bytes:
        """Return an object."""
        with self._words("read", name):
            return bytes(self._obstore.get(self._client, self._key(name)).bytes())

    def names(self) -> list[str]:
        """Return the names of all objects."""
        start = f"{self._prefix}/" if self._prefix else ""
        with self._words("listed", ""):
            pages = self._obstore.list(self._client, prefix=self._prefix or None)
            keys = [str(item["path"]) for page in pages for item in page]
        return sorted(key.removeprefix(start) for key in keys if key.startswith(start))

    def delete(self, name: str) -> None:
        """Remove an object."""
        with self._words("removed", name), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._client, self._key(name))

    def below(self, name: str) -> Store:
        """Return what lies below a level."""
        return S3Store(self._bucket, self._key(name))


def _seconds(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


def _told(error: BaseException) -> str:
    """Return the first sentence; the client's further lines repeat the request."""
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else repr(error)


def open_store(location: str) -> Store:
    """Return the store at a path or ``s3://bucket/prefix``. Nothing is read or made yet.

    Raises:
        BackupError: the location has another form, or its client is missing.

    """
    try:
        check_location(location)
    except ValueError as error:
        raise BackupError("invalid_argument", str(error)) from error
    found = S3_FORM.fullmatch(location)
    if found is not None:
        return S3Store(found["bucket"], found["prefix"] or "")
    return FolderStore(pathlib.Path(location).absolute())
