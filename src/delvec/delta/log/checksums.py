"""The version checksum files that some engines write beside a commit.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.delta.log.names import checksum_key
from delvec.documents import parse_json
from delvec.errors import FormatError, ObjectNotFoundError

if TYPE_CHECKING:
    from delvec.storage import Storage

__all__ = ["file_count", "read_checksum"]


def read_checksum(storage: Storage, version: int) -> dict[str, Any] | None:
    """Return a version's checksum file; None without one or if it is no JSON. One small GET."""
    try:
        text = storage.read(checksum_key(version))
    except ObjectNotFoundError:
        return None
    try:
        value = parse_json(text, "a checksum file")
    except FormatError:
        return None  # optional: an unreadable one is ignored
    return value if isinstance(value, dict) else None


def file_count(storage: Storage, version: int) -> int | None:
    """Return the number of data files by the checksum file, or None without one. One small GET."""
    count = (read_checksum(storage, version) or {}).get("numFiles")
    return count if type(count) is int else None
