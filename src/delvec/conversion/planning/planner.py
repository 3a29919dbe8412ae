"""Making the plan of a conversion: metadata of both sides is read, nothing is written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.copies.placing import copy_names, place
from delvec.conversion.planning.difference import differ
from delvec.conversion.planning.names import target_paths
from delvec.conversion.planning.progress import (
    NAME_MAPPING,
    SOURCE_ID,
    SOURCE_VERSION,
    converted,
    source_id,
)
from delvec.conversion.planning.source_changes import (
    changes_between,
    commit_facts,
    oldest_version,
    versions_after,
)
from delvec.conversion.planning.step import PlannedStep, ids_of
from delvec.conversion.planning.target_files import NOTHING, hold
from delvec.conversion.schema.evolution import require_evolution, require_partition_types
from delvec.conversion.schema.iceberg_schema import target_schema
from delvec.conversion.schema.old_calendars import require_modern_dates
from delvec.conversion.schema.partition_spec import partition_spec, require_same_spec
from delvec.conversion.vectors.known_ids import referenced_ids, referenced_keys, stored_ids
from delvec.conversion.vectors.position_deletes import digest
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.parquet.row_counts import physical_rows
from delvec.errors import InvalidArgumentError, PlanError, UnsupportedFeatureError
from delvec.spark.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.conversion.options import ConversionOptions
    from delvec.conversion.planning.progress import Converted
    from delvec.conversion.planning.source_changes import Changes, CommitFacts, VersionStep
    from delvec.conversion.planning.target_files import Holdings
    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.iceberg.client.catalog import IcebergTable, TableName
    from delvec.storage import Storage

__all__ = ["Planned", "Planner"]

_NEWEST_FORMAT = 3


@dataclass(frozen=True, eq=False)
class Planned:
    """The steps of a plan, and what is worth knowing of it.

    Attributes:
        start_version: What the target holds now; None if nothing.
        expected: What the target shall hold of the files that were compared.
    """

    start_version: int | None
    steps: tuple[PlannedStep, ...] = ()
    expected: Holdings = field(default_factory=lambda: NOTHING)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Version:
    """A version of the source that the target shall hold, and the files that may differ."""

    facts: CommitFacts
    metadata: Metadata
    files: FileSet
    changes: Changes | None = None  # what its commits say; None if all files are compared

    @property
    def touched(self) -> pa.Array | None:
        """Decoded paths of the files that may differ; None for all."""
        return None if self.changes is None else self.changes.touched

    @property
    def mode(self) -> Literal["full", "incremental"]:
        return "full" if self.touched is None else "incremental"


@dataclass(frozen=True)
class _Shape:
    """What a target is like at some step, besides its files; nothing of it for a new one."""

    schema: Mapping[str, Any] | None = None
    last_column_id: int = 0
    spec: Mapping[str, Any] | None = None
    mapping: Sequence[Mapping[str, Any]] = ()

    def after(self, step: PlannedStep) -> _Shape:
        """Give what it is like after a step; partitions stay what they are."""
        return _Shape(
            step.schema.to_json(),
            max(self.last_column_id, step.schema.last_column_id),
            self.spec or step.spec.to_json(),
            step.schema.name_mapping(self.mapping),
        )


class _UnclearError(Exception):
    """Commits that name another vector of a file than it has."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the commits up to version {version} name other vectors of files than these have"
        )


@dataclass(frozen=True)
class Planner:
    """Compares a version of a Delta table with what a target holds.

    Attributes:
        snapshot: The version that the target shall hold in the end.
        table: The target; None if there is none yet.
    """

    spark: SparkSession
    snapshot: Snapshot
    name: TableName
    table: IcebergTable | None
    options: ConversionOptions

    @property
    def format_version(self) -> int:
        """The format of the target."""
        wanted = self.options.format_version
        if self.table is None:
            return wanted or _NEWEST_FORMAT
        found = self.table.metadata.format_version
        if wanted not in (None, found):
            raise PlanError(
                f"{self.name} has format {found}, not {wanted}",
                hint="leave format_version away, or convert into another table",
            )
        return found

    def plan(self) -> Planned:
        """Find what has to be done.

        Raises:
            PlanError: The target belongs to another source, or others have changed its rows.
            UnsupportedFeatureError: The source has what an Iceberg reader would read wrongly.
        """
        _ = self.format_version
        if self.table is None:
            return self._new()
        self._require_ours(self.table.metadata.properties)
        if self.table.metadata.head() is None:
            return self._new()  # an earlier conversion ended before it was published
        state = converted(self.table.metadata)
        notes = self._rollback(state)
        if state is None or not (state.is_head or self._is_harmless(state)):
            return self._full(state, (*notes, *self._foreign(state)))
        if state.source != self.snapshot.table:
            note = f"the source was at {state.source}: all files were compared"
            return self._full(state, (*notes, note))
        if state.version == self.snapshot.version:
            return Planned(state.version, notes=notes)
        return self._onwards(state, notes)

    def _new(self) -> Planned:
        if self.options.history == "latest":
            return self._full(None, ())
        storage, end = self.snapshot.storage, self.snapshot.version
        start = self.options.start_version
        start = oldest_version(storage) if start is None else start
        if not 0 <= start <= end:
            raise InvalidArgumentError(
                f"the history of {self.snapshot.table} shall begin at version {start}, after {end}"
            )
        first = open_snapshot(storage, start)
        whole = _Version(commit_facts(first, start), first.metadata, first.files)
        versions = [whole, *map(_touching, versions_after(storage, start, end))]
        try:
            return self._chained(None, versions, NOTHING, ())
        except _UnclearError as error:
            return self._full(None, (f"{error}: there is one snapshot, not one for each version",))

    def _onwards(self, state: Converted, notes: tuple[str, ...]) -> Planned:
        """Go on from the version that the target holds."""
        if self._is_another_history(state):
            note = f"version {state.version} is not what it was when it was converted"
            return self._full(state, (*notes, f"{note}: all files were compared"))
        changes = changes_between(self.snapshot, state.version)
        if changes is None:
            note = (
                f"the commits after version {state.version} are not all in the log, or not in this"
                " order: all files were compared"
            )
            return self._full(state, (*notes, note))
        held = self._held(changes.touched)
        try:
            return self._chained(state, self._versions(state, changes), held, notes)
        except (_UnclearError, InvalidArgumentError, UnsupportedFeatureError) as error:
            # A schema that Iceberg cannot follow, for one, is no matter if all files are new.
            reason = error.args[0]
            return self._full(state, (*notes, f"{reason}: all files were compared"))

    def _versions(self, state: Converted, changes: Changes) -> list[_Version]:
        """Give the versions that become snapshots."""
        if self.options.history == "latest":
            return [self._latest(changes)]
        steps = versions_after(self.snapshot.storage, state.version, self.snapshot.version)
        return list(map(_touching, steps))

    def _latest(self, changes: Changes) -> _Version:
        facts = commit_facts(self.snapshot, self.snapshot.version)
        return _Version(facts, self.snapshot.metadata, changes.live, changes)

    def _full(self, state: Converted | None, notes: tuple[str, ...]) -> Planned:
        """Compare all files of both sides."""
        snapshot = self.snapshot
        facts = commit_facts(snapshot, snapshot.version)
        whole = _Version(facts, snapshot.metadata, snapshot.files)
        return self._chained(state, [whole], self._held(None), notes)

    def _chained(
        self,
        state: Converted | None,
        versions: Sequence[_Version],
        held: Holdings,
        notes: tuple[str, ...],
    ) -> Planned:
        """Plan versions one after the other, each on what the ones before will have done."""
        steps: list[PlannedStep] = []
        shape = self._shape
        for version in versions:
            rest = NOTHING
            mine = held
            if version.touched is not None:
                inside = pc.is_in(held.paths, value_set=self._all_names(version.touched))
                mask = inside.to_numpy(zero_copy_only=False)
                mine = replace(held.select(mask), strays=held.strays)
                rest = held.select(~mask)
            if version.changes is not None and self._is_unclear(version.changes, mine):
                raise _UnclearError(version.facts.version)
            step = self._step(version, mine, shape)
            steps.append(step)
            shape = shape.after(step)
            held = rest.joined(step.held_after())
        start = None if state is None else state.version
        return Planned(start, tuple(steps), held, notes)

    @property
    def _shape(self) -> _Shape:
        """What the target is like before the first step."""
        if self.table is None:
            return _Shape()
        metadata = self.table.metadata
        mapping = json.loads(metadata.properties.get(NAME_MAPPING, "[]"))
        return _Shape(metadata.schema, metadata.last_column_id, metadata.spec, mapping)

    def _step(self, version: _Version, held: Holdings, shape: _Shape) -> PlannedStep:
        table = self.snapshot.table
        schema = target_schema(
            version.metadata,
            table=table,
            format_version=self.format_version,
            current=shape.schema,
            last_column_id=shape.last_column_id,
            mapping=shape.mapping,
        )
        spec = partition_spec(
            version.metadata, schema, table=table, transforms=self._has_transforms
        )
        if shape.spec is not None:
            require_same_spec(shape.spec, spec, table, schema=schema)
        files = version.files
        paths, copied = self._placed(files, held, schema)
        difference = differ(paths, files.has_vector, self._vector_names(files, held), held)
        if shape.schema is not None:
            nothing_stays = version.touched is None and bool((difference.places < 0).all())
            require_evolution(
                shape.schema,
                schema,
                table,
                all_files_replaced=nothing_stays,
                current_mapping=shape.mapping,
            )
            require_partition_types(shape.schema, schema, spec, table)
        require_modern_dates(files, difference.added, self.snapshot.storage)
        rows = physical_rows(self.snapshot.storage, files, difference.places, held.rows)
        return PlannedStep(
            version.facts, version.mode, schema, spec, files, paths, copied, rows, held, difference
        )

    def _placed(
        self, files: FileSet, held: Holdings, schema: TargetSchema
    ) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Give what the target calls the files, and which of them it has a copy of."""
        return place(
            files,
            self._names(files.paths),
            held.paths,
            self._location,
            schema,
            self.snapshot.storage,
            may_copy=self.options.copy_files,
        )

    def _vector_names(self, files: FileSet, held: Holdings) -> list[pa.Array]:
        """Give all that the target may call the vectors of these files."""
        marked = files.has_vector
        if not marked.any() or not len(held):
            return []
        chosen = files.select(marked)
        ids = ids_of(chosen)
        names = [ids]
        if self.format_version == 2:
            names.append(digest(ids))
        elif pc.any(pc.match_substring(held.ids, ".bin@")).as_py():
            names.append(referenced_keys(chosen, self.snapshot.storage))
        order = np.cumsum(marked) - 1
        at = pa.array(order, mask=~marked)
        return [column.take(at) for column in names]

    @property
    def _has_transforms(self) -> bool:
        """Whether partitions follow generated columns: what the target has stays as it is."""
        if self.table is None:
            return "generatedColumns" in self.snapshot.protocol.supported
        fields = self.table.metadata.spec["fields"]
        return any(field["transform"] != "identity" for field in fields)

    def _is_unclear(self, changes: Changes, held: Holdings) -> bool:
        """Tell whether commits touch a file of the target, but not with the vector that it has.

        A remove counts for the vector that it names. One that names another leaves the file live,
        which only the files of the whole version show.
        """
        names = self._all_names(changes.spoken["path"].combine_chunks())
        ids = changes.spoken["vector_id"].combine_chunks()
        forms = [ids, referenced_ids(ids, self.snapshot.table)]
        if self.format_version == 2:
            forms.append(digest(ids))
        spoken = pa.concat_arrays([_keys(names, pa.concat_arrays([form, form])) for form in forms])
        touched = pc.is_in(held.paths, value_set=names)
        known = pc.is_in(_keys(held.paths, held.ids), value_set=spoken)
        nameless = pc.and_(held.keys.is_valid(), held.ids.is_null())
        return bool(pc.any(pc.and_(touched, pc.or_(nameless, pc.invert(known)))).as_py())

    def _names(self, paths: pa.Array) -> pa.Array:
        return target_paths(self.snapshot.table, paths)

    def _all_names(self, paths: pa.Array) -> pa.Array:
        """Give both that the target may call files: all their names, then all of copies."""
        shared = self._names(paths)
        return pa.concat_arrays([shared, copy_names(shared, self._location)])

    @property
    def _location(self) -> str | None:
        return None if self.table is None else self._target.root

    def _held(self, touched: pa.Array | None) -> Holdings:
        table = self.table
        head = None if table is None else table.metadata.head()
        if table is None or head is None:
            return NOTHING
        names = None if touched is None else self._all_names(touched)
        if names is not None and not len(names):
            return NOTHING
        return hold(table, head.id, names, self._name_vectors)

    def _name_vectors(self, deletes: pa.Table) -> pa.Array:
        columns = ("file_path", "content_offset", "file_format")
        paths, offsets, formats = (deletes.column(name).combine_chunks() for name in columns)
        return stored_ids(paths, offsets, formats, self._target)

    @cached_property
    def _target(self) -> Storage:
        if self.table is None:
            raise AssertionError("there is no target")
        return open_storage(self.spark, self.table.metadata.location)

    def _require_ours(self, properties: Mapping[str, str]) -> None:
        wanted = source_id(self.snapshot.metadata, self.snapshot.table)
        found = properties.get(SOURCE_ID)
        if found != wanted:
            whose = f"was made from table {found}" if found else "was not made by a conversion"
            raise PlanError(
                f"{self.name} {whose}, not from {self.snapshot.table} ({wanted})",
                hint="convert into another table, or drop that one first",
            )

    def _is_harmless(self, state: Converted) -> bool:
        """Tell whether those who committed since left all files and deletes as they were."""
        table, head = self.table, None if self.table is None else self.table.metadata.head()
        if table is None or head is None:
            return False
        now, then = (
            hold(table, number, None, lambda rows: pa.nulls(len(rows), pa.string()))
            for number in (head.id, state.snapshot.id)
        )
        return now.same_files(then)

    def _foreign(self, state: Converted | None) -> tuple[str, ...]:
        since = "" if state is None else f" since version {state.version} was converted"
        if self.options.foreign == "refuse":
            raise PlanError(
                f"others have changed files of {self.name}{since}",
                hint="their changes are lost if you pass foreign='overwrite'"
                " (--overwrite-foreign): the target then gets what the source says",
            )
        return (f"others have changed files of {self.name}{since}: taken back",)

    def _is_another_history(self, state: Converted) -> bool:
        """Tell whether the source was taken back, and has counted on from there since."""
        if state.transaction_id is None or state.version > self.snapshot.version:
            return False
        now = commit_facts(self.snapshot, state.version).transaction_id
        return now is not None and now != state.transaction_id

    def _rollback(self, state: Converted | None) -> tuple[str, ...]:
        """Notice that the target was taken back to an older snapshot."""
        if self.table is None or state is None:
            return ()
        hint = self.table.metadata.properties.get(SOURCE_VERSION, "")
        if hint.isdecimal() and int(hint) > state.version:
            return (f"{self.name} was rolled back from version {hint} to {state.version}",)
        return ()


def _touching(step: VersionStep) -> _Version:
    return _Version(step.facts, step.metadata, step.changes.live, step.changes)


def _keys(paths: pa.Array, ids: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(paths, ids, "\0", null_handling="skip")
