"""Making the plan of a conversion: metadata of both sides is read, nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delvec.conversion.planning.build_steps import SourceVersion, build_steps
from delvec.conversion.planning.commit_facts import commit_facts
from delvec.conversion.planning.progress import find_progress
from delvec.conversion.planning.source_changes import (
    changes_between,
    oldest_version,
    versions_after,
)
from delvec.conversion.planning.target_checks import (
    documentation_note,
    foreign_changes,
    foreign_note,
    is_another_history,
    require_same_source,
    rollback_note,
)
from delvec.conversion.planning.target_files import NO_FILES
from delvec.conversion.planning.unclear_commits import UnclearCommitsError
from delvec.delta.log.snapshot import open_snapshot
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.conversion.options import ConversionOptions
    from delvec.conversion.planning.progress import Progress
    from delvec.conversion.planning.source_changes import SourceChanges, VersionChanges
    from delvec.conversion.planning.step import PlannedStep
    from delvec.conversion.planning.target import Target
    from delvec.conversion.planning.target_files import TargetFiles
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["Planned", "plan_steps"]

_ALL_COMPARED = "all files were compared"


@dataclass(frozen=True, eq=False)
class Planned:
    """The steps of a plan.

    Attributes:
        start_version: The version that the target holds now; None if it holds none.
        steps: A step for each new snapshot; none if the target is up to date.
        expected: The target's files after the last step, of those that were compared.
        notes: What users should know, in sentences.
    """

    start_version: int | None
    steps: tuple[PlannedStep, ...] = ()
    expected: TargetFiles = field(default_factory=lambda: NO_FILES)
    notes: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """`full`, `incremental`, or `none` if there is nothing to do."""
        return self.steps[0].mode if self.steps else "none"


def plan_steps(source: Snapshot, target: Target, options: ConversionOptions) -> Planned:
    """Compare a version of a Delta table with a target.

    Args:
        source: The version that the target will hold.
        target: The target.
        options: How to convert.

    Raises:
        PlanError: The target belongs to another source, or others have changed its rows.
        UnsupportedFeatureError: The source has what an Iceberg reader would read wrongly.
    """
    if target.table is None:
        return _plan_new(source, target, options)
    require_same_source(target, source)
    progress = find_progress(target.table.metadata)
    changes = foreign_changes(target.table, progress)
    notes = rollback_note(target, progress)
    if changes.what:
        notes = (*notes, foreign_note(target.table, progress, changes, options.foreign))
    if target.table.metadata.head() is None:
        # An earlier conversion ended before it was published.
        return _plan_new(source, target, options, notes)
    if progress is None or changes.what:
        return _plan_full(source, target, options, progress, notes)
    if progress.source != source.table:
        note = f"the source was at {progress.source}: {_ALL_COMPARED}"
        return _plan_full(source, target, options, progress, (*notes, note))
    if progress.version == source.version:
        return Planned(progress.version, notes=notes)
    notes = (*notes, *documentation_note(target.table))
    return _plan_increment(source, target, options, progress, notes)


def _plan_new(
    source: Snapshot, target: Target, options: ConversionOptions, notes: tuple[str, ...] = ()
) -> Planned:
    if options.history == "latest":
        return _plan_full(source, target, options, None, notes)
    storage, end = source.storage, source.version
    start = options.start_version
    start = oldest_version(storage) if start is None else start
    if not 0 <= start <= end:
        raise InvalidArgumentError(
            f"the history of {source.table} is to begin at version {start}, after {end}"
        )
    first = open_snapshot(storage, start)
    versions = [_whole(first), *map(_changed, versions_after(storage, start, end))]
    try:
        return _plan(source, target, options, None, versions, NO_FILES, notes)
    except UnclearCommitsError as error:
        note = f"{error}: there is one snapshot, not one for each version"
        return _plan_full(source, target, options, None, (*notes, note))


def _plan_increment(
    source: Snapshot,
    target: Target,
    options: ConversionOptions,
    progress: Progress,
    notes: tuple[str, ...],
) -> Planned:
    """Plan from the version that the target holds, by the commits since."""

    def compare_all(reason: str) -> Planned:
        note = f"{reason}: {_ALL_COMPARED}"
        return _plan_full(source, target, options, progress, (*notes, note))

    if is_another_history(source, progress):
        return compare_all(f"version {progress.version} is not what it was when it was converted")
    changes = changes_between(source, progress.version)
    if changes is None:
        return compare_all(
            f"the commits after version {progress.version} are not all in the log, or not in this"
            " order"
        )
    files = target.files(target.possible_paths(source.table, changes.touched))
    try:
        versions = _versions(source, options, progress, changes)
        return _plan(source, target, options, progress, versions, files, notes)
    except (UnclearCommitsError, InvalidArgumentError, UnsupportedFeatureError) as error:
        # A schema that Iceberg cannot evolve to, for example, is no obstacle if all files are new.
        return compare_all(error.args[0])


def _versions(
    source: Snapshot, options: ConversionOptions, progress: Progress, changes: SourceChanges
) -> list[SourceVersion]:
    """Return the versions that become snapshots."""
    if options.history == "latest":
        facts = commit_facts(source, source.version)
        return [SourceVersion(facts, source.metadata, changes.live, changes)]
    return list(map(_changed, versions_after(source.storage, progress.version, source.version)))


def _plan_full(
    source: Snapshot,
    target: Target,
    options: ConversionOptions,
    progress: Progress | None,
    notes: tuple[str, ...],
) -> Planned:
    """Plan one step that compares all files of both sides."""
    versions = [_whole(source)]
    return _plan(source, target, options, progress, versions, target.files(None), notes)


def _plan(
    source: Snapshot,
    target: Target,
    options: ConversionOptions,
    progress: Progress | None,
    versions: Sequence[SourceVersion],
    files: TargetFiles,
    notes: tuple[str, ...],
) -> Planned:
    steps, expected = build_steps(source, target, versions, files, may_copy=options.copy_files)
    if steps and steps[-1].wider:
        columns = "; ".join(steps[-1].wider)
        note = f"wider types stay in {target.name}, since Iceberg narrows none: {columns}"
        notes = (*notes, note)
    return Planned(None if progress is None else progress.version, steps, expected, notes)


def _whole(snapshot: Snapshot) -> SourceVersion:
    facts = commit_facts(snapshot, snapshot.version)
    return SourceVersion(facts, snapshot.metadata, snapshot.files)


def _changed(version: VersionChanges) -> SourceVersion:
    return SourceVersion(version.facts, version.metadata, version.changes.live, version.changes)
