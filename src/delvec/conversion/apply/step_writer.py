"""Writing planned steps: vectors are stored and files copied, snapshots are described."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from delvec.conversion.copies.placing import field_ids
from delvec.conversion.copies.write_copies import write_copies
from delvec.conversion.planning.progress import snapshot_summary
from delvec.conversion.planning.target_files import target_paths
from delvec.conversion.planning.target_refs import version_tag
from delvec.conversion.schema.metrics import metrics_json
from delvec.conversion.schema.partition_values import partition_json
from delvec.conversion.vectors.keys import PLANNED, delete_file_keys
from delvec.conversion.vectors.position_deletes import write_position_deletes
from delvec.conversion.vectors.reference import reference
from delvec.conversion.vectors.repack import repack
from delvec.errors import ObjectNotFoundError
from delvec.iceberg.client.file_json import data_file_json, delete_file_json
from delvec.iceberg.commits.changes import NewSnapshot, RowChange
from delvec.storage.listed_files import spark_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.conversion.options import ConversionOptions
    from delvec.conversion.planning.step import PlannedStep
    from delvec.conversion.vectors.reference import StoredVectors
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

__all__ = ["Destination", "Written", "write_steps"]

_PUFFIN_FOLDER: Final = "data"


@dataclass(frozen=True)
class Destination:
    """Where steps are written, and how.

    Attributes:
        source: The Delta table.
        target: The location of the Iceberg table.
        spec_id: The partition spec of added files.
        time_zone: The zone of timestamps in partition values that name none.
        uncommitted: Is told of each file before it is written.
        run: A new UUID, for the names of copies.
    """

    spark: SparkSession
    options: ConversionOptions
    format_version: int
    source: Storage
    target: Storage
    spec_id: int
    time_zone: str
    uncommitted: UncommittedFiles
    run: str


@dataclass(frozen=True, eq=False)
class Written:
    """What was written for steps.

    Attributes:
        snapshots: A snapshot for each step, to be staged.
        vector_files: Files of vectors.
        vector_bytes: Their size.
        files_copied: Data files that were copied, since Iceberg cannot read them as they are.
    """

    snapshots: tuple[NewSnapshot, ...] = ()
    vector_files: int = 0
    vector_bytes: int = 0
    files_copied: int = 0


@dataclass(frozen=True, eq=False)
class _WrittenStep:
    """What was written for one step; `keys` are those of its delete files, by data path."""

    snapshot: NewSnapshot
    stored: StoredVectors | None
    files_copied: int
    keys: Mapping[str, str] = field(default_factory=dict)


def write_steps(
    steps: Sequence[PlannedStep], schema: Mapping[str, Any], destination: Destination
) -> Written:
    """Write the vectors and the copied data files of steps, one step after the other.

    Memory grows with the files that all steps add: some 1 kB of JSON each, until they are staged.

    Args:
        steps: The steps, oldest version first.
        schema: The schema of the target before the first step.
        destination: Where to write.

    Raises:
        FormatError: A vector is damaged or does not match its data file.
        ObjectNotFoundError: A file of the source is gone.
    """
    written: list[_WrittenStep] = []
    keys: dict[str, str] = {}
    for step in steps:
        with _explained_by_age(step.version, steps[-1].version):
            resolved = step.resolved(destination.target.root, destination.run)
            result = _write_step(resolved, schema, keys, destination)
        written.append(result)
        keys |= result.keys
        schema = step.schema.to_json()
    stored = [each.stored for each in written if each.stored is not None]
    return Written(
        tuple(each.snapshot for each in written),
        sum(each.files_written for each in stored),
        sum(each.bytes_written for each in stored),
        sum(each.files_copied for each in written),
    )


@contextmanager
def _explained_by_age(version: int, newest: int) -> Iterator[None]:
    """Add a hint if a file of an older version is gone: VACUUM keeps those of the newest."""
    try:
        yield
    except ObjectNotFoundError as error:
        if version < newest:
            error.hint = (
                f"version {version} needs it, and it was probably vacuumed: begin the history"
                f" later by start_version, or take history='latest'"
            )
        raise


def _write_step(
    step: PlannedStep,
    schema: Mapping[str, Any],
    keys: Mapping[str, str],
    destination: Destination,
) -> _WrittenStep:
    """Write one step; `schema` and `keys` are what the steps before it left."""
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
        removed_deletes=_removed_deletes(step, keys),
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
    new_keys = _keys_by_path(step, stored) if per_version and stored is not None else {}
    return _WrittenStep(snapshot, stored, copied, new_keys)


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
    return repack(files, paths, source, target, _PUFFIN_FOLDER, uncommitted)


def _keys_by_path(step: PlannedStep, stored: StoredVectors) -> dict[str, str]:
    """Return the keys of the delete files of a step by their data files, for later steps."""
    keys = stored.paths
    if stored.offsets is not None:
        keys = delete_file_keys(stored.paths, pa.array(stored.offsets))
    paths = step.paths.take(pa.array(step.vector_rows))
    return dict(zip(paths.to_pylist(), keys.to_pylist(), strict=True))


def _removed_deletes(step: PlannedStep, written: Mapping[str, str]) -> pa.Array:
    """Return the keys of delete files to remove: of removed data files, replaced ones and strays.

    Args:
        step: The step.
        written: The keys of delete files that earlier steps wrote, by data path.
    """
    stale = np.concatenate([step.difference.gone, step.difference.old_vectors])
    keys = step.before.keys.take(pa.array(stale)).drop_null()
    if written:
        known = [
            written[key.removeprefix(PLANNED)] if key.startswith(PLANNED) else key
            for key in keys.to_pylist()
        ]
        keys = pa.array(known, pa.string())
    return pa.concat_arrays([keys, step.before.strays])
