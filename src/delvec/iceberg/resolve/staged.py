"""What a staging branch holds that its target does not: data files, deletes by key, vectors.

The snapshots since those that were taken over are read one by one. Where some of them have expired,
the live files of the newest one tell instead: those with a higher sequence number than what was
taken over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import SparkSession

from delvec.documents import parse_json
from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import SEPARATOR
from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata, branch_head
from delvec.iceberg.commit.marks import (
    BRANCH_SUMMARY,
    STAGING_PROPERTY,
    STAGING_SUMMARY,
    StagedProgress,
    read_progress,
)
from delvec.spark import jvm

_REPLACE: Final = "replace"
CHANGES: Final = frozenset({"added-data-files", "added-delete-files", "deleted-data-files"})
"""What the summary of a snapshot that changes something has one of."""
_NEW_BRANCH: Final = "write the changes to a new staging branch"


@dataclass(frozen=True)
class Chain:
    """The snapshots of a staging branch that wait for being taken over, oldest first."""

    snapshots: tuple[IcebergSnapshot, ...]
    # What was taken over before, if some snapshots in between have expired; else None.
    since: StagedProgress | None = None

    def first(self, count: int | None) -> Chain:
        """Return the oldest snapshots; all if they are not known one by one."""
        cut = self.snapshots if self.since is not None else self.snapshots[:count]
        return replace(self, snapshots=cut)


@dataclass(frozen=True, eq=False)
class Staged:
    """The changes of some snapshots of a staging branch, as one."""

    snapshots: tuple[IcebergSnapshot, ...]  # oldest first
    data: Mapping[str, str] = field(default_factory=dict)  # JSON of added data files by path
    deletes: tuple[str, ...] = ()  # JSON of equality deletes
    marked: tuple[str, ...] = ()  # data files of earlier snapshots that got position deletes
    marks: frozenset[str] = frozenset()  # the keys of these delete files
    removed: tuple[str, ...] = ()  # data files of earlier snapshots
    data_files: int = 0  # how many the last of the snapshots has
    rewritten: tuple[str, ...] = ()  # those of `removed` some rows of which are in new data files

    @property
    def head(self) -> IcebergSnapshot:
        return self.snapshots[-1]

    @property
    def began_ms(self) -> int:
        """When the first of them that changes something was committed."""
        changing = [each for each in self.snapshots if not CHANGES.isdisjoint(each.summary)]
        return (changing or self.snapshots)[0].timestamp_ms

    @property
    def is_empty(self) -> bool:
        """Whether the snapshots change nothing."""
        return not (self.data or self.deletes or self.marked or self.removed)


def find_unresolved(table: LoadedTable, staging: str, target: str) -> Chain:
    """Return the snapshots of a staging branch that a target has not taken over.

    Reads metadata only, and the manifests if the snapshot that both branches come from has expired.
    """
    metadata, name = table.metadata, str(table.name)
    branch_head(metadata, name, staging)
    branch_head(metadata, name, target)
    done = read_progress(metadata, target, staging)
    known = _taken_over(metadata, target, done)
    began = metadata.properties.get(STAGING_PROPERTY + staging)
    newest_first = []
    for snapshot in metadata.ancestors(staging):
        if snapshot.id in known:
            break
        newest_first.append(snapshot)
        if str(snapshot.id) == began:  # what is older was not staged
            break
    waiting = tuple(reversed(newest_first))
    if not waiting:
        return Chain(())
    _require_none_picked(table, target, waiting)
    _require_later(table, staging, waiting, done)
    _require_own(table, staging, target, waiting, done)
    first = waiting[0]
    if first.parent_id is None or first.parent_id in known:
        return Chain(waiting)
    # The empty snapshot that delvec began the branch with; it may have expired.
    if began in (str(first.id), str(first.parent_id)):
        return Chain(waiting)
    if done is not None and done.data_files:
        return Chain(waiting, done)
    if done is None and _is_next_to(table, first, target):
        return Chain(waiting)
    raise PlanError(
        f"snapshot {first.parent_id} of {name}, on branch {staging}, has expired before it was"
        f" taken over by {target}: what it changed is not known",
        hint=f"write the changes to a new branch made from {target}; resolve before snapshots"
        " expire",
    )


def read_staged(table: LoadedTable, staging: str, chain: Chain) -> Staged:
    """Read which files the snapshots of a staging branch have changed.

    The driver reads the manifests that they have written, and holds about 1 kB for each file.
    """
    java = staged_files(table.spark)
    name = str(table.name)
    with translate_errors(name):
        if chain.since is None:
            ids = SEPARATOR.join(str(each.id) for each in chain.snapshots)
            found = java.changes(table.handle, ids)
        else:
            since = chain.since.sequence_number
            found = java.live(table.handle, chain.snapshots[-1].id, since)
    changes = _Changes(table, staging)
    operations = {str(each.id): each.operation for each in chain.snapshots}
    count = 0
    for snapshot_id, tokens in _by_snapshot(found):
        is_rewrite = operations.get(snapshot_id) == _REPLACE
        if is_rewrite and changes.would_lose_marks(tokens["removed"]):
            break
        changes.apply(tokens, is_rewrite=is_rewrite)
        count += 1
        if chain.since is not None:
            count = len(chain.snapshots)
            _require_known(table, staging, chain.since, tokens)
    return changes.staged(chain.snapshots[:count])


def staged_files(spark: SparkSession) -> Any:  # noqa: ANN401
    return jvm.load_java(spark, "delvec.iceberg.resolve", "StagedFiles")


def _taken_over(metadata: TableMetadata, target: str, done: StagedProgress | None) -> set[int]:
    """Return the snapshots whose changes a target has: its own, and those that were taken over."""
    known = set()
    for snapshot in metadata.ancestors(target):
        known.add(snapshot.id)
        if snapshot.parent_id is not None:  # which may have expired
            known.add(snapshot.parent_id)
    snapshot_id = None if done is None else done.snapshot_id
    while snapshot_id is not None:
        known.add(snapshot_id)
        found = metadata.snapshots.get(snapshot_id)
        snapshot_id = None if found is None else found.parent_id
    return known


def _require_none_picked(
    table: LoadedTable, target: str, waiting: Sequence[IcebergSnapshot]
) -> None:
    """Refuse snapshots that somebody has cherry-picked: their data files would be there twice."""
    picked = {each.summary.get("source-snapshot-id") for each in table.metadata.ancestors(target)}
    for each in waiting:
        if str(each.id) in picked:
            raise PlanError(
                f"snapshot {each.id} of {table.name} was cherry-picked to {target}: its rows would"
                " be there twice",
                hint=_NEW_BRANCH,
            )


def _require_later(
    table: LoadedTable,
    staging: str,
    waiting: Sequence[IcebergSnapshot],
    done: StagedProgress | None,
) -> None:
    """Refuse snapshots that may have been taken over: older ones than the last that was.

    They are not among its ancestors as far as these are retained, so the branch was moved.
    """
    if done is None or done.snapshot_id in table.metadata.snapshots:
        return
    for each in waiting:
        if each.sequence_number <= done.sequence_number:
            raise PlanError(
                f"branch {staging} of {table.name} was moved back behind snapshot"
                f" {done.snapshot_id}, which was taken over and has expired: whether snapshot"
                f" {each.id} was taken over is not known",
                hint=_NEW_BRANCH,
            )


def _require_own(
    table: LoadedTable,
    staging: str,
    target: str,
    waiting: Sequence[IcebergSnapshot],
    done: StagedProgress | None,
) -> None:
    """Refuse snapshots that may be the target's own, some of which have expired.

    Others than delvec do not write down to which branch they have committed.
    """
    retained = list(table.metadata.ancestors(target))
    if done is not None or not retained or retained[-1].parent_id is None:
        return
    for each in waiting:
        is_marked = each.summary.get(BRANCH_SUMMARY, each.summary.get(STAGING_SUMMARY)) == staging
        if not is_marked and each.sequence_number < retained[-1].sequence_number:
            raise PlanError(
                f"snapshots of {target} of {table.name} have expired: whether snapshot {each.id},"
                f" which is older than all that are left, belongs to {target} or to {staging} alone"
                " is not known",
                hint=f"{_NEW_BRANCH}; resolve before snapshots expire",
            )


def _is_next_to(table: LoadedTable, first: IcebergSnapshot, target: str) -> bool:
    """Whether all that a snapshot has, but for what it added itself, is in the target as well.

    Then nothing was staged before it.
    """
    head = table.metadata.head(target)
    if head is None:
        return False
    with translate_errors(str(table.name)):
        found = staged_files(table.spark).earlier(table.handle, first.id)
        held = staged_files(table.spark).present(table.handle, head.id, found)
    return bool(held)


def _by_snapshot(found: str) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield the values of each snapshot by their kinds; those of no snapshot are of one."""
    parts = found.split(SEPARATOR)[:-1]
    name, values = "", defaultdict[str, list[str]](list)
    for kind, value in zip(parts[::2], parts[1::2], strict=True):
        if kind != "snapshot":
            values[kind].append(value)
            continue
        if name:
            yield name, values
        name, values = value, defaultdict(list)
    yield name, values


class _Changes:
    """Files that are added and removed, one snapshot after the other."""

    def __init__(self, table: LoadedTable, staging: str) -> None:
        self._table, self._staging = table, staging
        self._data: dict[str, str] = {}
        self._deletes: list[str] = []
        self._removed: list[str] = []
        self._rewritten: list[str] = []
        self._marks: dict[str, str | None] = {}

    def would_lose_marks(self, removed: Sequence[str]) -> bool:
        """Whether a rewrite removes data files of the target that got position deletes before.

        These are read at the last snapshot, which must have the data files still: it is one before.
        """
        is_marked = any(path not in self._data for path in self._marks.values())
        return is_marked and any(path not in self._data for path in removed)

    def apply(self, found: Mapping[str, list[str]], *, is_rewrite: bool) -> None:
        """Apply what one snapshot has changed, by kind."""
        removed = found["removed"]
        new = [path for path in removed if path in self._data]
        taken = [path for path in removed if path not in self._data]
        if is_rewrite and new and taken:
            staging = self._staging
            raise PlanError(
                f"{taken[0]}, which the target has taken over, was rewritten on branch {staging} of"
                f" {self._table.name} together with new data files: their rows cannot be told"
                " apart",
                hint=f"drop {staging}, make it again from the target, and repeat the changes;"
                " compact the target instead",
            )
        for path in new:
            del self._data[path]
        if not (is_rewrite and taken):  # whose rows the target has already
            for text in found["data"]:
                value = parse_json(text, "the entry of a staged file")
                value.pop("first-row-id", None)  # the target gives its rows ids of its own
                self._data[value["file-path"]] = json.dumps(value)
        if not is_rewrite:
            self._removed += taken
            self._rewritten += taken if found["data"] else ()
            # Those of a rewrite repeat what they were merged from.
            self._deletes += found["equality"]
        for text in found["position"]:
            value = parse_json(text, "the entry of a staged file")
            offset = value.get("content-offset")
            key = value["file-path"] if offset is None else f"{value['file-path']}@{offset}"
            self._marks[key] = value.get("referenced-data-file")

    def staged(self, snapshots: tuple[IcebergSnapshot, ...]) -> Staged:
        marks = {key: path for key, path in self._marks.items() if path not in self._data}
        head = snapshots[-1]
        marked = []
        if marks:
            java, keys = staged_files(self._table.spark), SEPARATOR.join(marks)
            with translate_errors(str(self._table.name)):
                found = java.carriers(self._table.handle, head.id, keys)
            marked = found.split(SEPARATOR)[1:-1:2]
        return Staged(
            snapshots,
            self._data,
            tuple(self._deletes),
            tuple(path for path in marked if path not in self._data),
            frozenset(marks),
            tuple(self._removed),
            head.data_file_count or 0,
            tuple(self._rewritten),
        )


def _require_known(
    table: LoadedTable, staging: str, since: StagedProgress, found: Mapping[str, list[str]]
) -> None:
    """Refuse a branch whose live files do not tell what was staged since some of it expired."""
    branch = f"branch {staging} of {table.name}"
    expired = f"snapshots of {branch} have expired before they were taken over"
    hint = f"drop {staging}, make it again from the target, and write the changes again"
    earlier, merged = found["earlier"], found["merged"]
    if earlier != [str(since.data_files)]:  # some that were taken over are gone
        raise PlanError(
            f"{expired}, and data files were removed meanwhile: expected {since.data_files}, found"
            f" {', '.join(earlier)}",
            hint=hint,
        )
    hint += "; resolve before snapshots expire"
    if not found["last"]:  # it may have begun again: files of the target would seem staged
        raise PlanError(
            f"{expired}, and nothing tells that it goes on from snapshot {since.snapshot_id}, which"
            " was",
            hint=hint,
        )
    if merged:  # from deletes that may have been taken over, and whose keys may be there again
        raise PlanError(
            f"{merged[0]} on {branch} was merged from other deletes by key, and the snapshots of"
            " these have expired: some may have been taken over before",
            hint=hint,
        )
