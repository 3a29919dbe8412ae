"""What of a table can be repaired for certain: repairs bring no deleted row back, and lose none.

    finding                             repair
    vector in the log, in the table     stored again as an ordinary vector of the same rows
      by an absolute path, no offset
    no numRecords beside a vector       added, from the footer
    wrong numRecords, wrong bounds      computed again from the live rows
    vectors without the table feature   the feature is added: readers without it show deleted rows
    a file live twice, with the same    one of the entries is removed
      deleted rows, partition and ids
    no hint at the newest checkpoint    written
    a checkpoint that cannot be read,   renamed, so that readers go by the commits; a new one is
      and all commits that it covers      written

Nothing is done about what is gone. To drop the entry of a missing data file loses its rows, and to
drop a missing vector brings deleted rows back. Nor is it certain which rows are meant where one
file is live with two vectors of different rows.

One commit; memory grows with the entries and vectors that it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.alter.table_state import add_features
from delvec.delta.check.entries import find_duplicates, hides_vectors
from delvec.delta.check.report import Repair
from delvec.delta.check.vectors import odd_form
from delvec.delta.log.file_set import DataFile, FileEntry, FileSet
from delvec.delta.log.segment import Checkpoint
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.maintain.available_files import add_again
from delvec.delta.maintain.recompute_statistics import compute_statistics, measured_columns
from delvec.delta.read.data_file import open_data_file
from delvec.delta.read.footer_statistics import row_count
from delvec.delta.read.vectors import load_vector
from delvec.delta.schema.protocol import Protocol
from delvec.delta.skipping.statistics import statistics_json, widen_bounds
from delvec.delta.write.change import Change, Operation, VectorUpdate
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import DelvecError
from delvec.storage.backend import is_absolute
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

OPERATION: Final = "FSCK REPAIR"
"""The name of repairs in the history."""
_AT_ONCE: Final = 8
_ASIDE: Final = ".damaged"
_IDS: Final = ("baseRowId", "defaultRowCommitVersion")
_DAMAGE: Final = (DelvecError, pa.ArrowException, UnicodeDecodeError)
_MESSAGES: Final = {
    "remove-duplicate": "a data file is live twice, with the same deleted rows: one entry is"
    " removed",
    "rewrite-vector": "a deletion vector has a form that other engines trip over: it is stored"
    " again with the same rows",
    "add-row-count": "a file with a deletion vector has no numRecords: it is added from the footer",
    "replace-statistics": "statistics are wrong: they are computed again from the live rows",
    "add-feature": "the protocol does not demand deletionVectors: the feature is added",
}


def set_aside(snapshot: Snapshot, checkpoints: Sequence[Checkpoint]) -> None:
    """Give the files of checkpoints names that no reader knows.

    Each is copied and then deleted, so that after a crash the next repair goes on. Memory grows
    with the largest of them.
    """
    require_writable(snapshot, "vacuum")
    storage, keys = snapshot.storage, [key for each in checkpoints for key in each.keys]
    for key in keys:
        storage.write(f"{key}{_ASIDE}", storage.read(key))
    storage.delete(keys)


@dataclass
class RepairPlan:
    """What one commit repairs; `kinds` are the kind of repair and the path, for each file."""

    removed: list[FileEntry] = field(default_factory=list)
    updates: list[VectorUpdate] = field(default_factory=list)
    re_added: list[dict[str, Any]] = field(default_factory=list)
    protocol: Protocol | None = None
    kinds: list[tuple[str, str]] = field(default_factory=list)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs, one for each kind."""
        counts = Counter(kind for kind, _ in self.kinds)
        first = dict(reversed(self.kinds))
        return tuple(
            Repair(kind, message, counts[kind] if first[kind] else 0, first[kind])
            for kind, message in _MESSAGES.items()
            if kind in counts
        )

    @property
    def change(self) -> Change | None:
        """The change to commit; None if there is nothing to do. No row changes."""
        if not self.kinds:
            return None
        metrics = {
            "numVectorsRewritten": len(self.updates),
            "numEntriesRemoved": len(self.removed),
            "numStatisticsReplaced": len(self.re_added),
        }
        parameters = {"repairs": {each.kind: each.files for each in self.repairs}}
        return Change(
            Operation(OPERATION, parameters, metrics),
            vector_updates=tuple(self.updates),
            removed=tuple(self.removed),
            re_added=tuple(self.re_added),
            protocol=self.protocol,
            data_change=False,
        )


def repairs(stale: Collection[str]) -> Callable[[Attempt], Outcome]:
    def prepare(attempt: Attempt) -> Outcome:
        require_writable(attempt.snapshot, "alter")
        with attempt.phase("plan"):
            return Outcome(plan_repairs(attempt.snapshot, stale).change)

    return prepare


def plan_repairs(snapshot: Snapshot, stale: Collection[str]) -> RepairPlan:
    files, plan = snapshot.all_entries(), RepairPlan()
    twice = find_duplicates(files)
    for indexes in twice.values():
        _remove_duplicates(snapshot, files, indexes, plan)
    several = {index for indexes in twice.values() for index in indexes}
    numbers = [index for index in _candidates(files, stale) if index not in several]
    if numbers:
        _re_add(snapshot, files, numbers, stale, plan)
    if len(files.vectors.drop_null()) and hides_vectors(snapshot.protocol):
        plan.protocol = add_features(snapshot.protocol, ["deletionVectors"])
        plan.kinds.append(("add-feature", ""))
    return plan


def _remove_duplicates(
    snapshot: Snapshot, files: FileSet, indexes: list[int], plan: RepairPlan
) -> None:
    """Keep one entry of a file that is live several times, if all tell the same of its rows."""
    entries = files.entries(indexes)
    try:
        vectors = [load_vector(snapshot.storage, e.path, e.descriptor) for e in entries]
        plain = [
            not is_absolute(e.path)
            and (e.descriptor is None or odd_form(e.descriptor, snapshot.table) is None)
            for e in entries
        ]
    except _DAMAGE:
        return
    # Which of two partitions or row ids is right, nobody can tell.
    told = [
        [e.add.get("partitionValues") or {}, *(e.add.get(name) for name in _IDS)] for e in entries
    ]
    if all(each == vectors[0] for each in vectors) and all(each == told[0] for each in told):
        kept = plain.index(True) if True in plain else 0
        gone = [entry for number, entry in enumerate(entries) if number != kept]
        plan.removed += gone
        plan.kinds += [("remove-duplicate", entry.path) for entry in gone]


def _candidates(files: FileSet, stale: Collection[str]) -> list[int]:
    """Return the numbers of files with a vector of an odd form, without a count, or stale."""
    kind, offset = (pc.struct_field(files.vectors, [name]) for name in ("storageType", "offset"))
    has_vector = files.vectors.is_valid()
    doubtful = pc.or_(pc.fill_null(pc.not_equal(kind, "u"), True), offset.is_null())
    doubtful = pc.or_(doubtful, files.row_counts.is_null())
    is_stale = pc.is_in(files.paths, value_set=pa.array(list(stale), pa.string()))
    chosen = pc.or_(pc.and_(has_vector, doubtful), is_stale)
    return np.flatnonzero(chosen.to_numpy(zero_copy_only=False)).tolist()


def _re_add(
    snapshot: Snapshot, files: FileSet, numbers: list[int], stale: Collection[str], plan: RepairPlan
) -> None:
    wrong = frozenset(stale)

    def prepare(entry: FileEntry) -> _ReAdd | None:
        try:
            return _ReAdd.of(snapshot, entry, is_stale=entry.path in wrong)
        except _DAMAGE:
            return None  # the data file or the vector is damaged, which is another finding

    for each in filter(None, gather(prepare, files.entries(numbers), _AT_ONCE)):
        each.add_to(plan)


@dataclass(frozen=True)
class _ReAdd:
    """A file whose entry is written again, with what is right about it."""

    entry: FileEntry
    vector: Bitmap | None
    is_odd: bool
    why: str | None

    @classmethod
    def of(cls, snapshot: Snapshot, entry: FileEntry, *, is_stale: bool) -> _ReAdd:
        storage, descriptor = snapshot.storage, entry.descriptor
        # Without the row count of the log, which may be wrong.
        file = DataFile(entry.path, int(entry.add.get("size") or 0), {}, descriptor, None, 0)
        is_odd = descriptor is not None and odd_form(descriptor, snapshot.table) is not None
        vector = None if descriptor is None else load_vector(storage, file.path, descriptor)
        if is_stale:
            why, text = "replace-statistics", _live_statistics(snapshot, file, vector)
        elif descriptor is not None and entry.rows is None:
            place, key = open_listed_file(storage, file.path)
            why = "add-row-count"
            text = widen_bounds(entry.add.get("stats"), row_count(place, key, file.size), 0)
        else:
            return cls(entry, vector, is_odd, None)
        return cls(FileEntry(entry.path, {**entry.add, "stats": text}), vector, is_odd, why)

    def add_to(self, plan: RepairPlan) -> None:
        """Add the repair to a plan; vectors of no rows or of all rows are left alone."""
        rows = self.entry.rows or 0
        path = self.entry.path
        is_storable = self.vector is not None and 0 < self.vector.cardinality < rows
        if self.is_odd and is_storable:
            plan.updates.append(VectorUpdate(self.entry, rows, self.vector))
            plan.kinds.append(("rewrite-vector", path))
        elif self.why is not None:
            plan.re_added.append(add_again(self.entry, data_change=False))
        if self.why is not None:
            plan.kinds.append((self.why, path))


def _live_statistics(snapshot: Snapshot, file: DataFile, vector: Bitmap | None) -> str:
    metadata = snapshot.metadata
    schema, mode = measured_columns(metadata), metadata.mapping_mode
    with open_data_file(snapshot.storage, file, schema, mapping_mode=mode) as data:
        found = compute_statistics(data, vector, metadata, tight_bounds=vector is not None)
    return statistics_json(found)
