"""The inspection of an Iceberg table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.table.handle import TableHandle
from delvec.iceberg.table.inspected import inspected

if TYPE_CHECKING:
    from datetime import datetime

    from delvec.inspection.report import InspectReport

__all__ = ["TableInspection"]


@explained_calls()
@dataclass(frozen=True)
class TableInspection(TableHandle):
    """The inspection of a table."""

    def inspect(
        self,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        branch: str | None = None,
        tag: str | None = None,
        history: int = 100,
        listing: bool | None = None,
    ) -> InspectReport:
        """Tell at a glance what the table is made of, and what to run next.

            report = t.inspect()
            print(report)
            report.write_html("report.html")    # one page with charts, without the network

        One job reads the manifests of the snapshot; no data file and no delete is opened. Memory
        grows with the files of the snapshot, some 750 bytes each. The state after earlier snapshots
        is what their summaries say.

        What older snapshots alone keep, the manifests of all retained snapshots tell. By default
        they are read if there are no more than 100 snapshots. Orphan files are not looked for.

        Args:
            snapshot_id: The snapshot; the newest of the branch by default. Older ones get no
                advice.
            timestamp: Instead: a time; the snapshot that was the branch's newest then.
            branch: The branch; `main` by default.
            tag: Instead of all these: a tag.
            history: How many of the newest snapshots are looked at.
            listing: Whether to read the manifests of all snapshots; None as said above.

        Raises:
            InvalidArgumentError: There is no such snapshot, branch or tag, or `history` is
                negative.
        """
        if history < 0:
            raise InvalidArgumentError(f"history is a number of snapshots, got {history}")
        table = self._load()
        snapshot = self._snapshot(table, branch, snapshot_id, timestamp, tag)
        at_head = snapshot_id is None and timestamp is None and tag is None
        named = (branch or MAIN) if at_head else None
        return inspected(table, snapshot, named, history=history, listing=listing)
