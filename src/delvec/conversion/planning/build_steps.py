"""Steps from version to version: each compares files with what the steps before will have done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.copies.placing import place
from delvec.conversion.planning.difference import differ
from delvec.conversion.planning.step import PlannedStep, vector_ids_of
from delvec.conversion.planning.target_files import NO_FILES, target_paths
from delvec.conversion.planning.target_layout import TargetLayout, own_layout
from delvec.conversion.planning.unclear_commits import require_clear
from delvec.conversion.schema.evolution import (
    compatible_schema,
    require_evolution,
    require_partition_types,
    wider_columns,
)
from delvec.conversion.schema.iceberg_schema import target_schema
from delvec.conversion.schema.old_calendars import require_modern_dates
from delvec.conversion.schema.partition_spec import partition_spec, require_same_spec
from delvec.conversion.vectors.known_ids import referenced_keys
from delvec.conversion.vectors.position_deletes import digest
from delvec.delta.parquet.row_counts import physical_rows
from delvec.delta.read.load_vectors import admit_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.conversion.planning.commit_facts import CommitFacts
    from delvec.conversion.planning.difference import Difference
    from delvec.conversion.planning.source_changes import SourceChanges
    from delvec.conversion.planning.target import Target
    from delvec.conversion.planning.target_files import TargetFiles
    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.conversion.schema.partition_spec import PartitionSpec
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

__all__ = ["SourceVersion", "build_steps"]


@dataclass(frozen=True, eq=False)
class SourceVersion:
    """A version of the source that becomes a snapshot.

    Attributes:
        files: The files to compare: those that its commits added, or all live files.
        changes: What its commits changed; None if all files are compared.
    """

    facts: CommitFacts
    metadata: Metadata
    files: FileSet
    changes: SourceChanges | None = None

    @property
    def mode(self) -> Literal["full", "incremental"]:
        """Whether all files are compared, or those that commits touched."""
        return "full" if self.changes is None else "incremental"


def build_steps(
    source: Snapshot,
    target: Target,
    versions: Sequence[SourceVersion],
    files: TargetFiles,
    *,
    may_copy: bool,
) -> tuple[tuple[PlannedStep, ...], TargetFiles]:
    """Return a step for each version, and the target's files after the last one.

    Args:
        source: The version that the target will hold in the end.
        target: The target.
        versions: The versions that become snapshots, oldest first.
        files: The target's files that the versions may touch.
        may_copy: Whether data files may be copied.

    Raises:
        UnclearCommitsError: Commits name another vector of a file than it has.
        UnsupportedFeatureError: A version has what an Iceberg reader would read wrongly.
    """
    steps: list[PlannedStep] = []
    layout = own_layout(target, source.metadata)
    for version in versions:
        untouched = NO_FILES
        touched = files
        if version.changes is not None:
            paths = target.possible_paths(source.table, version.changes.touched)
            planned = target.planned_paths(files.paths)
            mask = pc.is_in(planned, value_set=paths).to_numpy(zero_copy_only=False)
            touched = replace(files.select(mask), strays=files.strays)
            untouched = files.select(~mask)
            require_clear(version.facts.version, version.changes, touched, target, source.table)
        step = _step(source, target, version, touched, layout, may_copy=may_copy)
        steps.append(step)
        layout = _layout_after(layout, step)
        files = untouched.joined(step.files_after())
    return tuple(steps), files


def _layout_after(layout: TargetLayout, step: PlannedStep) -> TargetLayout:
    """Return the layout after a step; the partition spec never changes."""
    return TargetLayout(
        step.schema.to_json(),
        max(layout.last_column_id, step.schema.last_column_id),
        layout.spec or step.spec.to_json(),
        step.schema.name_mapping(layout.mapping),
    )


def _step(
    source: Snapshot,
    target: Target,
    version: SourceVersion,
    before: TargetFiles,
    layout: TargetLayout,
    *,
    may_copy: bool,
) -> PlannedStep:
    schema = target_schema(
        version.metadata,
        table=source.table,
        format_version=target.format_version,
        current=layout.schema,
        last_column_id=layout.last_column_id,
        mapping=layout.mapping,
    )
    spec = partition_spec(
        version.metadata, schema, table=source.table, transforms=_has_transforms(source, layout)
    )
    if layout.spec is not None:
        require_same_spec(layout.spec, spec, source.table, schema=schema)
    files = version.files
    admit_files(source.storage, files)
    shared = target_paths(source.table, files.paths)
    paths, copied = place(
        files, shared, before.paths, target.location, schema, source.storage, may_copy=may_copy
    )
    ids = _possible_ids(files, before, source, target.format_version)
    difference = differ(paths, files.has_vector, ids, before)
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
        wider_columns(schema, evolved),
    )


def _evolved(
    layout: TargetLayout,
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
        schema = compatible_schema(layout.schema, schema)
    require_evolution(
        layout.schema,
        schema,
        table,
        all_files_replaced=all_files_replaced,
        current_mapping=layout.mapping,
    )
    require_partition_types(layout.schema, schema, spec, table)
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


def _has_transforms(source: Snapshot, layout: TargetLayout) -> bool:
    """Tell whether partitions follow generated columns; an existing target keeps what it has."""
    if layout.spec is None:
        return "generatedColumns" in source.protocol.supported
    return any(field["transform"] != "identity" for field in layout.spec["fields"])
