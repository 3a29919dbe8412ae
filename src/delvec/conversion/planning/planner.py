"""Making the plan of a conversion: a step for each version, from the metadata of both sides.

Each step compares files with what the steps before will have done. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.files.copies import place
from delvec.conversion.files.repack import digest
from delvec.conversion.files.vector_places import referenced_keys
from delvec.conversion.planning import target_layout
from delvec.conversion.planning.options import ConversionOptions
from delvec.conversion.planning.source_changes import (
    SourceVersion,
    UnclearCommitsError,
    changes_between,
    commit_facts,
    require_clear,
    versions_after,
)
from delvec.conversion.planning.step import Difference, PlannedStep, diff_files, vector_ids_of
from delvec.conversion.planning.target import (
    Target,
    documentation_note,
    foreign_changes,
    foreign_note,
    is_another_history,
    require_same_source,
    rollback_note,
)
from delvec.conversion.planning.target_files import NO_FILES, TargetFiles, target_paths
from delvec.conversion.schema import evolution
from delvec.conversion.schema.iceberg_schema import TargetSchema
from delvec.conversion.schema.partition_spec import PartitionSpec, partition_spec, require_same_spec
from delvec.conversion.schema.unsupported import require_modern_dates
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.segment import oldest_version
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.read.footer_statistics import physical_rows
from delvec.delta.read.vectors import admit_files
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

_ALL_COMPARED = "all files were compared"


@dataclass(frozen=True, eq=False)
class Planned:
    """The steps of a plan, one for each new snapshot; none if the target is up to date."""

    start_version: int | None  # that the target holds now; None if it holds none
    steps: tuple[PlannedStep, ...] = ()
    # The target's files after the last step, of those that were compared.
    expected: TargetFiles = field(default_factory=lambda: NO_FILES)
    notes: tuple[str, ...] = ()  # what users should know, in sentences

    @property
    def mode(self) -> str:
        """`full`, `incremental`, or `none` if there is nothing to do."""
        return self.steps[0].mode if self.steps else "none"


def plan_steps(source: Snapshot, target: Target, options: ConversionOptions) -> Planned:
    if target.table is None:
        return _Planner(source, target, options).new()
    require_same_source(target, source)
    progress = target_layout.find_progress(target.table.metadata)
    changes = foreign_changes(target.table, progress)
    planner = _Planner(source, target, options, progress, rollback_note(target, progress))
    if changes.what:
        planner = planner.noting(foreign_note(target.table, progress, changes, options.foreign))
    if target.table.metadata.head() is None:
        # An earlier conversion ended before it was published.
        return planner.new()
    if progress is None or changes.what:
        return planner.full()
    if progress.source != source.table:
        return planner.noting(f"the source was at {progress.source}: {_ALL_COMPARED}").full()
    if progress.version == source.version:
        return Planned(progress.version, notes=planner.notes)
    return planner.noting(*documentation_note(target.table)).increment(progress)


@dataclass(frozen=True, eq=False)
class _Planner:
    """Plans steps; `progress` is None if the target has no snapshot of a conversion."""

    source: Snapshot
    target: Target
    options: ConversionOptions
    progress: target_layout.Progress | None = None
    notes: tuple[str, ...] = ()

    def noting(self, *notes: str) -> _Planner:
        return replace(self, notes=(*self.notes, *notes))

    def new(self) -> Planned:
        if self.options.history == "latest":
            return self.full()
        storage, end = self.source.storage, self.source.version
        start = self.options.start_version
        start = oldest_version(storage) if start is None else start
        if not 0 <= start <= end:
            raise InvalidArgumentError(
                f"the history of {self.source.table} is to begin at version {start}, after {end}"
            )
        versions = [_whole(open_snapshot(storage, start)), *versions_after(storage, start, end)]
        try:
            return self._plan(versions, NO_FILES)
        except UnclearCommitsError as error:
            note = f"{error}: there is one snapshot, not one for each version"
            return self.noting(note).full()

    def increment(self, progress: target_layout.Progress) -> Planned:
        """Plan from the version that the target holds, by the commits since."""
        source, target = self.source, self.target
        if is_another_history(source, progress):
            return self._compare_all(
                f"version {progress.version} is not what it was when it was converted"
            )
        changes = changes_between(source, progress.version)
        if changes is None:
            return self._compare_all(
                f"the commits after version {progress.version} are not all in the log, or not in"
                " this order"
            )
        files = target.files(target.possible_paths(source.table, changes.touched))
        try:
            if self.options.history == "latest":
                facts = commit_facts(source, source.version)
                versions = [SourceVersion(facts, source.metadata, changes.live, changes)]
            else:
                versions = [*versions_after(source.storage, progress.version, source.version)]
            return self._plan(versions, files)
        except (UnclearCommitsError, InvalidArgumentError, UnsupportedFeatureError) as error:
            # A schema that Iceberg cannot evolve to, for example, is no obstacle if all files are
            # new.
            return self._compare_all(error.args[0])

    def full(self) -> Planned:
        """Plan one step that compares all files of both sides."""
        return self._plan([_whole(self.source)], self.target.files(None))

    def _compare_all(self, reason: str) -> Planned:
        return self.noting(f"{reason}: {_ALL_COMPARED}").full()

    def _plan(self, versions: Sequence[SourceVersion], files: TargetFiles) -> Planned:
        """Plan a step for each version; `files` are those of the target before the first."""
        source, target = self.source, self.target
        steps: list[PlannedStep] = []
        layout = target_layout.own_layout(target, source.metadata)
        for version in versions:
            untouched, touched = NO_FILES, files
            if version.changes is not None:
                paths = target.possible_paths(source.table, version.changes.touched)
                planned = target.planned_paths(files.paths)
                mask = pc.is_in(planned, value_set=paths).to_numpy(zero_copy_only=False)
                touched = replace(files.select(mask), strays=files.strays)
                untouched = files.select(~mask)
                require_clear(version.facts.version, version.changes, touched, target, source.table)
            step = self._step(version, touched, layout)
            steps.append(step)
            # The partition spec never changes.
            layout = target_layout.TargetLayout(
                step.schema.to_json(),
                max(layout.last_column_id, step.schema.last_column_id),
                layout.spec or step.spec.to_json(),
                step.schema.name_mapping(layout.mapping),
            )
            files = untouched.joined(step.files_after())
        notes = self.notes
        if steps and steps[-1].wider:
            columns = "; ".join(steps[-1].wider)
            note = f"wider types stay in {target.name}, since Iceberg narrows none: {columns}"
            notes = (*notes, note)
        start = None if self.progress is None else self.progress.version
        return Planned(start, tuple(steps), files, notes)

    def _step(
        self, version: SourceVersion, before: TargetFiles, layout: target_layout.TargetLayout
    ) -> PlannedStep:
        source, target, files = self.source, self.target, version.files
        schema = layout.schema_for(version.metadata, source.table, target.format_version)
        transforms = "generatedColumns" in source.protocol.supported
        if layout.spec is not None:  # an existing target keeps what it has
            transforms = any(each["transform"] != "identity" for each in layout.spec["fields"])
        spec = partition_spec(version.metadata, schema, table=source.table, transforms=transforms)
        if layout.spec is not None:
            require_same_spec(layout.spec, spec, source.table, schema=schema)
        admit_files(source.storage, files)
        shared = target_paths(source.table, files.paths)
        paths, copied = place(
            files,
            shared,
            before.paths,
            target.location,
            schema,
            source.storage,
            may_copy=self.options.copy_files,
        )
        ids = _possible_ids(files, before, source, target.format_version)
        difference = diff_files(paths, files.has_vector, ids, before)
        evolved = _evolved(layout, schema, spec, version, difference, source.table)
        require_modern_dates(files, difference.added, source.storage)
        rows = physical_rows(source.storage, files, difference.places, before.rows)
        return PlannedStep(
            version.facts,
            version.mode,
            evolved,
            spec,
            files,
            paths,
            copied,
            rows,
            before,
            difference,
            evolution.wider_columns(schema, evolved),
        )


def _whole(snapshot: Snapshot) -> SourceVersion:
    facts = commit_facts(snapshot, snapshot.version)
    return SourceVersion(facts, snapshot.metadata, snapshot.files)


def _evolved(
    layout: target_layout.TargetLayout,
    schema: TargetSchema,
    spec: PartitionSpec,
    version: SourceVersion,
    difference: Difference,
    table: str,
) -> TargetSchema:
    """Return the schema that the target gets, which can read the files that stay in it."""
    if layout.schema is None:
        return schema
    all_files_replaced = version.changes is None and bool((difference.places < 0).all())
    if not all_files_replaced:
        schema = evolution.compatible_schema(layout.schema, schema)
        evolution.require_evolution(layout.schema, schema, table, layout.mapping)
    evolution.require_partition_types(layout.schema, schema, spec, table)
    return schema


def _possible_ids(
    files: FileSet, before: TargetFiles, source: Snapshot, format_version: int
) -> list[pa.Array]:
    """Return all ids that the vectors of these files may have in the target, a column for each."""
    has_vector = files.has_vector
    if not has_vector.any() or not len(before):
        return []
    chosen = files.select(has_vector)
    ids = vector_ids_of(chosen)
    forms = [ids]
    if format_version == 2:
        forms.append(digest(ids))
    elif pc.any(pc.match_substring(before.ids, ".bin@")).as_py():
        forms.append(referenced_keys(chosen, source.storage))
    order = np.cumsum(has_vector) - 1
    at = pa.array(order, mask=~has_vector)
    return [column.take(at) for column in forms]
