"""The checksum files that some engines write beside a commit.

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
    """Tell how many data files a version has; None if nobody wrote it down. One small GET."""
    try:
        text = storage.read(f"_delta_log/{version:020d}.crc")
    except ObjectNotFoundError:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None  # it is there to help: one that cannot be read says nothing
    count = value.get("numFiles") if isinstance(value, dict) else None
    return count if type(count) is int else None
