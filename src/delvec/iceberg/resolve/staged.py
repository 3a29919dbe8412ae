"""What a staging branch holds that its target does not: data files, deletes by key, vectors.

The snapshots since those that were taken over are read one by one. Where some of them have expired,
the live files of the newest one tell instead: those with a higher sequence number than what was
taken over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any, Final

from delvec.documents import parse_json
from delvec.errors import PlanError
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.named_snapshots import branch_head
from delvec.iceberg.commits.marks import BRANCH_SUMMARY, STAGING_PROPERTY, STAGING_SUMMARY
from delvec.iceberg.commits.progress import resolved_until
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata
    from delvec.iceberg.commits.progress import Resolved

__all__ = ["Chain", "Staged", "read_staged", "staged_files", "waiting_snapshots"]

_SEPARATOR: Final = "\0"
_REPLACE: Final = "replace"
_CHANGES: Final = frozenset({"added-data-files", "added-delete-files", "deleted-data-files"})
_PICKED: Final = "source-snapshot-id"


@dataclass(frozen=True)
class Chain:
    """The snapshots of a staging branch that wait for being taken over, oldest first.

    Attributes:
        since: What was taken over before, if some snapshots in between have expired; else None.
    """

    snapshots: tuple[IcebergSnapshot, ...]
    since: Resolved | None = None

    def first(self, count: int | None) -> Chain:
        """Return the oldest snapshots; all if they are not known one by one."""
        cut = self.snapshots if self.since is not None else self.snapshots[:count]
        return replace(self, snapshots=cut)


@dataclass(frozen=True, eq=False)
class Staged:
    """The changes of some snapshots of a staging branch, as one.

    Attributes:
        snapshots: The snapshots, oldest first.
        data: Data files to be added: JSON objects by path.
        deletes: JSON objects of equality deletes.
        marked: Data files of earlier snapshots that got position deletes, and the keys of these
            delete files.
        removed: Data files of earlier snapshots that were removed.
        rewritten: Those of them some rows of which are in new data files.
        data_files: How many data files the last of the snapshots has.
    """

    snapshots: tuple[IcebergSnapshot, ...]
    data: Mapping[str, str] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    removed: tuple[str, ...] = ()
    data_files: int = 0
    rewritten: tuple[str, ...] = ()

    @property
    def head(self) -> IcebergSnapshot:
        """The last of the snapshots."""
        return self.snapshots[-1]

    @property
    def began_ms(self) -> int:
        """When the first of them that changes something was committed."""
        changing = [each for each in self.snapshots if not _CHANGES.isdisjoint(each.summary)]
        return (changing or self.snapshots)[0].timestamp_ms

    @property
    def is_empty(self) -> bool:
        """Whether the snapshots change nothing."""
        return not (self.data or self.deletes or self.marked or self.removed)


def waiting_snapshots(table: LoadedTable, staging: str, target: str) -> Chain:
    """Return the snapshots of a staging branch that a target has not taken over.

    Reads metadata only, and the manifests if the snapshot that both branches come from has expired.

    Raises:
        InvalidArgumentError: There is no such branch.
        PlanError: It cannot be told what was taken over: snapshots have expired, or some were
            cherry-picked.
    """
    metadata, name = table.metadata, str(table.name)
    branch_head(metadata, name, staging)
    branch_head(metadata, name, target)
    done = resolved_until(metadata, target, staging)
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


def _taken_over(metadata: TableMetadata, target: str, done: Resolved | None) -> set[int]:
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
    picked = {each.summary.get(_PICKED) for each in table.metadata.ancestors(target)}
    for each in waiting:
        if str(each.id) in picked:
            raise PlanError(
                f"snapshot {each.id} of {table.name} was cherry-picked to {target}: its rows would"
                " be there twice",
                hint="write the changes to a new staging branch",
            )


def _require_later(
    table: LoadedTable, staging: str, waiting: Sequence[IcebergSnapshot], done: Resolved | None
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
                hint="write the changes to a new staging branch",
            )


def _require_own(
    table: LoadedTable,
    staging: str,
    target: str,
    waiting: Sequence[IcebergSnapshot],
    done: Resolved | None,
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
                hint="write the changes to a new staging branch; resolve before snapshots expire",
            )


def _is_next_to(table: LoadedTable, first: IcebergSnapshot, target: str) -> bool:
    """Whether all that a snapshot has, but for what it added itself, is in the target as well.

    Then nothing was staged before it.
    """
    head = table.metadata.head(target)
    if head is None:
        return False
    with explained(str(table.name)):
        found = staged_files(table.spark).earlier(table.handle, first.id)
        held = staged_files(table.spark).present(table.handle, head.id, found)
    return bool(held)


def read_staged(table: LoadedTable, staging: str, chain: Chain) -> Staged:
    """Read which files the snapshots of a staging branch have changed.

    The driver reads the manifests that they have written, and holds about 1 kB for each file.

    Raises:
        PlanError: Data files that the target has taken over were rewritten together with others, or
            removed by snapshots that have expired; or deletes by key were merged by such.
    """
    java = staged_files(table.spark)
    name = str(table.name)
    with explained(name):
        if chain.since is None:
            ids = _SEPARATOR.join(str(each.id) for each in chain.snapshots)
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
            _require_all_kept(table, staging, chain.since, tokens["earlier"])
            _require_continued(table, staging, chain.since, tokens["last"])
            _require_none_merged(table, staging, tokens["merged"])
    return changes.staged(chain.snapshots[:count])


def _by_snapshot(found: str) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield the values of each snapshot by their kinds; those of no snapshot are of one."""
    parts = found.split(_SEPARATOR)[:-1]
    name, values = "", defaultdict[str, list[str]](list)
    for kind, value in zip(parts[::2], parts[1::2], strict=True):
        if kind != "snapshot":
            values[kind].append(value)
            continue
        if name:
            yield name, values
        name, values = value, defaultdict(list)
    yield name, values


def staged_files(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return an instance of `StagedFiles.java`, compiled once per JVM."""
    cache = jvm.cache(spark)
    if "staged files" not in cache:
        source = package_files("delvec.iceberg.resolve").joinpath("StagedFiles.java").read_text()
        [constructor] = jvm.compiled(spark, "delvec.StagedFiles", source).getConstructors()
        no_arguments = jvm.array_of(spark, jvm.view_of(spark).java.lang.Object, [])
        cache["staged files"] = constructor.newInstance(no_arguments)
    return cache["staged files"]


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
            self._refuse_mixed(taken[0])
        for path in new:
            del self._data[path]
        if not (is_rewrite and taken):  # whose rows the target has already
            self._add_data(found["data"])
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

    def _add_data(self, texts: Sequence[str]) -> None:
        for text in texts:
            value = parse_json(text, "the entry of a staged file")
            value.pop("first-row-id", None)  # the target gives its rows ids of its own
            self._data[value["file-path"]] = json.dumps(value)

    def _refuse_mixed(self, path: str) -> None:
        raise PlanError(
            f"{path}, which the target has taken over, was rewritten on branch {self._staging} of"
            f" {self._table.name} together with new data files: their rows cannot be told apart",
            hint=f"drop {self._staging}, make it anew from the target, and write the changes again;"
            " compact the target instead",
        )

    def staged(self, snapshots: tuple[IcebergSnapshot, ...]) -> Staged:
        marks = {key: path for key, path in self._marks.items() if path not in self._data}
        head = snapshots[-1]
        marked = _carriers(self._table, head.id, list(marks)) if marks else ()
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


def _carriers(table: LoadedTable, snapshot_id: int, keys: Sequence[str]) -> tuple[str, ...]:
    with explained(str(table.name)):
        found = staged_files(table.spark).carriers(table.handle, snapshot_id, _SEPARATOR.join(keys))
    return tuple(_values(found))


def _values(found: str) -> Iterator[str]:
    return iter(found.split(_SEPARATOR)[1:-1:2])


def _require_continued(
    table: LoadedTable, staging: str, since: Resolved, last: Sequence[str]
) -> None:
    """Refuse a branch that may have begun anew since: files of the target would seem staged."""
    if not last:
        raise PlanError(
            f"snapshots of branch {staging} of {table.name} have expired before they were taken"
            f" over, and nothing tells that it goes on from snapshot {since.snapshot_id}, which"
            " was",
            hint=f"drop {staging}, make it anew from the target, and write the changes again;"
            " resolve before snapshots expire",
        )


def _require_none_merged(table: LoadedTable, staging: str, paths: Sequence[str]) -> None:
    """Refuse deletes that may repeat some that were taken over: their keys may be there again."""
    if paths:
        raise PlanError(
            f"{paths[0]} on branch {staging} of {table.name} was merged from other deletes by key,"
            " and the snapshots of these have expired: some may have been taken over before",
            hint=f"drop {staging}, make it anew from the target, and write the changes again;"
            " resolve before snapshots expire",
        )


def _require_all_kept(
    table: LoadedTable, staging: str, since: Resolved, earlier: Sequence[str]
) -> None:
    """Refuse if data files that were taken over are gone from the staging branch."""
    if earlier != [str(since.data_files)]:
        raise PlanError(
            f"snapshots of branch {staging} of {table.name} have expired before they were taken"
            f" over, and data files were removed meanwhile: expected {since.data_files}, found"
            f" {', '.join(earlier)}",
            hint=f"drop {staging}, make it anew from the target, and write the changes again",
        )
