"""One step of a plan: the action for each data file that makes the target equal to a version.

One function for full and incremental conversions: given all files it repairs any target, given the
files that some commits touched its cost grows with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.conversion.files.copies import resolve_paths
from delvec.conversion.files.vector_places import planned_keys
from delvec.conversion.planning.source_changes import CommitFacts
from delvec.conversion.planning.target_files import NO_FILES, TargetFiles
from delvec.conversion.schema.iceberg_schema import TargetSchema
from delvec.conversion.schema.partition_spec import PartitionSpec
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.replay import vector_ids
from delvec.errors import PlanError
from delvec.vector.frame import FRAME_OVERHEAD

Action: TypeAlias = Literal["add", "remove", "keep", "vector-add", "vector-replace", "vector-drop"]
ACTIONS: Final[tuple[Action, ...]] = (
    "add",
    "remove",
    "keep",
    "vector-add",
    "vector-replace",
    "vector-drop",
)
_ADD, _REMOVE, _KEEP, _VECTOR_ADD, _VECTOR_REPLACE, _VECTOR_DROP = range(len(ACTIONS))
PLAN_SCHEMA: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("path", pa.string()),
        ("action", pa.string()),
        ("old_vector", pa.string()),
        ("new_vector", pa.string()),
        ("rows", pa.int64()),
        ("deleted_rows", pa.int64()),
        ("bytes", pa.int64()),
        ("vector_bytes", pa.int64()),
    ]
)


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """What brings the target to a version of the source."""

    facts: CommitFacts
    mode: Literal["full", "incremental"]  # compared all files, or those that commits touched
    schema: TargetSchema
    spec: PartitionSpec
    files: FileSet  # of the source that were compared
    paths: pa.Array  # of these in the target; of new copies the planned ones
    copied: NDArray[np.bool_]  # instead of shared
    row_counts: NDArray[np.int64]  # physical
    before: TargetFiles  # before this step, of those that were compared
    difference: Difference
    wider: tuple[str, ...] = ()  # columns with a wider type in the target, described

    @property
    def version(self) -> int:
        return self.facts.version

    @cached_property
    def vector_rows(self) -> NDArray[np.int64]:
        """Indexes of the files whose vector is written: new files with one, and changed ones."""
        added = self.difference.added
        fresh = added[self.files.has_vector[added]]
        return np.union1d(fresh, self.difference.new_vectors)

    @cached_property
    def deleted(self) -> NDArray[np.int64]:
        return np.where(self.files.has_vector, self.files.deleted_rows, 0)

    @cached_property
    def vector_ids(self) -> pa.Array:
        """Delta's unique id of each vector; null without one."""
        return vector_ids_of(self.files)

    @cached_property
    def vector_sizes(self) -> NDArray[np.int64]:
        """Bytes of each vector with its frame; 0 without one."""
        sizes = pc.fill_null(pc.struct_field(self.files.vectors, "sizeInBytes"), 0)
        framed = sizes.to_numpy().astype(np.int64) + FRAME_OVERHEAD
        return np.where(self.files.has_vector, framed, 0)

    def resolved(self, location: str, run: str) -> PlannedStep:
        """Return the step with the names of new copies, see `copies.resolve_paths`."""
        return replace(
            self,
            paths=resolve_paths(self.paths, location, run),
            before=self.before.resolved(location, run),
        )

    def files_after(self) -> TargetFiles:
        """Return the target's files after this step, of those that were compared."""
        places, codes = self.difference.places, self.difference.codes
        stays = np.ones(len(self.before), dtype=np.bool_)
        stays[self.difference.gone] = False
        stays[places[places >= 0]] = False
        kept = pa.array(codes == ACTIONS.index("keep"))
        at = pa.array(places, mask=places < 0)
        planned = pc.if_else(
            pa.array(self.files.has_vector), planned_keys(self.paths), pa.scalar(None, pa.string())
        )
        keys = pc.if_else(kept, self.before.keys.take(at), planned)
        ids = pc.if_else(kept, self.before.ids.take(at), self.vector_ids)
        compared = TargetFiles(
            self.paths, self.row_counts, self.files.sizes, self.deleted, keys, ids, NO_FILES.strays
        )
        return self.before.select(stays).joined(compared)

    def to_arrow(self) -> pa.Table:
        places, gone = self.difference.places, self.difference.gone
        at = pa.array(places, mask=places < 0)
        actions = pa.array(ACTIONS).take(pa.array(self.difference.codes))
        compared = pa.table(
            [
                pa.nulls(len(self.paths), pa.int64()).fill_null(self.version),
                self.paths,
                actions,
                self.before.ids.take(at),
                self.vector_ids,
                pa.array(self.row_counts),
                pa.array(self.deleted),
                pa.array(self.files.sizes),
                pa.array(self.vector_sizes),
            ],
            schema=PLAN_SCHEMA,
        )
        zeros = np.zeros(len(gone), dtype=np.int64)
        removed = pa.table(
            [
                pa.array(zeros + self.version),
                self.before.paths.take(pa.array(gone)),
                pa.array(["remove"] * len(gone), pa.string()),
                self.before.ids.take(pa.array(gone)),
                pa.nulls(len(gone), pa.string()),
                pa.array(self.before.rows[gone]),
                pa.array(self.before.deleted[gone]),
                pa.array(self.before.sizes[gone]),
                pa.array(zeros),
            ],
            schema=PLAN_SCHEMA,
        )
        return pa.concat_tables([compared, removed])


@dataclass(frozen=True, eq=False)
class Difference:
    """The actions for files of the source, and the files of the target to remove."""

    codes: NDArray[np.int8]  # of each file of the source, the index of its action in `ACTIONS`
    places: NDArray[np.int64]  # of each, its index among the target's files; -1 for a new one
    gone: NDArray[np.int64]  # indexes of the target's files that the source does not have

    @property
    def added(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.codes == _ADD)

    @property
    def new_vectors(self) -> NDArray[np.int64]:
        """Indexes of the source's files that the target has and that get a new vector."""
        return np.flatnonzero((self.codes == _VECTOR_ADD) | (self.codes == _VECTOR_REPLACE))

    @property
    def old_vectors(self) -> NDArray[np.int64]:
        """Indexes of the target's files that stay while their vector is removed."""
        stale = (self.codes == _VECTOR_REPLACE) | (self.codes == _VECTOR_DROP)
        places: NDArray[np.int64] = self.places[stale]
        return places

    def count(self, action: Action) -> int:
        if action == "remove":
            return len(self.gone)
        return int((self.codes == ACTIONS.index(action)).sum())


def diff_files(
    paths: pa.Array, has_vector: NDArray[np.bool_], ids: Sequence[pa.Array], target: TargetFiles
) -> Difference:
    for whose, files in (("source", paths), ("target", target.paths)):
        counts = pc.value_counts(files)
        twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))
        if len(twice):
            raise PlanError(
                f"the {whose} has a data file twice: {twice[0]['values'].as_py()}",
                hint="let the engine that wrote it repair the table",
            )
    at = pc.index_in(paths, value_set=target.paths)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    there = places >= 0
    had = np.zeros(len(paths), dtype=np.bool_)
    had[there] = target.keys.is_valid().to_numpy(zero_copy_only=False)[places[there]]
    found = target.ids.take(pa.array(places, mask=~there))
    equal = np.zeros(len(paths), dtype=np.bool_)
    for column in ids:  # one of which is the one that was found
        equal |= pc.fill_null(pc.equal(column, found), False).to_numpy(zero_copy_only=False)
    codes = np.full(len(paths), _ADD, dtype=np.int8)
    codes[there & has_vector & had] = _VECTOR_REPLACE
    codes[there & has_vector & had & equal] = _KEEP
    codes[there & has_vector & ~had] = _VECTOR_ADD
    codes[there & ~has_vector & had] = _VECTOR_DROP
    codes[there & ~has_vector & ~had] = _KEEP
    gone = np.ones(len(target), dtype=np.bool_)
    gone[places[there]] = False
    return Difference(codes, places, np.flatnonzero(gone))


def vector_ids_of(files: FileSet) -> pa.Array:
    """Return Delta's unique id of each file's vector; null for a file without deleted rows."""
    ids = vector_ids(files.vectors)
    return pc.if_else(pa.array(files.has_vector), ids, pa.scalar(None, pa.string()))
