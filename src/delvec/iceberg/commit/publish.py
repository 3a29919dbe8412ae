"""Snapshots that are staged on a branch of their own, and published when they are verified.

`begin` says what to write for, `stage` commits the snapshots onto a branch of their own, where they
can be read and verified, and `publish` points `main` to the newest of them, together with its
schema. Until then readers see the table as before. Both are single commits on the metadata that was
read: the second committer gets a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from delvec.errors import ConflictError
from delvec.iceberg.client.catalog import (
    LoadedTable,
    TableName,
    catalog_of,
    find_table,
    iceberg_view,
    parse_metadata,
    reload_table,
)
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.commit.commit import CreatedTable, RowChange, Transaction, commit, row_delta

_ATTEMPTS: Final = 5
_UNSORTED: Final = 0  # the id of the sort order that every table has


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot to be staged.

    Attributes:
        schema: The table's schema from this snapshot on; None if it does not change.
        last_column_id: The highest field id that was ever used.
        tag: The tag that it gets when it is published.
    """

    change: RowChange
    schema: Mapping[str, Any] | None = None
    last_column_id: int = 0
    tag: str | None = None


@dataclass(frozen=True)
class NewTable:
    """How to create a table that does not exist yet."""

    schema: Mapping[str, Any]
    last_column_id: int
    spec: Mapping[str, Any]
    format_version: int
    location: str | None = None


@dataclass(frozen=True)
class Staged:
    """Snapshots on a branch of their own, to be published or abandoned.

    Attributes:
        snapshot_ids: The staged snapshots, oldest first.
        tags: Snapshot ids by the tag that each gets when it is published.
        parent: What `main` pointed to; None for a table without snapshots.
        schema_id: The schema of the table after publication.
        layout_until_then: The ids of the table's schema and partition spec until then.
        spec_id: The partition spec of added files, and of the table after publication.
    """

    table: LoadedTable
    branch: str
    snapshot_ids: tuple[int, ...]
    tags: Mapping[str, int]
    parent: int | None
    schema_id: int
    layout_until_then: tuple[int, int]
    spec_id: int

    @property
    def snapshot_id(self) -> int:
        return self.snapshot_ids[-1]


def begin(spark: SparkSession, name: TableName, base: LoadedTable | NewTable) -> LoadedTable:
    """Return the newest metadata of a table, or a table that staging creates; nothing is written.

    `base` is the table as it was when the change was planned: `main`, the schema and the partition
    spec must be as they were. Only the catalog knows the location of a new table.
    """
    if isinstance(base, NewTable):
        with translate_errors(str(name)):
            return _creation(spark, name, base)
    newest = reload_table(base)
    _require_main_at(_head_id(base), newest)
    _require_layout(_layout(base), newest)
    return newest


def stage(
    table: LoadedTable,
    branch: str,
    snapshots: Iterable[NewSnapshot],
    properties: Mapping[str, str],
    spec_id: int,
    *,
    before_commit: Callable[[], None] = lambda: None,
) -> Staged:
    """Commit snapshots onto a new branch, in one commit; it creates a new table.

    `table` is what `begin` returned. `properties` of the table are set with them; they must not
    disturb readers of `main`. `spec_id` is the partition spec of added files, which becomes the
    table's default when they are published. `before_commit` is called when all manifests are
    written.

    The driver's JVM holds the added files until their manifests are written: 1 to 2 kB each.
    """
    parent, until_then = _head_id(table), _layout(table)
    schema_id = until_then[0]
    ids: list[int] = []
    tags: dict[str, int] = {}

    def change(base: LoadedTable, transaction: Transaction) -> None:
        nonlocal schema_id, until_then
        if parent is not None:
            # Iceberg would begin a new branch by itself, but count its totals from zero.
            transaction.add(transaction.handle.manageSnapshots().createBranch(branch, parent))
        transaction.set_properties(properties)
        for snapshot in snapshots:
            if snapshot.schema is not None:
                _set_schema(transaction, snapshot.schema, snapshot.last_column_id, spec_id)
            head = ids[-1] if ids else parent
            transaction.add(row_delta(base, transaction.handle, branch, head, snapshot.change))
            ids.append(transaction.current.ref(branch).snapshotId())
            if snapshot.tag is not None:
                tags[snapshot.tag] = ids[-1]
        start, schema_id = base.current, transaction.current.currentSchemaId()
        if start is not None and schema_id != start.currentSchemaId():
            # Snapshots remember their schema; readers of `main` keep theirs until publication.
            transaction.amend(
                lambda builder: (
                    builder.setCurrentSchema(start.currentSchemaId())
                    .setDefaultPartitionSpec(start.defaultSpecId())
                    .setDefaultSortOrder(start.defaultSortOrderId())
                )
            )
        final = transaction.current
        until_then = final.currentSchemaId(), final.defaultSpecId()
        before_commit()

    staged = commit(table, change, what=f"STAGE {branch}").table
    return Staged(staged, branch, tuple(ids), tags, parent, schema_id, until_then, spec_id)


def publish(
    staged: Staged, properties: Mapping[str, str], stale: Sequence[str] = ()
) -> LoadedTable:
    """Point `main` to the staged snapshot and set its tags, in one commit; remove the branch.

    Other branches, `stale`, are removed as well. It is a conflict if since it was staged `main` has
    moved, the schema or partition spec was changed, or a staged snapshot was expired.
    """

    def change(base: LoadedTable, transaction: Transaction) -> None:
        _require_main_at(staged.parent, base)
        _require_layout(staged.layout_until_then, base)
        for expected in (staged.snapshot_id, *staged.tags.values()):
            if expected not in base.metadata.snapshots:
                raise ConflictError(
                    f"somebody else expired snapshot {expected} of {base.name}, which was staged",
                    hint="run it again: it is then staged again",
                )
        schema = base.current.schemasById().get(staged.schema_id)

        def published(builder: Any) -> Any:  # noqa: ANN401
            builder = builder.setCurrentSchema(staged.schema_id)
            builder = builder.setDefaultPartitionSpec(staged.spec_id)
            builder = builder.setDefaultSortOrder(_sort_order_id(base.current, schema))
            builder = builder.setBranchSnapshot(staged.snapshot_id, MAIN)
            for branch in (staged.branch, *stale):
                builder = builder.removeRef(branch)
            for tag, snapshot_id in staged.tags.items():
                ref = iceberg_view(base.spark).SnapshotRef.tagBuilder(snapshot_id).build()
                builder = builder.setRef(tag, ref)
            return builder

        transaction.amend(published)
        transaction.set_properties(properties)

    return commit(reload_table(staged.table), change, what=f"PUBLISH {staged.branch}").table


def abandon(staged: Staged) -> None:
    """Remove the branch of what was staged.

    The snapshots stay in the metadata without a ref. A table that was created by staging stays as
    an empty table: no catalog can drop a table on the condition that nobody has written to it.
    """
    table = find_table(staged.table.spark, staged.table.name)
    if table is None or table.metadata.uuid != staged.table.metadata.uuid:
        return

    def change(_: LoadedTable, transaction: Transaction) -> None:
        transaction.amend(lambda builder: builder.removeRef(staged.branch))

    # Whoever won the race that this one lost may be committing still.
    commit(table, change, what=f"ABANDON {staged.branch}", attempts=_ATTEMPTS)


def set_properties(table: LoadedTable, properties: Mapping[str, str]) -> None:
    """Set properties of a table, on the very metadata that was loaded, and change nothing else."""

    def change(_: LoadedTable, transaction: Transaction) -> None:
        transaction.set_properties(properties)

    commit(table, change, what="SET PROPERTIES")


def _creation(spark: SparkSession, name: TableName, new: NewTable) -> CreatedTable:
    """Begin to create a table whose columns keep the field ids that they have in the files.

    Iceberg assigns fresh ids to the columns of a new table, so the table starts without columns.
    The partition spec of that start is removed: some engines refuse an unused spec.
    """
    view = iceberg_view(spark)
    catalog, identifier = catalog_of(spark, name)
    builder = catalog.buildTable(identifier, view.Schema([]))
    builder = builder.withProperty("format-version", str(new.format_version))
    if new.location is not None:
        builder = builder.withLocation(new.location)
    transaction = Transaction(spark, builder.createTransaction())
    schema = view.SchemaParser.fromJson(json.dumps(new.schema))
    unused = {transaction.current.defaultSpecId()}

    def defined(builder: Any) -> Any:  # noqa: ANN401
        builder = builder.setCurrentSchema(schema, new.last_column_id)
        if new.spec["fields"]:
            spec = view.PartitionSpecParser.fromJson(schema, json.dumps(new.spec))
            builder = builder.setDefaultPartitionSpec(spec)
            view.MetadataUpdate.RemovePartitionSpecs(unused).applyTo(builder)
        return builder

    transaction.amend(defined)
    handle, start = transaction.handle, parse_metadata(spark, transaction.current)
    return CreatedTable(spark, name, handle.table(), start, None, handle)


def _set_schema(
    transaction: Transaction, schema: Mapping[str, Any], last_column_id: int, spec_id: int
) -> None:
    """Set the schema, with a partition spec and a sort order of columns that it has."""
    base = transaction.current
    new = iceberg_view(transaction.spark).SchemaParser.fromJson(json.dumps(schema))
    transaction.amend(
        lambda builder: (
            builder.setCurrentSchema(new, max(last_column_id, base.lastColumnId()))
            .setDefaultPartitionSpec(spec_id)
            .setDefaultSortOrder(_sort_order_id(base, new))
        )
    )


def _sort_order_id(metadata: Any, schema: Any) -> int:  # noqa: ANN401
    """Return the table's sort order, or none if a schema lacks a column of it."""
    for field in metadata.sortOrder().fields():
        if schema.findField(field.sourceId()) is None:
            return _UNSORTED
    found: int = metadata.defaultSortOrderId()
    return found


def _head_id(table: LoadedTable) -> int | None:
    head = table.metadata.head()
    return None if head is None else head.id


def _layout(table: LoadedTable) -> tuple[int, int]:
    return table.metadata.schema["schema-id"], table.metadata.spec["spec-id"]


def _require_main_at(expected: int | None, table: LoadedTable) -> None:
    found = _head_id(table)
    if found != expected:
        raise ConflictError(
            f"somebody else committed to {table.name}: expected snapshot {expected}, found {found}",
            hint="run it again: the difference is then found again",
        )


def _require_layout(expected: tuple[int, int], table: LoadedTable) -> None:
    found = _layout(table)
    if found != expected:
        raise ConflictError(
            f"somebody else changed {table.name}: expected schema {expected[0]} and partition spec"
            f" {expected[1]}, found {found[0]} and {found[1]}",
            hint="run it again: the change is then named",
        )
