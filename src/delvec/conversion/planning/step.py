"""One step of a plan: a version of the source, and the snapshot that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.copies.placing import resolve_paths
from delvec.conversion.planning.difference import ACTIONS
from delvec.conversion.planning.target_files import NO_FILES, TargetFiles
from delvec.conversion.vectors.keys import planned_keys
from delvec.delta.log.replay import vector_ids
from delvec.vector.frame import FRAME_OVERHEAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.conversion.planning.commit_facts import CommitFacts
    from delvec.conversion.planning.difference import Action, Difference
    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.conversion.schema.partition_spec import PartitionSpec
    from delvec.delta.log.file_set import FileSet

__all__ = ["PLAN_SCHEMA", "PlannedStep", "vector_ids_of"]

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


def vector_ids_of(files: FileSet) -> pa.Array:
    """Return Delta's unique id of each file's vector; null for a file without deleted rows."""
    ids = vector_ids(files.vectors)
    return pc.if_else(pa.array(files.has_vector), ids, pa.scalar(None, pa.string()))


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """What brings the target to a version of the source.

    Attributes:
        mode: `full` compared all files, `incremental` those that commits touched.
        files: The files of the source that were compared.
        paths: Their paths in the target; of new copies the planned ones.
        copied: Which of them the target has a copy of instead of sharing them.
        row_counts: Physical rows of each.
        before: The target's files before this step, of those that were compared.
        wider: Columns that have a wider type in the target than in the source, described.
    """

    facts: CommitFacts
    mode: Literal["full", "incremental"]
    schema: TargetSchema
    spec: PartitionSpec
    files: FileSet
    paths: pa.Array
    copied: NDArray[np.bool_]
    row_counts: NDArray[np.int64]
    before: TargetFiles
    difference: Difference
    wider: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The version of the source."""
        return self.facts.version

    @cached_property
    def vector_rows(self) -> NDArray[np.int64]:
        """Indexes of the files whose vector is written: new files with one, and changed ones."""
        added = self.difference.added
        fresh = added[self.files.has_vector[added]]
        return np.union1d(fresh, self.difference.new_vectors)

    @cached_property
    def deleted(self) -> NDArray[np.int64]:
        """Deleted rows of each file."""
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
        """Return the step with the names of new copies, see `copies.placing.resolve_paths`."""
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
            pa.array(self.files.has_vector),
            planned_keys(self.paths),
            pa.scalar(None, pa.string()),
        )
        keys = pc.if_else(kept, self.before.keys.take(at), planned)
        ids = pc.if_else(kept, self.before.ids.take(at), self.vector_ids)
        compared = TargetFiles(
            self.paths, self.row_counts, self.files.sizes, self.deleted, keys, ids, NO_FILES.strays
        )
        return self.before.select(stays).joined(compared)

    def count(self, action: Action) -> int:
        """Return the number of files with an action."""
        return self.difference.count(action)

    def to_arrow(self) -> pa.Table:
        """Return a row for each file."""
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
