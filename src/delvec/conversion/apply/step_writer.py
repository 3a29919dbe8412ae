"""Turning planned steps into snapshots: vectors are stored, files are described."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.copies.placing import PLANNED, field_ids
from delvec.conversion.copies.write_copies import write_copies
from delvec.conversion.planning.names import target_paths
from delvec.conversion.planning.progress import summary
from delvec.conversion.schema.metrics import metric_texts
from delvec.conversion.schema.partition_spec import partition_texts
from delvec.conversion.vectors.position_deletes import write_position_deletes
from delvec.conversion.vectors.reference import reference
from delvec.conversion.vectors.repack import repack
from delvec.iceberg.client.commit import RowChange, Step
from delvec.iceberg.client.file_json import data_file_texts, delete_file_texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.conversion.options import ConversionOptions
    from delvec.conversion.planning.step import PlannedStep
    from delvec.conversion.vectors.reference import StoredVectors
    from delvec.iceberg.client.commit import Place
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles as Leftovers

__all__ = ["StepWriter"]

_PUFFIN_FOLDER: Final = "data"


@dataclass
class StepWriter:
    """Writes the vectors of one step after the other, and remembers where they are.

    Attributes:
        place: Where the target is.
        schema: The schema that the target has by now.
        time_zone: Of texts of timestamps that name none.
        vector_files: Files that were written.
        vector_bytes: Their size.
        files_copied: Data files that were copied, since Iceberg cannot read them as they are.
    """

    spark: SparkSession
    options: ConversionOptions
    format_version: int
    source: Storage
    target: Storage
    place: Place
    leftovers: Leftovers
    schema: Mapping[str, Any]
    time_zone: str
    vector_files: int = 0
    vector_bytes: int = 0
    files_copied: int = 0
    _written: dict[str, str] = field(default_factory=dict)

    def step(self, planned: PlannedStep) -> Step:
        """Store the vectors of a step and describe its snapshot."""
        planned = planned.located(self.target.root)
        chosen = planned.vector_rows
        files, spec = planned.files, self.place.spec_id
        marked = planned.difference.marked
        added = planned.difference.added
        new_files = files.select(added)
        removed = self._removed_deletes(planned)  # before this step's own vectors are remembered
        change = RowChange(
            data_file_texts(
                planned.paths.take(pa.array(added)),
                self._sizes(planned, added),
                pa.array(planned.row_counts[added]),
                spec,
                partition_texts(new_files, planned.spec, time_zone=self.time_zone),
                metric_texts(new_files, planned.schema),
            ),
            self._deletes(planned, chosen),
            planned.held.paths.take(pa.array(planned.difference.gone)),
            removed,
            planned.paths.take(pa.array(marked)),
            summary(planned.facts, files.metadata, files.root, planned.mode),
        )
        schema = planned.schema.to_json()
        changed = not planned.schema.is_same_as(self.schema)
        self.schema = schema
        tag = f"delta-version-{planned.version}" if self.options.history == "per-version" else None
        return Step(change, schema if changed else None, planned.schema.last_column_id, tag)

    def _sizes(self, planned: PlannedStep, added: NDArray[np.int64]) -> NDArray[np.int64]:
        """Copy the new files that cannot be shared; give the size of all new ones."""
        sizes: NDArray[np.int64] = planned.files.sizes[added].copy()
        chosen = planned.copied[added]
        if chosen.any():
            files = planned.files.paths.take(pa.array(added[chosen]))
            shared = target_paths(planned.files.root, files).to_pylist()
            copies = planned.paths.take(pa.array(added[chosen])).to_pylist()
            ids = field_ids(planned.schema)
            pairs = list(zip(shared, copies, strict=True))
            sizes[chosen] = write_copies(self.spark, pairs, ids)
            self.files_copied += len(pairs)
        return sizes

    def _deletes(self, planned: PlannedStep, chosen: NDArray[np.int64]) -> pa.Array:
        """Store vectors, and describe their files."""
        if not len(chosen):
            return pa.array([], pa.string())
        files, paths = planned.files.select(chosen), planned.paths.take(pa.array(chosen))
        stored = self._stored(files, paths)
        self.vector_files += stored.files_written
        self.vector_bytes += stored.bytes_written
        frames = None
        keys = stored.paths
        if stored.offsets is not None and stored.lengths is not None:
            frames = (stored.offsets, stored.lengths)
            offsets = pa.array(stored.offsets).cast(pa.string())
            keys = pc.binary_join_element_wise(stored.paths, offsets, "@")
        if self.options.history == "per-version":
            self._written |= zip(paths.to_pylist(), keys.to_pylist(), strict=True)
        return delete_file_texts(
            stored.paths,
            stored.sizes,
            stored.cardinalities,
            paths,
            self.place.spec_id,
            partition_texts(files, planned.spec, time_zone=self.time_zone),
            frames=frames,
        )

    def _stored(self, files: Any, paths: pa.Array) -> StoredVectors:  # noqa: ANN401
        if self.format_version == 2:
            folder = self.options.folder
            return write_position_deletes(
                files, paths, self.source, self.target, folder, self.leftovers
            )
        if self.options.vectors == "reference":
            return reference(files, self.source)
        return repack(files, paths, self.source, self.target, _PUFFIN_FOLDER, self.leftovers)

    def _removed_deletes(self, planned: PlannedStep) -> pa.Array:
        """Name the delete files that go: of files that go, and those that are replaced."""
        held, difference = planned.held, planned.difference
        stale = np.concatenate([difference.gone, difference.unmarked])
        keys = held.keys.take(pa.array(stale)).drop_null()
        if self._written:
            start = len(PLANNED)
            keys = pa.array(
                [
                    self._written[key[start:]] if key.startswith(PLANNED) else key
                    for key in keys.to_pylist()
                ],
                pa.string(),
            )
        return pa.concat_arrays([keys, held.strays])
