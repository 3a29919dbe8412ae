"""Branches and tags that conversions make: staging branches, and a tag for each version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from delvec.conversion.planning.progress import SOURCE_ID, SOURCE_VERSION

if TYPE_CHECKING:
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = [
    "is_staging_branch",
    "is_version_tag",
    "new_staging_branch",
    "stale_branches",
    "version_tag",
]

_STAGING: Final = "delvec-convert-"
_STAGED: Final = re.compile(_STAGING + "[0-9a-f]{32}")
_TAG: Final = "delta-version-"
_DAY_MS: Final = 24 * 3600 * 1000


def new_staging_branch() -> str:
    """Return a name for a branch that snapshots are staged on."""
    return _STAGING + uuid4().hex


def version_tag(version: int) -> str:
    """Return the tag of the snapshot that holds a version of the source."""
    return f"{_TAG}{version}"


def is_version_tag(metadata: TableMetadata, name: str) -> bool:
    """Tell whether a conversion made a ref: a tag with the version of its snapshot in its name."""
    ref = metadata.refs[name]
    version = metadata.snapshots[ref.snapshot_id].summary.get(SOURCE_VERSION)
    return not ref.is_branch and version is not None and name == f"{_TAG}{version}"


def is_staging_branch(metadata: TableMetadata, name: str) -> bool:
    """Tell whether a conversion made a ref to stage snapshots on, by its name and its head."""
    ref = metadata.refs[name]
    is_ours = SOURCE_ID in metadata.snapshots[ref.snapshot_id].summary
    return ref.is_branch and is_ours and _STAGED.fullmatch(name) is not None


def stale_branches(metadata: TableMetadata, now_ms: int) -> list[str]:
    """Return the staging branches of conversions that died: more than a day old, unpublished.

    Args:
        metadata: Of the target.
        now_ms: The time by the clock of whoever asks; the day is also for clocks that differ.
    """
    return [
        name
        for name, ref in metadata.refs.items()
        if is_staging_branch(metadata, name)
        and metadata.snapshots[ref.snapshot_id].timestamp_ms < now_ms - _DAY_MS
    ]
