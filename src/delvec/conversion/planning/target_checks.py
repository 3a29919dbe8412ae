"""Whether a target can be continued: whose it is, who else has changed it, what it was reset to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.conversion.planning.commit_facts import commit_facts
from delvec.conversion.planning.progress import SOURCE_ID, SOURCE_VERSION, source_id
from delvec.conversion.planning.target_files import list_target_files, without_ids
from delvec.conversion.planning.target_layout import layout_changes
from delvec.documents import whole_number
from delvec.errors import PlanError
from delvec.report.wordings import Wording, worded

if TYPE_CHECKING:
    from delvec.conversion.options import Foreign
    from delvec.conversion.planning.progress import Progress
    from delvec.conversion.planning.target import Target
    from delvec.conversion.planning.target_layout import LayoutChanges
    from delvec.delta.log.snapshot import Snapshot
    from delvec.iceberg.client.catalog import LoadedTable

__all__ = [
    "ForeignChanges",
    "documentation_note",
    "foreign_changes",
    "foreign_note",
    "is_another_history",
    "require_same_source",
    "rollback_note",
]


def require_same_source(target: Target, source: Snapshot) -> None:
    """Refuse a target that was not converted from this source.

    Raises:
        PlanError: With what the target was made from.
    """
    expected = source_id(source.metadata, source.table)
    found = target.properties.get(SOURCE_ID)
    if found != expected:
        origin = f"was made from table {found}" if found else "was not made by a conversion"
        raise PlanError(
            f"{target.name} {origin}, not from {source.table} ({expected})",
            hint="convert into another table, or drop that one first",
        )


@dataclass(frozen=True)
class ForeignChanges:
    """What others have changed of a target since the last conversion.

    Attributes:
        files: Whether they added or removed files or deletes.
        layout: What they changed of its columns and partitions.
    """

    files: bool
    layout: LayoutChanges

    @property
    def what(self) -> str:
        """What they changed, as an error names it; empty if they changed nothing."""
        parts = {
            "files": self.files,
            "columns": bool(self.layout.columns),
            "the partition spec": bool(self.layout.partitions),
        }
        return " and ".join(name for name, changed in parts.items() if changed)


def foreign_changes(table: LoadedTable, progress: Progress | None) -> ForeignChanges:
    """Return what others have changed since the last conversion.

    Lists the files of two snapshots if the newest one is not a conversion's.
    """
    layout = layout_changes(table.metadata)
    if table.metadata.head() is None or (progress is not None and progress.is_head):
        return ForeignChanges(files=False, layout=layout)
    files = progress is None or not _same_files_since(table, progress)
    return ForeignChanges(files=files, layout=layout)


def documentation_note(table: LoadedTable) -> tuple[str, ...]:
    """Return a note if others changed comments or the order of columns, which are set again."""
    if not layout_changes(table.metadata).is_documented:
        return ()
    return (f"comments or the order of columns of {table.name} were changed: taken back",)


def _same_files_since(table: LoadedTable, progress: Progress) -> bool:
    """Tell whether commits after the last conversion left all files and deletes as they were."""
    head = table.metadata.head()
    if head is None:
        return False
    now, then = (
        list_target_files(table, snapshot_id, None, without_ids)
        for snapshot_id in (head.id, progress.snapshot.id)
    )
    return now.same_files(then)


def foreign_note(
    table: LoadedTable, progress: Progress | None, changes: ForeignChanges, foreign: Foreign
) -> str:
    """Return a note that changes of others are overwritten.

    Raises:
        PlanError: They are to be refused, or cannot be taken back. The error names them.
    """
    since = "" if progress is None else f" since version {progress.version} was converted"
    message = f"others have changed {changes.what} of {table.name}{since}"
    details = "; ".join((*changes.layout.columns, *changes.layout.partitions))
    if foreign == "refuse":
        raise PlanError(
            f"{message}: {details}" if details else message,
            hint=worded(
                "their changes are lost if you pass {}: the target then gets what the source says",
                Wording("foreign='overwrite'", "--overwrite-foreign"),
            ),
        )
    if changes.layout.lasting:
        raise PlanError(
            f"{message}, which cannot be taken back: {'; '.join(changes.layout.lasting)}",
            hint=f"drop {table.name} without PURGE and convert anew",
        )
    note = f"{message}: taken back" + (f" ({details})" if details else "")
    if changes.layout.added:
        note += f"; dropped with all values: {', '.join(map(repr, changes.layout.added))}"
    return note


def is_another_history(source: Snapshot, progress: Progress) -> bool:
    """Tell whether the converted version of the source was replaced by another commit since.

    A source that was restored from a copy counts on from an older version.
    """
    if progress.transaction_id is None or progress.version > source.version:
        return False
    now = commit_facts(source, progress.version).transaction_id
    return now is not None and now != progress.transaction_id


def rollback_note(target: Target, progress: Progress | None) -> tuple[str, ...]:
    """Return a note if the target was rolled back to an older snapshot."""
    newest = whole_number(target.properties.get(SOURCE_VERSION))
    if progress is None or newest is None or newest <= progress.version:
        return ()
    return (f"{target.name} was rolled back from version {newest} to {progress.version}",)
