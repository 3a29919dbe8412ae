"""Changing an Iceberg table: the only place that does.

A change is staged on a branch of its own, can be read and checked there, and is then published:
one commit sets `main` to what the branch holds, together with the schema that belongs to it. Until
then readers see the table as before. Both steps are single commits on the metadata that was read,
which no retry of Iceberg's replays on top of somebody else's: who comes second is told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.errors import ConflictError, PlanError
from delvec.iceberg.client.catalog import catalog_of, find_table, iceberg_view, load_table
from delvec.iceberg.client.failures import CommitStateUnknownError, explained
from delvec.iceberg.client.file_json import in_arrays
from delvec.iceberg.client.metadata import MAIN
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import IcebergTable, TableName

__all__ = [
    "NewTable",
    "Place",
    "RowChange",
    "Staged",
    "Step",
    "abandon",
    "drop",
    "publish",
    "stage",
]

_BETWEEN: Final = "\0"


def _nothing() -> pa.Array:
    return pa.array([], pa.string())


@dataclass(frozen=True, eq=False)
class RowChange:
    """What one snapshot changes, as columns.

    Attributes:
        data_files: Files to add, as `content_files.data_file_texts` tells them.
        delete_files: Deletes to add, as `content_files.delete_file_texts` tells them.
        removed_data: Paths of data files to remove.
        removed_deletes: Delete files to remove: path and offset with `@` between, or path alone.
        marked_data: Paths of data files which are there already and get deletes.
        summary: What the snapshot's summary shall say besides.
    """

    data_files: pa.Array = field(default_factory=_nothing)
    delete_files: pa.Array = field(default_factory=_nothing)
    removed_data: pa.Array = field(default_factory=_nothing)
    removed_deletes: pa.Array = field(default_factory=_nothing)
    marked_data: pa.Array = field(default_factory=_nothing)
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One snapshot, the schema that holds from it on, and a tag for it."""

    change: RowChange
    schema: Mapping[str, Any] | None = None
    last_column_id: int = 0
    tag: str | None = None


@dataclass(frozen=True)
class NewTable:
    """How a table is made that is not there yet."""

    schema: Mapping[str, Any]
    last_column_id: int
    spec: Mapping[str, Any]
    format_version: int
    location: str | None = None


@dataclass(frozen=True)
class Place:
    """Where the files of a change go."""

    location: str
    spec_id: int


@dataclass(frozen=True)
class Staged:
    """What was staged.

    Attributes:
        snapshot_ids: One for each step, in order.
        tags: The tags that snapshots get when they are published.
        parent: What `main` stood at; None for a table without snapshots.
        schema_id: What becomes the table's schema when it is published.
    """

    table: IcebergTable
    branch: str
    snapshot_ids: tuple[int, ...]
    tags: Mapping[str, int]
    parent: int | None
    schema_id: int
    is_new: bool

    @property
    def snapshot_id(self) -> int:
        """The newest snapshot."""
        return self.snapshot_ids[-1]


def stage(
    spark: SparkSession,
    name: TableName,
    base: IcebergTable | NewTable,
    branch: str,
    make_steps: Callable[[Place], Iterable[Step]],
    properties: Mapping[str, str],
) -> Staged:
    """Write snapshots onto a new branch, in one commit; make the table if it is not there.

    The driver's JVM holds the added files until their manifests are written: 1 to 2 kB each.

    Args:
        spark: The session.
        name: The table.
        base: The table as it was when the change was planned, or how to make it.
        branch: The name of the branch; there must be none of that name.
        make_steps: Gives the snapshots, each of which builds on the one before. It is told where
            the table is, which of a new one only the catalog knows.
        properties: Properties of the table to set now, which must not harm who reads `main`.

    Raises:
        ConflictError: The table was changed or made meanwhile.
        PlanError: A file to be removed is not there.
    """
    view = iceberg_view(spark)
    with explained(str(name)):
        is_new = isinstance(base, NewTable)
        transaction = (
            _creation(spark, name, base)
            if isinstance(base, NewTable)
            else base.handle.newTransaction()
        )
        start = transaction.startMetadata()  # none of a new table
        parent = None if isinstance(base, NewTable) else _require_unchanged(base, start, name)
        if parent is not None:
            # Iceberg would begin a new branch here by itself, and count its totals from zero.
            transaction.manageSnapshots().createBranch(branch, parent).commit()
        _set_properties(transaction, properties)
        snapshots: list[int] = []
        tags: dict[str, int] = {}
        place = Place(transaction.table().location(), transaction.table().spec().specId())
        for step in make_steps(place):
            if step.schema is not None:
                _set_schema(view, transaction, step.schema, step.last_column_id)
            head = snapshots[-1] if snapshots else parent
            snapshots.append(_write(spark, transaction, branch, head, step.change, str(name)))
            if step.tag is not None:
                tags[step.tag] = snapshots[-1]
        schema_id = transaction.currentMetadata().currentSchemaId()
        final = transaction.currentMetadata()
        if start is not None and schema_id != start.currentSchemaId():
            # Snapshots remember their schema; readers of `main` keep theirs until publication.
            before = start.currentSchemaId()
            final = view.TableMetadata.buildFrom(final).setCurrentSchema(before).build()
        try:
            transaction.underlyingOps().commit(start, final)
        except Exception as error:
            if not _state_is_unknown(error) or not _has_branch(spark, name, branch):
                raise
    table = load_table(spark, name)
    return Staged(table, branch, tuple(snapshots), tags, parent, schema_id, is_new)


def publish(
    staged: Staged, properties: Mapping[str, str], stale: Sequence[str] = ()
) -> IcebergTable:
    """Let `main` stand at what was staged, and set its tags, in one commit; remove the branch.

    Args:
        staged: What was staged.
        properties: Properties of the table to set.
        stale: Other branches to remove.

    Raises:
        ConflictError: Somebody else has committed to `main` since.
    """
    table, spark = staged.table, staged.table.spark
    view = iceberg_view(spark)
    with explained(str(table.name)):
        operations = table.handle.operations()
        base = operations.refresh()
        _require_main(base, staged.parent, table.name)
        builder = view.TableMetadata.buildFrom(base).setCurrentSchema(staged.schema_id)
        builder = builder.setBranchSnapshot(staged.snapshot_id, MAIN)
        for branch in (staged.branch, *stale):
            builder = builder.removeRef(branch)
        for tag, snapshot_id in staged.tags.items():
            builder = builder.setRef(tag, view.SnapshotRef.tagBuilder(snapshot_id).build())
        builder = builder.setProperties(_java_map(spark, properties))
        try:
            operations.commit(base, builder.build())
        except Exception as error:
            if not _state_is_unknown(error):
                raise
            head = load_table(spark, table.name).metadata.head()
            if head is None or head.id != staged.snapshot_id:
                raise
        spark.catalog.refreshTable(str(table.name))
    return load_table(spark, table.name)


def abandon(staged: Staged) -> None:
    """Take back what was staged: remove the branch, or the table if it was made for it.

    A table that was made for it and that somebody else has written to since is theirs, too: it
    stays. Snapshots stay in the metadata, where nobody refers to them.
    """
    table = find_table(staged.table.spark, staged.table.name)
    if table is None or table.metadata.uuid != staged.table.metadata.uuid:
        return
    if staged.is_new and set(table.metadata.refs) <= {staged.branch}:
        drop(table.spark, table.name)
        return
    view = iceberg_view(table.spark)
    with explained(str(table.name)):
        operations = table.handle.operations()
        base = operations.refresh()
        changed = view.TableMetadata.buildFrom(base).removeRef(staged.branch).build()
        operations.commit(base, changed)
        table.spark.catalog.refreshTable(str(table.name))


def drop(spark: SparkSession, name: TableName) -> None:
    """Remove a table from its catalog; files outside of its own folder stay in any case."""
    with explained(str(name)):
        catalog, identifier = catalog_of(spark, name)
        catalog.dropTable(identifier, False)


def _creation(spark: SparkSession, name: TableName, new: NewTable) -> Any:  # noqa: ANN401
    """Begin to make a table whose columns keep the ids that they have in the files.

    Iceberg numbers the columns of a new table afresh, so it begins as one without columns; the
    spec that this leaves behind is removed, since some engines refuse a spec that nobody uses.
    """
    view = iceberg_view(spark)
    catalog, identifier = catalog_of(spark, name)
    nothing = view.Schema(jvm.view_of(spark).java.util.ArrayList())
    builder = catalog.buildTable(identifier, nothing)
    builder = builder.withProperty("format-version", str(new.format_version))
    if new.location is not None:
        builder = builder.withLocation(new.location)
    transaction = builder.createTransaction()
    operations = transaction.table().operations()
    base = operations.current()
    schema = view.SchemaParser.fromJson(json.dumps(new.schema))
    metadata = view.TableMetadata.buildFrom(base).setCurrentSchema(schema, new.last_column_id)
    if new.spec["fields"]:
        spec = view.PartitionSpecParser.fromJson(schema, json.dumps(new.spec))
        metadata = metadata.setDefaultPartitionSpec(spec)
        unused = jvm.view_of(spark).java.util.HashSet()
        unused.add(base.defaultSpecId())
        view.MetadataUpdate.RemovePartitionSpecs(unused).applyTo(metadata)
    operations.commit(base, metadata.build())
    return transaction


def _set_schema(
    view: Any,  # noqa: ANN401
    transaction: Any,  # noqa: ANN401
    schema: Mapping[str, Any],
    last_column_id: int,
) -> None:
    operations = transaction.table().operations()
    base = operations.current()
    new = view.SchemaParser.fromJson(json.dumps(schema))
    last = max(last_column_id, base.lastColumnId())
    changed = view.TableMetadata.buildFrom(base).setCurrentSchema(new, last).build()
    operations.commit(base, changed)


def _set_properties(transaction: Any, properties: Mapping[str, str]) -> None:  # noqa: ANN401
    if not properties:
        return
    update = transaction.updateProperties()
    for key, value in properties.items():
        update = update.set(key, value)
    update.commit()


def _write(
    spark: SparkSession,
    transaction: Any,  # noqa: ANN401
    branch: str,
    head: int | None,
    change: RowChange,
    table: str,
) -> int:
    """Write one snapshot onto the branch; give its id."""
    work = _row_changes(spark)
    target = transaction.table()
    specs = target.specs()
    delta = transaction.newRowDelta().toBranch(branch)
    for texts in (change.data_files, change.delete_files):
        for text in in_arrays(texts):
            work.add(delta, specs, text)
    for remove, names in (
        (work.removeRows, change.removed_data),
        (work.removeDeletes, change.removed_deletes),
    ):
        if not len(names):
            continue
        found = 0 if head is None else remove(delta, target, head, _BETWEEN.join(names.to_pylist()))
        if found != len(names):
            raise PlanError(
                f"{table} has {found} of {len(names)} files that shall be removed",
                hint="was the table changed since the plan was made? Make it anew",
            )
    if head is not None:
        delta = delta.validateFromSnapshot(head).validateDeletedFiles()
        if len(change.marked_data):
            work.requireDataFiles(delta, _BETWEEN.join(change.marked_data.to_pylist()))
    for key, value in change.summary.items():
        delta = delta.set(key, value)
    delta.commit()
    snapshot_id: int = transaction.currentMetadata().ref(branch).snapshotId()
    return snapshot_id


def _row_changes(spark: SparkSession) -> Any:  # noqa: ANN401
    """Give the part that is in Java, compiled once for a JVM."""
    things = jvm.cache(spark)
    if "row changes" not in things:
        source = package_files("delvec.iceberg.client").joinpath("RowChanges.java").read_text()
        [constructor] = jvm.compiled(spark, "delvec.RowChanges", source).getConstructors()
        nothing = jvm.array_of(spark, jvm.view_of(spark).java.lang.Object, [])
        things["row changes"] = constructor.newInstance(nothing)
    return things["row changes"]


def _require_unchanged(base: IcebergTable, start: Any, name: TableName) -> int | None:  # noqa: ANN401
    head = base.metadata.head()
    expected = None if head is None else head.id
    _require_main(start, expected, name)
    return expected


def _require_main(metadata: Any, expected: int | None, name: TableName) -> None:  # noqa: ANN401
    ref = metadata.ref(MAIN)
    found = None if ref is None else ref.snapshotId()
    if found != expected:
        raise ConflictError(
            f"somebody else committed to {name}: expected snapshot {expected}, found {found}",
            hint="run it again: the difference is then found anew",
        )


def _state_is_unknown(error: Exception) -> bool:
    return isinstance(error, CommitStateUnknownError) or "CommitStateUnknownException" in str(error)


def _has_branch(spark: SparkSession, name: TableName, branch: str) -> bool:
    table = find_table(spark, name)
    return table is not None and branch in table.metadata.refs


def _java_map(spark: SparkSession, values: Mapping[str, str]) -> Any:  # noqa: ANN401
    made = jvm.view_of(spark).java.util.HashMap()
    for key, value in values.items():
        made.put(key, value)
    return made
