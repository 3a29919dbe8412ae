"""What follows a commit: a checkpoint if one is due, the symlink manifest if it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.log.symlink_manifest import write_manifests
from delvec.delta.schema.properties import CHECKPOINT_INTERVAL, SYMLINK_MANIFEST
from delvec.documents import whole_number
from delvec.errors import DelvecError

if TYPE_CHECKING:
    from delvec.delta.schema.metadata import Metadata
    from delvec.storage import Storage

__all__ = ["after_commit", "checkpoint_interval"]

_CHECKPOINT_INTERVAL: Final = 10


def after_commit(storage: Storage, version: int, metadata: Metadata) -> tuple[str, ...]:
    """Write the checkpoint and the symlink manifest that are due; return notes on failures.

    The commit is valid whatever happens here, so a failure is noted and not raised.
    """
    notes = []
    due = version > 0 and version % checkpoint_interval(metadata) == 0
    for wanted, what, write in (
        (due, "the checkpoint", write_checkpoint),
        (metadata.is_on(SYMLINK_MANIFEST), "the symlink manifest", write_manifests),
    ):
        if not wanted:
            continue
        try:
            write(open_snapshot(storage, version))
        except Exception as error:  # noqa: BLE001 - noted in the report: the commit is done
            reason = error.describe() if isinstance(error, DelvecError) else repr(error)
            notes.append(f"{what} of version {version} was not written: {reason}")
    return tuple(notes)


def checkpoint_interval(metadata: Metadata) -> int:
    """Return after how many commits a table wants a checkpoint."""
    return whole_number(metadata.configuration.get(CHECKPOINT_INTERVAL)) or _CHECKPOINT_INTERVAL
