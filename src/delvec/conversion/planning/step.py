"""One snapshot of the target to be: a version of the source, and what it changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.copies.placing import PLANNED, resolved, resolved_holdings
from delvec.conversion.planning.difference import ACTIONS
from delvec.conversion.planning.target_files import NOTHING, Holdings
from delvec.delta.log.replay import vector_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.conversion.planning.difference import Action, Difference
    from delvec.conversion.planning.source_changes import CommitFacts
    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.conversion.schema.partition_spec import PartitionSpec
    from delvec.delta.log.file_set import FileSet

__all__ = ["PLAN_SCHEMA", "PlannedStep", "ids_of"]

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
_FRAME: Final = 8  # length field and checksum around the payload that Delta counts


def ids_of(files: FileSet) -> pa.Array:
    """Give Delta's unique id of each file's vector; null for a file without one that marks rows."""
    ids = vector_ids(files.vectors)
    return pc.if_else(pa.array(files.has_vector), ids, pa.scalar(None, pa.string()))


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """What brings the target to a version of the source.

    Attributes:
        mode: `full` compared all files, `incremental` those that commits touched.
        files: The files of the source that were compared.
        paths: What the target calls them.
        copied: Which of them the target does not share, but has a copy of.
        row_counts: All rows of each, deleted ones too.
        held: What the target holds of them before this step.
    """

    facts: CommitFacts
    mode: Literal["full", "incremental"]
    schema: TargetSchema
    spec: PartitionSpec
    files: FileSet
    paths: pa.Array
    copied: NDArray[np.bool_]
    row_counts: NDArray[np.int64]
    held: Holdings
    difference: Difference

    @property
    def version(self) -> int:
        """The version of the source."""
        return self.facts.version

    @cached_property
    def vector_rows(self) -> NDArray[np.int64]:
        """Files whose vector the target does not have: new files with one, and marked ones."""
        added = self.difference.added
        fresh = added[self.files.has_vector[added]]
        return np.union1d(fresh, self.difference.marked)

    @cached_property
    def deleted(self) -> NDArray[np.int64]:
        """How many rows of each file are deleted."""
        return np.where(self.files.has_vector, self.files.deleted_rows, 0)

    @cached_property
    def vector_ids(self) -> pa.Array:
        """Delta's unique id of each vector; null without one."""
        return ids_of(self.files)

    @cached_property
    def vector_sizes(self) -> NDArray[np.int64]:
        """Bytes of each vector with its frame; 0 without one."""
        sizes = pc.fill_null(pc.struct_field(self.files.vectors, "sizeInBytes"), 0)
        return np.where(self.files.has_vector, sizes.to_numpy().astype(np.int64) + _FRAME, 0)

    def located(self, location: str) -> PlannedStep:
        """Give the step with the names that files have in a table at that place."""
        return replace(
            self,
            paths=resolved(self.paths, location),
            held=resolved_holdings(self.held, location),
        )

    def held_after(self) -> Holdings:
        """Give what the target holds of these files after this step."""
        places, codes = self.difference.places, self.difference.codes
        stays = np.ones(len(self.held), dtype=np.bool_)
        stays[self.difference.gone] = False
        stays[places[places >= 0]] = False
        kept = pa.array(codes == ACTIONS.index("keep"))
        at = pa.array(places, mask=places < 0)
        planned = pc.if_else(
            pa.array(self.files.has_vector),
            pc.binary_join_element_wise(pa.scalar(PLANNED), self.paths, pa.scalar("")),
            pa.scalar(None, pa.string()),
        )
        keys = pc.if_else(kept, self.held.keys.take(at), planned)
        ids = pc.if_else(kept, self.held.ids.take(at), self.vector_ids)
        here = Holdings(
            self.paths, self.row_counts, self.files.sizes, self.deleted, keys, ids, NOTHING.strays
        )
        return self.held.select(stays).joined(here)

    def count(self, action: Action) -> int:
        """Count the files of an action."""
        return self.difference.count(action)

    def to_arrow(self) -> pa.Table:
        """Give a row for each file."""
        places, gone = self.difference.places, self.difference.gone
        at = pa.array(places, mask=places < 0)
        names = pa.array(ACTIONS).take(pa.array(self.difference.codes))
        here = pa.table(
            [
                pa.nulls(len(self.paths), pa.int64()).fill_null(self.version),
                self.paths,
                names,
                self.held.ids.take(at),
                self.vector_ids,
                pa.array(self.row_counts),
                pa.array(self.deleted),
                pa.array(self.files.sizes),
                pa.array(self.vector_sizes),
            ],
            schema=PLAN_SCHEMA,
        )
        nothing = np.zeros(len(gone), dtype=np.int64)
        left = pa.table(
            [
                pa.array(nothing + self.version),
                self.held.paths.take(pa.array(gone)),
                pa.array(["remove"] * len(gone), pa.string()),
                self.held.ids.take(pa.array(gone)),
                pa.nulls(len(gone), pa.string()),
                pa.array(self.held.rows[gone]),
                pa.array(self.held.deleted[gone]),
                pa.array(self.held.sizes[gone]),
                pa.array(nothing),
            ],
            schema=PLAN_SCHEMA,
        )
        return pa.concat_tables([here, left])
