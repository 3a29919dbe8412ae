"""Carrying out a plan: write vectors, stage snapshots, verify and publish them.

The data flows one way: planned steps -> files written -> snapshots staged -> verified
against the source, before readers see them -> published -> report.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote as url_unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from delvec.conversion.files.copies import resolve_paths
from delvec.conversion.planning import target_layout
from delvec.conversion.planning.options import ConversionOptions, Verify
from delvec.conversion.planning.planner import Planned
from delvec.conversion.planning.target import Target
from delvec.conversion.planning.target_files import TargetFiles, list_target_files, without_ids
from delvec.conversion.planning.target_layout import NAME_MAPPING, own_layout
from delvec.conversion.schema.evolution import compatible_schema
from delvec.conversion.schema.iceberg_schema import ids_by_path
from delvec.conversion.step_writer import Destination, write_steps
from delvec.delta.log.segment import file_count
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError, DelvecError, PlanError, VerificationError
from delvec.iceberg.client.catalog import LoadedTable
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
from delvec.report.format import format_count
from delvec.report.rendering import ChangeReport, Stopwatch, doc, documented, required
from delvec.spark.engine import open_storage, time_zone
from delvec.spark.expressions import row_sums, sums_by_rows
from delvec.spark.jobs import describe_jobs
from delvec.storage.backend import RequestCounts
from delvec.storage.listed_files import local_path, overlap
from delvec.storage.uncommitted import UncommittedFiles

_FIRST_SPARE_ID: Final = 2_000_000_000  # no column has it, neither of Delta nor of Iceberg
_PROTECTING: Final = {
    # Shared data files are the source's to remove.
    "gc.enabled": "false",
    # Bounds may be wide, so min() and max() must not be answered from them.
    "write.metadata.metrics.default": "counts",
    # Following a source makes many commits; only files of table metadata are removed.
    "write.metadata.delete-after-commit.enabled": "true",
}


def lost_properties(planned: Planned, source: Snapshot, target: Target) -> dict[str, str]:
    """Return properties that a conversion had set and that others have changed or removed.

    With the values that they should have: a plan without steps sets these, others set them anyway.
    """
    if target.table is None:
        return {}
    wanted = dict(_PROTECTING)
    if not planned.steps:
        if source.metadata.description:
            wanted["comment"] = source.metadata.description
        mapping = _name_mapping(planned, source, target)
        current = target_layout.current_mapping(target.properties)
        if dict(ids_by_path(mapping)) != dict(ids_by_path(current)):
            wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def staged_properties(
    planned: Planned, source: Snapshot, target: Target, time_zone: str
) -> dict[str, str]:
    """Return the properties to set when snapshots are staged, where the target has others.

    Readers of `main` see them before the snapshots are published.
    """
    metadata = source.metadata
    own_id = target_layout.source_id(metadata, source.table)
    known = {target_layout.SOURCE_ID: own_id, target_layout.TIME_ZONE: time_zone}
    wanted = {**known, **_PROTECTING}
    if metadata.description:
        wanted["comment"] = metadata.description
    mapping = _name_mapping(planned, source, target)
    before = dict(ids_by_path(own_layout(target, metadata).mapping))
    if before.items() <= dict(ids_by_path(mapping)).items():
        # If a name had another id, readers of `main` would miss columns until publication.
        wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def published_properties(planned: Planned, source: Snapshot, target: Target) -> dict[str, str]:
    mapping = _name_mapping(planned, source, target)
    version = str(source.version)
    return {target_layout.SOURCE_VERSION: version, NAME_MAPPING: json.dumps(mapping)}


def _name_mapping(planned: Planned, source: Snapshot, target: Target) -> list[dict[str, Any]]:
    """Return the name mapping of the target after the last step, or that it should have."""
    layout = own_layout(target, source.metadata)
    schemas = [step.schema for step in planned.steps]
    if not schemas and layout.schema is not None:
        schema = layout.schema_for(source.metadata, source.table, target.format_version)
        schemas = [compatible_schema(layout.schema, schema)]
    mapping = [dict(each) for each in layout.mapping if each.get("field-id", 0) < _FIRST_SPARE_ID]
    for schema in schemas:
        mapping = schema.name_mapping(mapping)
    return _with_row_tracking(mapping, source.metadata)


def _with_row_tracking(mapping: list[dict[str, Any]], metadata: Metadata) -> list[dict[str, Any]]:
    """Add the columns of Delta's row tracking, which are in files but not in the schema.

    PyIceberg requires a name for every column of a file without ids. They must not get the ids of
    Iceberg's row lineage, which would take the values for its own.
    """
    known = {name for entry in mapping for name in entry["names"]}
    tracked = {
        field_id: metadata.configuration.get(key)
        for field_id, key in enumerate(
            (Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN), _FIRST_SPARE_ID
        )
    }
    return [
        *mapping,
        *(
            {"field-id": field_id, "names": [name]}
            for field_id, name in tracked.items()
            if name and name not in known
        ),
    ]


@documented()
class ConversionReport(ChangeReport):
    """What a conversion did; prints as a summary, also on terminals and in notebooks.

    >>> print(ConversionReport("/lake/orders", "ice.db.orders", 3, 12, 7, files_added=2))
    /lake/orders -> ice.db.orders: version 12 (from 3)
      files  2 added
    """

    source: str = required("The Delta table.")
    target: str = required("The Iceberg table.")
    start_version: int | None = required("The version that the target held before; None if none.")
    version: int = required("The version that it holds now.")
    snapshot_id: int | None = doc(
        "The snapshot of the target with that version; None if there was nothing to do.", None
    )
    mode: str = doc("`full` or `incremental`; `none` if there was nothing to do.", "none")
    format_version: int = doc("Of the target.", 3)
    vectors: str = doc("`repack`, `reference`, or `position-deletes` in format 2.", "repack")
    versions: int = doc("How many versions of the source became a snapshot each.", 0)
    files_added: int = doc("Data files that are new in the target.", 0)
    files_removed: int = doc("Data files that are no longer in the target.", 0)
    files_kept: int = doc("Data files that were compared and are the same, vectors included.", 0)
    files_copied: int = doc("Data files that were copied: Iceberg cannot read them as they are.", 0)
    vectors_added: int = doc("Vectors of files that had none, new files included.", 0)
    vectors_replaced: int = doc("Vectors that replace older ones.", 0)
    vectors_dropped: int = doc("Vectors that were removed while their data file stayed.", 0)
    rows: int = doc("Live rows of the target.", 0)
    deleted_rows: int = doc("Deleted rows in its files.", 0)
    verified: str = doc("How the result was verified: `counts`, `rows` or `none`.", "none")
    properties_set: tuple[str, ...] = doc(
        "Properties that others had changed and were set again.", ()
    )
    requests: RequestCounts = doc(
        "Requests of the driver itself; not those of Spark and Iceberg.", RequestCounts
    )

    def brief(self) -> str:
        """Return what happened in one line.

        >>> ConversionReport("/lake/orders", "ice.db.orders", 3, 4, 1, vectors_replaced=2).brief()
        'version 4 (from 3): 2 vectors replaced'
        """
        if self.snapshot_id is None:
            return f"version {self.version:,} is there already"
        words = ("file added", "file removed", "vector added", "vector replaced", "vector dropped")
        what = ", ".join(
            f"{format_count(count, noun)} {verb}"
            for noun, verb in map(str.split, words)
            if (count := getattr(self, f"{noun}s_{verb}"))
        )
        return f"{self._version()}: {what or 'no file changed'}"

    def _headline(self) -> str:
        where = f"{self.source} -> {self.target}"
        if self.snapshot_id is None:
            written = "no file" if self.properties_set else "nothing"
            return f"{where}: version {self.version:,} is there already, {written} was written"
        return f"{where}: {self._version()}"

    def _version(self) -> str:
        before = "new" if self.start_version is None else f"from {self.start_version:,}"
        return f"version {self.version:,} ({before})"

    def _facts(self) -> dict[str, str]:
        rows = f"{self.rows:,} live, {self.deleted_rows:,} deleted"
        return {
            "files": self._counts("files", "added", "removed", "kept", "copied"),
            "vectors": self._vectors("added", "replaced", "dropped"),
            "rows": rows if self.rows or self.deleted_rows else "",
            "versions": f"{self.versions:,}" if self.versions > 1 else "",
            "verified": self.verified if self.verified != "none" else "",
        }


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
            schema: Mapping[str, Any] = planned.steps[0].schema.to_json()
            if target.table is not None:
                schema = target.table.metadata.schema
            written = write_steps(planned.steps, schema, destination)
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
