"""Carrying out a plan: write vectors, stage snapshots, verify and publish them.

The data flows one way: planned steps -> files written -> snapshots staged -> verified
against the source, before readers see them -> published -> report.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote as url_unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delvec.conversion.files.copies import resolve_paths
from delvec.conversion.planning import target_layout
from delvec.conversion.planning.target_files import TargetFiles, list_target_files, without_ids
from delvec.conversion.step_writer import Destination, write_steps
from delvec.conversion.target_properties import published_properties, staged_properties
from delvec.delta.log.segment import file_count
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError, DelvecError, PlanError, VerificationError
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import snapshot_rows
from delvec.iceberg.commit.publish import (
    NewSnapshot,
    NewTable,
    Staged,
    abandon,
    begin,
    publish,
    stage,
)
from delvec.identifiers import quote
from delvec.report.rendering import Stopwatch
from delvec.spark.engine import open_storage, time_zone
from delvec.spark.expressions import row_sums, sums_by_rows
from delvec.spark.jobs import describe_jobs
from delvec.storage.listed_files import local_path, overlap
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from delvec.conversion.planning.options import ConversionOptions, Verify
    from delvec.conversion.planning.planner import Planned
    from delvec.conversion.planning.target import Target
    from delvec.conversion.report import ConversionReport
    from delvec.delta.log.snapshot import Snapshot
    from delvec.iceberg.client.catalog import LoadedTable

_SHOWN: Final = 5
_HINT: Final = "the target is unchanged; please report this with the plan of the conversion"
_LOG = logging.getLogger("delvec")
_PHASES: Final = ("vectors", "stage", "verify", "publish")


def verify_counts(staged: Staged, expected: TargetFiles, paths: pa.Array | None) -> None:
    """Compare data files, their physical rows and their deleted rows, by the target's metadata."""
    found = list_target_files(staged.table, staged.snapshot_id, paths, without_ids)
    at = pc.index_in(expected.paths, value_set=found.paths)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    there = places >= 0
    wrong = ~there
    for mine, theirs in ((expected.rows, found.rows), (expected.deleted, found.deleted)):
        wrong[there] |= mine[there] != theirs[places[there]]
    extra = np.ones(len(found), dtype=np.bool_)
    extra[places[there]] = False
    files = [
        *expected.paths.filter(pa.array(wrong)).to_pylist(),
        *found.paths.filter(pa.array(extra)).to_pylist(),
        *found.strays.to_pylist(),
    ]
    if files:
        raise VerificationError(
            f"{staged.table.name} would not be equal to the source in {_some(files)}",
            files=files,
            expected=_counts(expected),
            found=_counts(found),
            hint=_HINT,
        )


def verify_total(staged: Staged, expected: int | None) -> None:
    """Compare the number of all data files, if the source has a checksum; costs nothing."""
    found = staged.table.metadata.snapshots[staged.snapshot_id].data_file_count
    if expected is not None and found is not None and found != expected:
        raise VerificationError(
            f"{staged.table.name} would not have as many data files as the source",
            expected=expected,
            found=found,
            hint=_HINT,
        )


def verify_rows(staged: Staged, source: DataFrame) -> None:
    """Compare all rows of both sides by sums of hashes; one scan of each.

    Values of the source are compared in the target's types, which may be wider.
    """
    with translate_errors(str(staged.table.name)):
        target = snapshot_rows(staged.table, staged.snapshot_id)
        kind = target.select(*map(quote, source.columns)).schema
        expected, found = (row_sums(side, kind) for side in (source, target))
        if expected == found:
            return
        files = _differing(source, target, kind)
    raise VerificationError(
        f"{staged.table.name} would not have the source's rows; files that differ: {_some(files)}",
        files=files,
        expected=_shown(expected),
        found=_shown(found),
        hint=_HINT,
    )


def _differing(source: DataFrame, target: DataFrame, kind: StructType) -> list[str]:
    """Return the files whose rows differ; another scan of both sides."""
    sides = []
    columns = [quote(field.name) for field in kind.fields]
    # Spark escapes the names of files, Iceberg does not.
    for rows, file, plain in (
        (source, F.input_file_name(), url_unquote),
        (target, F.col("_file"), str),
    ):
        named = rows.select(file.alias("delvec file"), *columns)
        grouped = named.groupBy("delvec file").agg(*sums_by_rows(kind))
        found = grouped.collect()
        sides.append({local_path(plain(name)): tuple(sums) for name, *sums in found})
    names = sides[0].keys() | sides[1].keys()
    return sorted(name for name in names if sides[0].get(name) != sides[1].get(name))


def _shown(sums: tuple[int, ...]) -> str:
    rows, *parts = sums
    return f"{rows:,} rows with hash {'-'.join(map(str, parts))}"


def _counts(side: TargetFiles) -> str:
    return f"{len(side):,} files, {side.rows.sum():,} rows, {side.deleted.sum():,} deleted"


def _some(files: list[str]) -> str:
    more = f" and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more


def apply_steps(
    planned: Planned,
    source: Snapshot,
    target: Target,
    options: ConversionOptions,
    verify: Verify,
    report: ConversionReport,
) -> ConversionReport:
    """Carry out a plan that has steps, and complete its report; see `ConversionPlan.apply`."""
    stopwatch = Stopwatch()

    def phase(name: str) -> AbstractContextManager[None]:
        return stopwatch.phase(name, describe_jobs(target.spark, f"delvec: {name} {target.name}"))

    before = source.storage.requests
    with phase("stage"):
        base = target.table or _new_table(planned, options, target.format_version)
        table = begin(target.spark, target.name, base)
        own = target_layout.own_layout(target, source.metadata)
        spec_id = (own.spec or table.metadata.spec)["spec-id"]
        location = table.metadata.location
        _require_apart(location, source.table)
        storage = open_storage(target.spark, local_path(location))
    zone = target.properties.get(target_layout.TIME_ZONE) or time_zone(target.spark)
    with UncommittedFiles(storage) as uncommitted:
        with phase("vectors"):
            destination = Destination(
                target.spark,
                options,
                target.format_version,
                source.storage,
                storage,
                spec_id,
                zone,
                uncommitted,
                str(uuid4()),
            )
            written = write_steps(planned.steps, _first_schema(planned, target), destination)
        with phase("stage"):
            properties = staged_properties(planned, source, target, zone)
            staged = _stage(table, written.snapshots, properties, spec_id, uncommitted)
    if verify != "none":
        with phase("verify"), _abandoned_on(DelvecError, staged):
            _verify(planned, source, destination, staged, verify)
    metadata = staged.table.metadata
    snapshot = metadata.snapshots[staged.snapshot_id]
    # After any other failure it is unknown whether it was published.
    with phase("publish"), _abandoned_on(ConflictError, staged):
        stale = target_layout.stale_branches(metadata, snapshot.timestamp_ms)  # which is now
        publish(staged, published_properties(planned, source, target), stale)
    took = stopwatch.seconds
    return replace(
        report,
        snapshot_id=staged.snapshot_id,
        rows=snapshot.live_rows,
        deleted_rows=snapshot.deleted_rows,
        files_copied=written.files_copied,
        vector_files=written.vector_files,
        vector_bytes=written.vector_bytes,
        verified=verify,
        requests=report.requests + (source.storage.requests - before) + storage.requests,
        phases={**report.phases, **{name: took[name] for name in _PHASES if name in took}},
    )


def _stage(
    table: LoadedTable,
    snapshots: Sequence[NewSnapshot],
    properties: Mapping[str, str],
    spec_id: int,
    uncommitted: UncommittedFiles,
) -> Staged:
    """Commit snapshots; files are kept unless the commit certainly did not happen."""
    branch, keep = target_layout.new_staging_branch(), uncommitted.keep
    try:
        return stage(table, branch, snapshots, properties, spec_id, before_commit=keep)
    except (ConflictError, PlanError):
        uncommitted.discard()
        raise


@contextmanager
def _abandoned_on(kind: type[DelvecError], staged: Staged) -> Iterator[None]:
    """Remove what was staged if the block raises an error of that kind."""
    try:
        yield
    except kind:
        try:
            abandon(staged)
        except DelvecError as failure:
            # The first error says more, and nobody reads the branch.
            _LOG.warning("%s keeps the branch %s: %s", staged.table.name, staged.branch, failure)
        raise


def _first_schema(planned: Planned, target: Target) -> Mapping[str, Any]:
    if target.table is None:
        return planned.steps[0].schema.to_json()
    return target.table.metadata.schema


def _new_table(planned: Planned, options: ConversionOptions, format_version: int) -> NewTable:
    first = planned.steps[0]
    return NewTable(
        first.schema.to_json(),
        first.schema.last_column_id,
        first.spec.to_json(),
        format_version,
        options.location,
    )


def _verify(
    planned: Planned, source: Snapshot, destination: Destination, staged: Staged, verify: Verify
) -> None:
    location, run = destination.target.root, destination.run
    paths: pa.Array | None = None
    if planned.mode == "incremental":
        compared = [step.paths for step in planned.steps]
        compared += [step.before.paths for step in planned.steps]
        paths = resolve_paths(pa.concat_arrays(compared).unique(), location, run)
    if paths is None or len(paths):
        verify_counts(staged, planned.expected.resolved(location, run), paths)
    verify_total(staged, file_count(source.storage, source.version))
    if verify == "rows":
        table = DeltaTable(source.storage, staged.table.spark)
        verify_rows(staged, table.to_df(version=source.version))


def _require_apart(location: str, source: str) -> None:
    """Refuse a target inside its source, or the other way round.

    VACUUM of the source would remove the target's files; dropping the target, the source's.
    """
    if overlap(location, source):
        raise PlanError(
            f"the target would be at {location}, which overlaps with the source {source}",
            hint="put it elsewhere, by another warehouse or by location=",
        )
