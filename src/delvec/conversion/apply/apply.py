"""Carrying out a plan: store vectors, stage, verify, publish."""

from __future__ import annotations

import json
import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa

from delvec.conversion.apply.step_writer import StepWriter
from delvec.conversion.apply.verify import verify_counts, verify_rows, verify_total
from delvec.conversion.copies.placing import resolved_holdings
from delvec.conversion.planning.progress import (
    NAME_MAPPING,
    SOURCE_ID,
    SOURCE_VERSION,
    TIME_ZONE,
    source_id,
)
from delvec.conversion.report import ConversionReport
from delvec.conversion.schema.name_mapping import ids_by_path
from delvec.delta.log.checksums import file_count
from delvec.delta.schema.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError, DelvecError, ObjectNotFoundError, PlanError
from delvec.iceberg.client.commit import NewTable, abandon, publish, stage
from delvec.spark.conf import time_zone
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import store_of
from delvec.storage.uncommitted import UncommittedFiles as Leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from delvec.conversion.options import Verify
    from delvec.conversion.plan import ConversionPlan
    from delvec.delta.schema.metadata import Metadata
    from delvec.iceberg.client.commit import Place, Staged, Step
    from delvec.storage.counts import RequestCounts

__all__ = ["apply_plan"]

_LOG = logging.getLogger("delvec")
_FIRST_SPARE: Final = 2_000_000_000  # an id that no column has, neither Delta's nor Iceberg's
BRANCH: Final = "delvec-convert-"
_PROTECTING: Final = {
    # Shared files are the source's to remove.
    "gc.enabled": "false",
    # Bounds are bounds: min() and max() are not to be answered by them.
    "write.metadata.metrics.default": "counts",
    # Who follows a source commits often; only files of table metadata are meant.
    "write.metadata.delete-after-commit.enabled": "true",
}


@dataclass
class _Work:
    """What carrying out has cost and written so far."""

    plan: ConversionPlan
    phases: dict[str, float] = field(default_factory=dict)
    writer: StepWriter | None = None
    leftovers: Leftovers | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.plan.spark.sparkContext.setJobDescription(f"delvec: {name} {self.plan.name}")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start
            self.plan.spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]


def apply_plan(plan: ConversionPlan, verify: Verify) -> ConversionReport:
    """Carry a plan out; see `ConversionPlan.apply`."""
    work = _Work(plan, {"plan": plan.seconds})
    before = plan.snapshot.storage.requests
    if not plan.planned.steps:
        return _report(work, None, "none", before)
    with ExitStack() as stack:
        with work.phase("stage"):
            staged = _staged(work, stack)
        if verify != "none":
            with work.phase("verify"), _abandoned_by(DelvecError, staged):
                _verify(work, staged, verify)
        # Of another failure nobody knows whether it was published after all.
        with work.phase("publish"), _abandoned_by(ConflictError, staged):
            properties = {SOURCE_VERSION: str(plan.version), NAME_MAPPING: _name_mapping(plan)}
            publish(staged, properties, _stale(staged))
    return _report(work, staged, verify, before)


@contextmanager
def _abandoned_by(kind: type[DelvecError], staged: Staged) -> Iterator[None]:
    """Take back what was staged if the block fails in that way."""
    try:
        yield
    except kind:
        try:
            abandon(staged)
        except DelvecError as failure:
            # What failed first says more; nobody reads the branch.
            _LOG.warning("%s keeps the branch %s: %s", staged.table.name, staged.branch, failure)
        raise


def _staged(work: _Work, stack: ExitStack) -> Staged:
    plan = work.plan

    def make_steps(place: Place) -> Iterator[Step]:
        _require_apart(place.location, plan.snapshot.table)
        target = open_storage(plan.spark, place.location)
        work.leftovers = stack.enter_context(Leftovers(target))
        work.writer = StepWriter(
            plan.spark,
            plan.options,
            plan.format_version,
            plan.snapshot.storage,
            target,
            place,
            work.leftovers,
            _first_schema(plan),
            _time_zone(plan),
        )
        for step in plan.planned.steps:
            with work.phase("vectors"), _explained_by_age(step.version, plan.version):
                made = work.writer.step(step)
            yield made
        work.leftovers.keep()  # from here on the commit may refer to them

    base = plan.table or _new_table(plan)
    branch = BRANCH + uuid4().hex
    try:
        return stage(plan.spark, plan.name, base, branch, make_steps, _properties(plan))
    except (ConflictError, PlanError):
        if work.leftovers is not None:
            work.leftovers.forget_none()  # the commit surely did not happen
        raise


@contextmanager
def _explained_by_age(version: int, newest: int) -> Iterator[None]:
    """Say what helps if a file of an older version is gone: VACUUM keeps those of the newest."""
    try:
        yield
    except ObjectNotFoundError as error:
        if version < newest:
            error.hint = (
                f"version {version} needs it, and it was probably vacuumed: begin the history"
                f" later by start_version, or take history='latest'"
            )
        raise


def _first_schema(plan: ConversionPlan) -> Mapping[str, Any]:
    """Give the schema that the target has before the first step."""
    if plan.table is None:
        return plan.planned.steps[0].schema.to_json()
    return plan.table.metadata.schema


def _time_zone(plan: ConversionPlan) -> str:
    there = plan.table.metadata.properties if plan.table else {}
    return there.get(TIME_ZONE) or time_zone(plan.spark)


def _new_table(plan: ConversionPlan) -> NewTable:
    first = plan.planned.steps[0]
    return NewTable(
        first.schema.to_json(),
        first.schema.last_column_id,
        first.spec.to_json(),
        plan.format_version,
        plan.options.location,
    )


def _properties(plan: ConversionPlan) -> dict[str, str]:
    """Give the properties that the target needs to be read rightly, and to be known again."""
    metadata = plan.snapshot.metadata
    wanted = {
        SOURCE_ID: source_id(metadata, plan.snapshot.table),
        TIME_ZONE: _time_zone(plan),
        **_PROTECTING,
    }
    if metadata.description:
        wanted["comment"] = metadata.description
    there = plan.table.metadata.properties if plan.table else {}
    mapping = _name_mapping(plan)
    if _keeps_names(json.loads(there.get(NAME_MAPPING, "[]")), json.loads(mapping)):
        wanted[NAME_MAPPING] = mapping  # else who reads `main` would miss columns until then
    return {key: value for key, value in wanted.items() if there.get(key) != value}


def _name_mapping(plan: ConversionPlan) -> str:
    """Give the name mapping of the target after the last step, as JSON."""
    there = plan.table.metadata.properties if plan.table else {}
    mapping: list[dict[str, Any]] = json.loads(there.get(NAME_MAPPING, "[]"))
    mapping = [entry for entry in mapping if entry.get("field-id", 0) < _FIRST_SPARE]
    for step in plan.planned.steps:
        mapping = step.schema.name_mapping(mapping)
    return json.dumps(_with_row_tracking(mapping, plan.snapshot.metadata))


def _keeps_names(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Tell whether all names still mean what they meant."""
    return dict(ids_by_path(before)).items() <= dict(ids_by_path(after)).items()


def _with_row_tracking(mapping: list[dict[str, Any]], metadata: Metadata) -> list[dict[str, Any]]:
    """Name the columns of Delta's row tracking, which files have and the schema has not.

    PyIceberg wants every column of a file without ids to be named. They must not get the ids of
    Iceberg's own row tracking: it would take the values for its own.
    """
    known = {name for entry in mapping for name in entry["names"]}
    tracked = {
        number: metadata.configuration.get(key)
        for number, key in enumerate((ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN), _FIRST_SPARE)
    }
    return [
        *mapping,
        *(
            {"field-id": number, "names": [name]}
            for number, name in tracked.items()
            if name and name not in known
        ),
    ]


def _verify(work: _Work, staged: Staged, verify: Verify) -> None:
    plan, planned = work.plan, work.plan.planned
    root = work.writer.target.root if work.writer else staged.table.metadata.location
    paths: pa.Array | None = None
    if plan.mode == "incremental":
        names = [step.paths for step in planned.steps] + [step.held.paths for step in planned.steps]
        paths = pa.concat_arrays(names).unique()
    if paths is None or len(paths):
        verify_counts(staged, resolved_holdings(planned.expected, root), paths)
    verify_total(staged, file_count(plan.snapshot.storage, plan.version))
    if verify == "rows":
        source = DeltaTable(plan.snapshot.storage, plan.spark)
        verify_rows(staged, source.to_df(version=plan.version))


def _stale(staged: Staged) -> list[str]:
    """Name the branches of conversions that ended before they were published, days ago."""
    day = 24 * 3600 * 1000
    metadata = staged.table.metadata
    now = metadata.snapshots[staged.snapshot_id].timestamp_ms
    return [
        name
        for name, ref in metadata.refs.items()
        if name.startswith(BRANCH)
        and name != staged.branch
        and metadata.snapshots[ref.snapshot_id].timestamp_ms < now - day
    ]


def _require_apart(location: str, source: str) -> None:
    """Refuse a target inside its source, or the other way round.

    VACUUM of the source would remove the target's files; dropping the target, the source's.
    """
    mine, theirs = (f"{store_of(root)}/" for root in (_local(location), source))
    if mine.startswith(theirs) or theirs.startswith(mine):
        raise PlanError(
            f"the target would be at {location}, which overlaps with the source {source}",
            hint="put it elsewhere, by another warehouse or by location=",
        )


def _local(location: str) -> str:
    return "/" + location.removeprefix("file:").lstrip("/") if location[:5] == "file:" else location


def _report(
    work: _Work, staged: Staged | None, verify: str, before: RequestCounts
) -> ConversionReport:
    plan, writer = work.plan, work.writer
    steps = plan.planned.steps
    counts = plan.counts()
    requests = plan.requests + (plan.snapshot.storage.requests - before)
    if writer is not None:
        requests += writer.target.requests
    fresh = sum(int(step.files.has_vector[step.difference.added].sum()) for step in steps)
    vectors = "position-deletes" if plan.format_version == 2 else plan.options.vectors
    phases = dict(work.phases)
    if staged is not None:
        phases["stage"] -= phases["vectors"]  # they are written while it is staged
    rows, deleted = _totals(plan, staged)
    return ConversionReport(
        plan.snapshot.table,
        str(plan.name),
        plan.start_version,
        plan.version,
        staged.snapshot_id if staged else None,
        plan.mode,
        plan.format_version,
        vectors,
        len(steps),
        counts["add"],
        counts["remove"],
        counts["keep"],
        writer.files_copied if writer else 0,
        counts["vector-add"] + fresh,
        counts["vector-replace"],
        counts["vector-drop"],
        writer.vector_bytes if writer else 0,
        writer.vector_files if writer else 0,
        rows - deleted,
        deleted,
        verify,
        requests,
        phases,
        plan.notes,
    )


def _totals(plan: ConversionPlan, staged: Staged | None) -> tuple[int, int]:
    """Give all rows that the target holds, and how many of them are deleted."""
    if staged is not None:
        snapshot = staged.table.metadata.snapshots[staged.snapshot_id]
    else:
        head = plan.table.metadata.head() if plan.table else None
        if head is None:
            return 0, 0
        snapshot = head
    names = ("total-records", "total-position-deletes")
    rows, deleted = (int(snapshot.summary.get(name, 0)) for name in names)
    return rows, deleted
