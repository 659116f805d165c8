"""The form of a place where backups lie."""

from __future__ import annotations

import re

__all__ = ["S3_FORM", "check_location"]

S3_FORM = re.compile(r"s3://(?P<bucket>[^/]{3,})(/(?P<prefix>.*))?")


def check_location(location: str) -> str:
    """Return the location, or say what is wrong with it.

    Raises:
        ValueError: neither a path nor ``s3://bucket/prefix``.

    """
    if not location.strip():
        raise ValueError("is empty; expected a path or s3://bucket/prefix")
    if "://" in location and S3_FORM.fullmatch(location) is None:
        raise ValueError(f"'{location}': expected a path or s3://bucket/prefix")
    return location
