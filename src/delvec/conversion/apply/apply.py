"""Carrying out a plan: write vectors, stage snapshots, verify and publish them.

The data flows one way: planned steps -> files written -> snapshots staged -> figures.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from delvec.conversion.apply.step_writer import Destination, write_steps
from delvec.conversion.apply.target_properties import published_properties, staged_properties
from delvec.conversion.apply.verify import verify_counts, verify_rows, verify_total
from delvec.conversion.copies.placing import resolve_paths
from delvec.conversion.planning.progress import TIME_ZONE
from delvec.conversion.planning.target_layout import own_layout
from delvec.conversion.planning.target_refs import new_staging_branch, stale_branches
from delvec.delta.log.checksums import file_count
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError, DelvecError, PlanError
from delvec.iceberg.commits.changes import NewTable
from delvec.iceberg.commits.commit import abandon, begin, prepare, publish, stage
from delvec.report.phases import Stopwatch
from delvec.spark.conf import time_zone
from delvec.spark.progress import described
from delvec.spark.storage import open_storage
from delvec.storage.counts import RequestCounts
from delvec.storage.listed_files import local_path, overlap
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from delvec.conversion.options import ConversionOptions, Verify
    from delvec.conversion.planning.planner import Planned
    from delvec.conversion.planning.target import Target
    from delvec.delta.log.snapshot import Snapshot
    from delvec.iceberg.commits.changes import Prepared, Staged

__all__ = ["Figures", "apply_steps"]

_LOG = logging.getLogger("delvec")
_PHASES: Final = ("vectors", "stage", "verify", "publish")


@dataclass(frozen=True)
class Figures:
    """What carrying out a plan wrote and cost, and the rows of the target.

    Attributes:
        snapshot_id: The published snapshot; None if nothing was written.
        rows: Live rows of the target.
        deleted_rows: Deleted rows in its files.
        files_copied: Data files that were copied.
        vector_files: Files of vectors that were written.
        vector_bytes: Their size.
        requests: Requests of the driver itself; not those of Spark and Iceberg.
        phases: Seconds by phase, in order.
    """

    snapshot_id: int | None = None
    rows: int = 0
    deleted_rows: int = 0
    files_copied: int = 0
    vector_files: int = 0
    vector_bytes: int = 0
    requests: RequestCounts = field(default_factory=RequestCounts)
    phases: Mapping[str, float] = field(default_factory=dict)


def apply_steps(
    planned: Planned,
    source: Snapshot,
    target: Target,
    options: ConversionOptions,
    verify: Verify,
) -> Figures:
    """Carry out a plan that has steps; see `ConversionPlan.apply`."""
    stopwatch = Stopwatch()

    def phase(name: str) -> AbstractContextManager[None]:
        return stopwatch.phase(name, described(target.spark, f"delvec: {name} {target.name}"))

    before = source.storage.requests
    with phase("stage"):
        base = target.table or _new_table(planned, options, target.format_version)
        spec = own_layout(target, source.metadata).spec
        spec_id = None if spec is None else spec["spec-id"]
        opened = begin(target.spark, target.name, base, spec_id)
        _require_apart(opened.location, source.table)
        storage = open_storage(target.spark, local_path(opened.location))
    zone = target.properties.get(TIME_ZONE) or time_zone(target.spark)
    with UncommittedFiles(storage) as uncommitted:
        with phase("vectors"):
            destination = Destination(
                target.spark,
                options,
                target.format_version,
                source.storage,
                storage,
                opened.spec_id,
                zone,
                uncommitted,
                str(uuid4()),
            )
            written = write_steps(planned.steps, _first_schema(planned, target), destination)
        with phase("stage"):
            properties = staged_properties(planned, source, target, zone)
            prepared = prepare(opened, new_staging_branch(), written.snapshots, properties)
            staged = _stage(prepared, uncommitted)
    if verify != "none":
        with phase("verify"), _abandoned_on(DelvecError, staged):
            _verify(planned, source, destination, staged, verify)
    # After any other failure it is unknown whether it was published.
    with phase("publish"), _abandoned_on(ConflictError, staged):
        publish(staged, published_properties(planned, source, target), _stale_branches(staged))
    snapshot = staged.table.metadata.snapshots[staged.snapshot_id]
    return Figures(
        snapshot_id=staged.snapshot_id,
        rows=snapshot.live_rows,
        deleted_rows=snapshot.deleted_rows,
        files_copied=written.files_copied,
        vector_files=written.vector_files,
        vector_bytes=written.vector_bytes,
        requests=source.storage.requests - before + storage.requests,
        phases={name: stopwatch.seconds[name] for name in _PHASES if name in stopwatch.seconds},
    )


def _stage(prepared: Prepared, uncommitted: UncommittedFiles) -> Staged:
    """Commit prepared snapshots; files are kept unless the commit certainly did not happen."""
    uncommitted.keep()
    try:
        return stage(prepared)
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
    """Return the schema of the target before the first step."""
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


def _stale_branches(staged: Staged) -> list[str]:
    """Return the branches of dead conversions; by the time of the own snapshot, which is now."""
    metadata = staged.table.metadata
    return stale_branches(metadata, metadata.snapshots[staged.snapshot_id].timestamp_ms)


def _require_apart(location: str, source: str) -> None:
    """Refuse a target inside its source, or the other way round.

    VACUUM of the source would remove the target's files; dropping the target, the source's.
    """
    if overlap(location, source):
        raise PlanError(
            f"the target would be at {location}, which overlaps with the source {source}",
            hint="put it elsewhere, by another warehouse or by location=",
        )
