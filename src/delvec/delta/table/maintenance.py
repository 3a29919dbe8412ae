"""Maintenance of a Delta table: commands that keep it fast and change none of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from delvec.calls import explained_calls
from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.table.handle import TableHandle
from delvec.delta.write.options import WriteOptions

__all__ = ["TableMaintenance"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableMaintenance(TableHandle):
    """The maintenance commands of a table."""

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version and return its number.

        A snapshot is opened from the newest checkpoint and the commits after it, so opening this
        version takes less time. Every commit writes a checkpoint by itself where
        `delta.checkpointInterval` says that one is due.
        """
        snapshot = self.snapshot()
        write_checkpoint(snapshot)
        return snapshot.version
