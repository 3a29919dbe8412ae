"""Writing planned steps: vectors are stored and files copied, snapshots are described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from delvec.conversion.files.copies import field_ids, write_copies
from delvec.conversion.files.repack import StoredVectors, reference, repack, write_position_deletes
from delvec.conversion.files.vector_places import PLANNED, delete_file_keys
from delvec.conversion.planning.options import ConversionOptions
from delvec.conversion.planning.step import PlannedStep
from delvec.conversion.planning.target_files import target_paths
from delvec.conversion.planning.target_layout import snapshot_summary, version_tag
from delvec.conversion.schema.metrics import metrics_json
from delvec.conversion.schema.partition_spec import partition_json
from delvec.delta.log.file_set import FileSet
from delvec.errors import ObjectNotFoundError
from delvec.iceberg.client.content_files import data_file_json, delete_file_json
from delvec.iceberg.commit.commit import RowChange
from delvec.iceberg.commit.publish import NewSnapshot
from delvec.report.hints import argument, format_hint
from delvec.storage import Storage
from delvec.storage.listed_files import spark_path
from delvec.storage.uncommitted import UncommittedFiles


@dataclass(frozen=True)
class Destination:
    """Where steps are written, and how."""

    spark: SparkSession
    options: ConversionOptions
    format_version: int
    source: Storage  # the Delta table
    target: Storage  # the location of the Iceberg table
    spec_id: int  # the partition spec of added files
    time_zone: str  # of timestamps in partition values that name none
    uncommitted: UncommittedFiles  # is told of each file before it is written
    run: str  # a new UUID, for the names of copies


@dataclass(eq=False)
class Written:
    """What was written for steps: a snapshot for each, to be staged."""

    snapshots: list[NewSnapshot] = field(default_factory=list)
    vector_files: int = 0
    vector_bytes: int = 0
    files_copied: int = 0  # since Iceberg cannot read them as they are
    keys: dict[str, str] = field(default_factory=dict)  # of delete files, by data path


def write_steps(
    steps: Sequence[PlannedStep], schema: Mapping[str, Any], destination: Destination
) -> Written:
    """Write the vectors and the copied data files of steps, one step after the other.

    Memory grows with the files that all steps add: some 1 kB of JSON each, until they are staged.
    """
    written = Written()
    for step in steps:
        with _explained_by_age(step.version, steps[-1].version):
            resolved = step.resolved(destination.target.root, destination.run)
            _write_step(resolved, schema, destination, written)
        schema = step.schema.to_json()
    return written


@contextmanager
def _explained_by_age(version: int, newest: int) -> Iterator[None]:
    """Add a hint if a file of an older version is gone: VACUUM keeps those of the newest."""
    try:
        yield
    except ObjectNotFoundError as error:
        if version < newest:
            error.hint = format_hint(
                "version {} needs it, and it was probably vacuumed: begin the history later by {},"
                " or take {}",
                version,
                argument(start_version=None),
                argument(history="latest"),
            )
        raise


def _write_step(
    step: PlannedStep, schema: Mapping[str, Any], destination: Destination, written: Written
) -> None:
    """Write one step; `schema` and `written` are what the steps before it left."""
    added = step.difference.added
    new_files = step.files.select(added)
    sizes, copied = _sizes(step, added, destination)
    stored, deletes = _write_vectors(step, destination)
    change = RowChange(
        data_files=data_file_json(
            step.paths.take(pa.array(added)),
            sizes,
            pa.array(step.row_counts[added]),
            destination.spec_id,
            partition_json(new_files, step.spec, time_zone=destination.time_zone),
            metrics_json(new_files, step.schema),
        ),
        delete_files=deletes,
        removed_data=step.before.paths.take(pa.array(step.difference.gone)),
        removed_deletes=_removed_deletes(step, written.keys),
        data_with_new_deletes=step.paths.take(pa.array(step.difference.new_vectors)),
        summary=snapshot_summary(step.facts, step.files.metadata, step.files.root, step.mode),
    )
    per_version = destination.options.history == "per-version"
    snapshot = NewSnapshot(
        change,
        None if step.schema.is_same_as(schema) else step.schema.to_json(),
        step.schema.last_column_id,
        version_tag(step.version) if per_version else None,
    )
    written.snapshots.append(snapshot)
    written.files_copied += copied
    if stored is not None:
        written.vector_files += stored.files_written
        written.vector_bytes += stored.bytes_written
        written.keys |= _keys_by_path(step, stored) if per_version else {}


def _sizes(
    step: PlannedStep, added: NDArray[np.int64], destination: Destination
) -> tuple[NDArray[np.int64], int]:
    """Copy new files that cannot be shared; return the sizes of all new files, and how many."""
    sizes: NDArray[np.int64] = step.files.sizes[added].copy()
    chosen = step.copied[added]
    if not chosen.any():
        return sizes, 0
    rows = pa.array(added[chosen])
    shared = target_paths(step.files.root, step.files.paths.take(rows)).to_pylist()
    copies = step.paths.take(rows).to_pylist()
    folder = spark_path(destination.target.root, "").rstrip("/") + "/"
    destination.uncommitted.add(*(path.removeprefix(folder) for path in copies))
    pairs = list(zip(shared, copies, strict=True))
    sizes[chosen] = write_copies(destination.spark, pairs, field_ids(step.schema))
    return sizes, len(pairs)


def _write_vectors(
    step: PlannedStep, destination: Destination
) -> tuple[StoredVectors | None, pa.Array]:
    """Store the new vectors of a step; return where they are, and their delete files as JSON."""
    chosen = step.vector_rows
    if not len(chosen):
        return None, pa.array([], pa.string())
    files, paths = step.files.select(chosen), step.paths.take(pa.array(chosen))
    stored = _store(files, paths, destination)
    frames = None
    if stored.offsets is not None and stored.lengths is not None:
        frames = (stored.offsets, stored.lengths)
    return stored, delete_file_json(
        stored.paths,
        stored.sizes,
        stored.cardinalities,
        paths,
        destination.spec_id,
        partition_json(files, step.spec, time_zone=destination.time_zone),
        frames=frames,
    )


def _store(files: FileSet, paths: pa.Array, destination: Destination) -> StoredVectors:
    options, source, target = destination.options, destination.source, destination.target
    uncommitted = destination.uncommitted
    if destination.format_version == 2:
        return write_position_deletes(files, paths, source, target, options.folder, uncommitted)
    if options.vectors == "reference":
        return reference(files, source)
    return repack(files, paths, source, target, "data", uncommitted)


def _keys_by_path(step: PlannedStep, stored: StoredVectors) -> dict[str, str]:
    """Return the keys of the delete files of a step by their data files, for later steps."""
    keys = stored.paths
    if stored.offsets is not None:
        keys = delete_file_keys(stored.paths, pa.array(stored.offsets))
    paths = step.paths.take(pa.array(step.vector_rows))
    return dict(zip(paths.to_pylist(), keys.to_pylist(), strict=True))


def _removed_deletes(step: PlannedStep, written: Mapping[str, str]) -> pa.Array:
    """Return the keys of delete files to remove: of removed data files, replaced, and strays."""
    stale = np.concatenate([step.difference.gone, step.difference.old_vectors])
    keys = step.before.keys.take(pa.array(stale)).drop_null()
    if written:
        known = [
            written[key.removeprefix(PLANNED)] if key.startswith(PLANNED) else key
            for key in keys.to_pylist()
        ]
        keys = pa.array(known, pa.string())
    return pa.concat_arrays([keys, step.before.strays])
