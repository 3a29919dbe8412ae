"""The version checksum files that some engines write beside a commit.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delvec.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from delvec.storage import Storage

__all__ = ["file_count"]


def file_count(storage: Storage, version: int) -> int | None:
    """Return the number of data files by the checksum file, or None without one. One small GET."""
    try:
        text = storage.read(f"_delta_log/{version:020d}.crc")
    except ObjectNotFoundError:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None  # optional: an unreadable one is ignored
    count = value.get("numFiles") if isinstance(value, dict) else None
    return count if type(count) is int else None
