"""Making the plan of a conversion: metadata of both sides is read, nothing is written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.calendars import require_modern_dates
from delvec.conversion.copies import copy_names, place
from delvec.conversion.counting import physical_rows
from delvec.conversion.difference import differ
from delvec.conversion.evolution import require_evolution
from delvec.conversion.holdings import NOTHING, hold
from delvec.conversion.names import target_paths
from delvec.conversion.partitions import partition_spec, require_same_spec
from delvec.conversion.position_deletes import digest
from delvec.conversion.schema import target_schema
from delvec.conversion.source import (
    changes_between,
    commit_facts,
    oldest_version,
    versions_after,
)
from delvec.conversion.state import NAME_MAPPING, SOURCE_ID, SOURCE_VERSION, converted, source_id
from delvec.conversion.step import PlannedStep, ids_of
from delvec.conversion.stored_ids import referenced_keys, stored_ids
from delvec.delta.snapshot import open_snapshot
from delvec.errors import InvalidArgumentError, PlanError, UnsupportedFeatureError
from delvec.spark.stores import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.conversion.holdings import Holdings
    from delvec.conversion.options import ConversionOptions
    from delvec.conversion.schema import TargetSchema
    from delvec.conversion.source import Changes, CommitFacts, VersionStep
    from delvec.conversion.state import Converted
    from delvec.delta.fileset import FileSet
    from delvec.delta.metadata import Metadata
    from delvec.delta.snapshot import Snapshot
    from delvec.iceberg.gateway import IcebergTable, TableName
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
    touched: pa.Array | None  # decoded paths; None for all

    @property
    def mode(self) -> Literal["full", "incremental"]:
        return "full" if self.touched is None else "incremental"


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
        whole = _Version(commit_facts(first, start), first.metadata, first.files, None)
        steps = versions_after(storage, start, end)
        return self._chained(None, [whole, *map(_touching, steps)], NOTHING, ())

    def _onwards(self, state: Converted, notes: tuple[str, ...]) -> Planned:
        """Go on from the version that the target holds."""
        changes = changes_between(self.snapshot, state.version)
        if changes is None:
            note = (
                f"the commits after version {state.version} are not all in the log, or not in this"
                " order: all files were compared"
            )
            return self._full(state, (*notes, note))
        held = self._held(changes.touched)
        if self._is_unclear(changes, held):
            note = (
                f"the commits after version {state.version} name other vectors than the target has:"
                " all files were compared"
            )
            return self._full(state, (*notes, note))
        try:
            if self.options.history == "per-version":
                steps = versions_after(self.snapshot.storage, state.version, self.snapshot.version)
                return self._chained(state, list(map(_touching, steps)), held, notes)
            return self._chained(state, [self._latest(changes)], held, notes)
        except UnsupportedFeatureError as error:
            # A schema that Iceberg cannot follow is no matter if all files are new.
            return self._full(state, (*notes, f"{error.message}: all files were compared"))

    def _latest(self, changes: Changes) -> _Version:
        facts = commit_facts(self.snapshot, self.snapshot.version)
        return _Version(facts, self.snapshot.metadata, changes.live, changes.touched)

    def _full(self, state: Converted | None, notes: tuple[str, ...]) -> Planned:
        """Compare all files of both sides."""
        snapshot = self.snapshot
        facts = commit_facts(snapshot, snapshot.version)
        whole = _Version(facts, snapshot.metadata, snapshot.files, None)
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
        current: Mapping[str, Any] | None = None
        last = 0
        if self.table is not None:
            current, last = self.table.metadata.schema, self.table.metadata.last_column_id
        for version in versions:
            rest = NOTHING
            mine = held
            if version.touched is not None:
                inside = pc.is_in(held.paths, value_set=self._all_names(version.touched))
                mask = inside.to_numpy(zero_copy_only=False)
                mine = replace(held.select(mask), strays=held.strays)
                rest = held.select(~mask)
            step = self._step(version, mine, current, last)
            steps.append(step)
            current, last = step.schema.to_json(), max(last, step.schema.last_column_id)
            held = rest.joined(step.held_after())
        start = None if state is None else state.version
        return Planned(start, tuple(steps), held, notes)

    def _step(
        self, version: _Version, held: Holdings, current: Mapping[str, Any] | None, last: int
    ) -> PlannedStep:
        table = self.snapshot.table
        schema = target_schema(
            version.metadata,
            table=table,
            format_version=self.format_version,
            current=current,
            last_column_id=last,
        )
        spec = partition_spec(
            version.metadata, schema, table=table, transforms=self._has_transforms
        )
        if self.table is not None:
            require_same_spec(self.table.metadata.spec, spec, table, schema=schema)
        files = version.files
        paths, copied = self._placed(files, held, schema)
        difference = differ(paths, files.has_vector, self._vector_names(files, held), held)
        if current is not None:
            nothing_stays = version.touched is None and bool((difference.places < 0).all())
            require_evolution(
                current,
                schema,
                table,
                all_files_replaced=nothing_stays,
                current_mapping=self._name_mapping,
            )
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

    @property
    def _name_mapping(self) -> list[dict[str, Any]]:
        properties = {} if self.table is None else self.table.metadata.properties
        mapping: list[dict[str, Any]] = json.loads(properties.get(NAME_MAPPING, "[]"))
        return mapping

    def _is_unclear(self, changes: Changes, held: Holdings) -> bool:
        """Tell whether commits touch a file of the target, but not with the vector that it has.

        A remove counts for the vector that it names. One that names another leaves the file live,
        which only the files of the whole version show.
        """
        names = self._all_names(changes.spoken["path"].combine_chunks())
        ids = pa.concat_arrays([changes.spoken["vector_id"].combine_chunks()] * 2)
        spoken = [_keys(names, ids)]
        if self.format_version == 2:
            spoken.append(_keys(names, digest(ids)))
        in_place = pc.fill_null(pc.match_substring(held.ids, ".bin@"), False)
        touched = pc.is_in(held.paths, value_set=names)
        known = pc.is_in(_keys(held.paths, held.ids), value_set=pa.concat_arrays(spoken))
        unknown = pc.and_not(pc.and_not(touched, known), in_place)
        return bool(pc.any(unknown).as_py())

    def _names(self, paths: pa.Array) -> pa.Array:
        return target_paths(self.snapshot.table, paths)

    def _all_names(self, paths: pa.Array) -> pa.Array:
        """Give both that the target may call files: all their names, then all of copies."""
        shared = self._names(paths)
        return pa.concat_arrays([shared, copy_names(shared, self._location)])

    @property
    def _location(self) -> str | None:
        return None if self.table is None else self._target.root

    def _held(self, touched: pa.Array | None, snapshot_id: int | None = None) -> Holdings:
        table = self.table
        head = None if table is None else table.metadata.head()
        if table is None or head is None:
            return NOTHING
        names = None if touched is None else self._all_names(touched)
        if names is not None and not len(names):
            return NOTHING
        return hold(table, snapshot_id or head.id, names, self._name_vectors)

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
        return self._held(None).same_files(self._held(None, state.snapshot.id))

    def _foreign(self, state: Converted | None) -> tuple[str, ...]:
        since = "" if state is None else f" since version {state.version} was converted"
        if self.options.foreign == "refuse":
            raise PlanError(
                f"others have changed files of {self.name}{since}",
                hint="their changes are lost if you pass foreign='overwrite'"
                " (--overwrite-foreign): the target then gets what the source says",
            )
        return (f"others have changed files of {self.name}{since}: taken back",)

    def _rollback(self, state: Converted | None) -> tuple[str, ...]:
        """Notice that the target was taken back to an older snapshot."""
        if self.table is None or state is None:
            return ()
        hint = self.table.metadata.properties.get(SOURCE_VERSION, "")
        if hint.isdecimal() and int(hint) > state.version:
            return (f"{self.name} was rolled back from version {hint} to {state.version}",)
        return ()


def _touching(step: VersionStep) -> _Version:
    return _Version(step.facts, step.metadata, step.changes.live, step.changes.touched)


def _keys(paths: pa.Array, ids: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(paths, ids, "\0", null_handling="skip")
