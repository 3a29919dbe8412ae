"""Changing an Iceberg table: the only module that commits.

`begin` opens a transaction, `prepare` writes manifests, `stage` commits the snapshots onto a branch
of their own, where they can be read and verified, and `publish` points `main` to the newest of
them, together with its schema. Until then readers see the table as before. Staging and publishing
are single commits on the metadata that was read, so Iceberg's retries cannot replay them on top of
a concurrent commit: the second committer gets a conflict.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import ConflictError, VerificationError
from delvec.iceberg.client.catalog import (
    catalog_of,
    find_table,
    iceberg_view,
    load_table,
    parsed,
)
from delvec.iceberg.client.failures import explained, is_commit_state_unknown
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.client.own_location import require_own_log
from delvec.iceberg.commits.changes import NewTable, OpenTransaction, Prepared, Staged
from delvec.iceberg.commits.row_delta import row_delta
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable, TableName
    from delvec.iceberg.commits.changes import NewSnapshot

__all__ = [
    "abandon",
    "begin",
    "change_properties",
    "prepare",
    "publish",
    "remove",
    "set_properties",
    "stage",
    "without",
]

_ATTEMPTS: Final = 5
_UNSORTED: Final = 0  # the id of the sort order that every table has


def begin(
    spark: SparkSession,
    name: TableName,
    base: LoadedTable | NewTable,
    spec_id: int | None = None,
) -> OpenTransaction:
    """Begin a transaction; nothing is written.

    Args:
        spark: The session.
        name: The table.
        base: The table as it was when the change was planned, or how to create it.
        spec_id: The partition spec of added files, which becomes the table's default when they are
            published; by default the one that is.

    Raises:
        ConflictError: `main` has moved since, or the schema or partition spec was changed.
    """
    with explained(str(name)):
        if isinstance(base, NewTable):
            transaction, parent = _creation(spark, name, base), None
        else:
            require_own_log(base)
            transaction = base.handle.newTransaction()
            head = base.metadata.head()
            parent = None if head is None else head.id
            start = transaction.startMetadata()
            _require_main_at(parent, start, name)
            planned_on = base.metadata.schema["schema-id"], base.metadata.spec["spec-id"]
            _require_layout(planned_on, start, name)
        table = transaction.table()
        location = table.location()
        spec_id = table.spec().specId() if spec_id is None else spec_id
    return OpenTransaction(spark, name, transaction, location, spec_id, parent)


def prepare(
    opened: OpenTransaction,
    branch: str,
    snapshots: Iterable[NewSnapshot],
    properties: Mapping[str, str],
) -> Prepared:
    """Write the manifests of snapshots on a new branch; nothing is committed.

    The driver's JVM holds the added files until their manifests are written: 1 to 2 kB each.

    Args:
        opened: The transaction; it can be prepared once.
        branch: The name of the branch, which must not exist.
        snapshots: The snapshots, each on top of the one before.
        properties: Table properties to set with them; they must not disturb readers of `main`.

    Raises:
        PlanError: A file to be removed is not there.
    """
    spark, transaction = opened.spark, opened.handle
    view = iceberg_view(spark)
    with explained(str(opened.name)):
        if opened.parent is not None:
            # Iceberg would begin a new branch by itself, but count its totals from zero.
            transaction.manageSnapshots().createBranch(branch, opened.parent).commit()
        change_properties(transaction, properties)
        ids: list[int] = []
        tags: dict[str, int] = {}
        for snapshot in snapshots:
            if snapshot.schema is not None:
                _set_schema(view, opened, snapshot.schema, snapshot.last_column_id)
            head = ids[-1] if ids else opened.parent
            change, table = snapshot.change, str(opened.name)
            row_delta(spark, transaction, branch, head, change, table).commit()
            ids.append(transaction.currentMetadata().ref(branch).snapshotId())
            if snapshot.tag is not None:
                tags[snapshot.tag] = ids[-1]
        final = transaction.currentMetadata()
        schema_id = final.currentSchemaId()
        start = transaction.startMetadata()  # null for a new table
        if start is not None and schema_id != start.currentSchemaId():
            # Snapshots remember their schema; readers of `main` keep theirs until publication.
            final = (
                view.TableMetadata.buildFrom(final)
                .setCurrentSchema(start.currentSchemaId())
                .setDefaultPartitionSpec(start.defaultSpecId())
                .setDefaultSortOrder(start.defaultSortOrderId())
                .build()
            )
        until_then = final.currentSchemaId(), final.defaultSpecId()
    return Prepared(opened, branch, tuple(ids), tags, schema_id, until_then, final)


def stage(prepared: Prepared) -> Staged:
    """Commit prepared snapshots onto their branch, in one commit; it creates a new table.

    Raises:
        ConflictError: The table was changed or created meanwhile.
        CommitStateUnknownError: The commit may have happened or not.
    """
    opened = prepared.opened
    spark, name = opened.spark, opened.name
    with explained(str(name)):
        start = opened.handle.startMetadata()
        try:
            opened.handle.underlyingOps().commit(start, prepared.metadata)
        except Exception as error:
            if not is_commit_state_unknown(error) or not _has_branch(spark, name, prepared.branch):
                raise
    return Staged(
        load_table(spark, name),
        prepared.branch,
        prepared.snapshot_ids,
        prepared.tags,
        opened.parent,
        prepared.schema_id,
        prepared.layout_until_then,
        opened.spec_id,
    )


def publish(
    staged: Staged, properties: Mapping[str, str], stale: Sequence[str] = ()
) -> LoadedTable:
    """Point `main` to the staged snapshot and set its tags, in one commit; remove the branch.

    Args:
        staged: What was staged.
        properties: Table properties to set.
        stale: Other branches to remove.

    Raises:
        ConflictError: `main` has moved since it was staged, the schema or partition spec was
            changed, or a staged snapshot was expired.
    """
    table, spark = staged.table, staged.table.spark
    view = iceberg_view(spark)
    with explained(str(table.name)):
        operations = table.handle.operations()
        base = operations.refresh()
        _require_main_at(staged.parent, base, table.name)
        _require_layout(staged.layout_until_then, base, table.name)
        _require_snapshots((staged.snapshot_id, *staged.tags.values()), base, table.name)
        schema = base.schemasById().get(staged.schema_id)
        builder = view.TableMetadata.buildFrom(base).setCurrentSchema(staged.schema_id)
        builder = builder.setDefaultPartitionSpec(staged.spec_id)
        builder = builder.setDefaultSortOrder(_sort_order_id(base, schema))
        builder = builder.setBranchSnapshot(staged.snapshot_id, MAIN)
        for branch in (staged.branch, *stale):
            builder = builder.removeRef(branch)
        for tag, snapshot_id in staged.tags.items():
            builder = builder.setRef(tag, view.SnapshotRef.tagBuilder(snapshot_id).build())
        builder = builder.setProperties(_java_map(spark, properties))
        try:
            operations.commit(base, builder.build())
        except Exception as error:
            if not is_commit_state_unknown(error):
                raise
            head = load_table(spark, table.name).metadata.head()
            if head is None or head.id != staged.snapshot_id:
                raise
        spark.catalog.refreshTable(str(table.name))
    return load_table(spark, table.name)


def abandon(staged: Staged) -> None:
    """Remove the branch of what was staged.

    The snapshots stay in the metadata without a ref. A table that was created by staging stays as
    an empty table: no catalog can drop a table on the condition that nobody has written to it.

    Raises:
        ConflictError: Others committed to the table at the same time, again and again.
    """
    for _ in range(_ATTEMPTS - 1):
        # Whoever won the race that this one lost may be committing still.
        with suppress(ConflictError):
            _remove_staged(staged)
            return
    _remove_staged(staged)


def _remove_staged(staged: Staged) -> None:
    table = find_table(staged.table.spark, staged.table.name)
    if table is None or table.metadata.uuid != staged.table.metadata.uuid:
        return
    view = iceberg_view(table.spark)
    with explained(str(table.name)):
        operations = table.handle.operations()
        base = operations.refresh()
        changed = view.TableMetadata.buildFrom(base).removeRef(staged.branch).build()
        operations.commit(base, changed)
        table.spark.catalog.refreshTable(str(table.name))


def set_properties(table: LoadedTable, properties: Mapping[str, str]) -> None:
    """Set properties of a table, on the very metadata that was loaded, and change nothing else.

    Raises:
        ConflictError: Somebody else has committed to the table since it was loaded.
    """
    view = iceberg_view(table.spark)
    with explained(str(table.name)):
        require_own_log(table)
        base = _unchanged(table)
        values = _java_map(table.spark, properties)
        changed = view.TableMetadata.buildFrom(base).setProperties(values).build()
        table.handle.operations().commit(base, changed)
        table.spark.catalog.refreshTable(str(table.name))


def without(table: LoadedTable, snapshot_ids: Iterable[int], refs: Iterable[str]) -> LoadedTable:
    """Return a table as it would be without some snapshots and refs; nothing is committed.

    Iceberg's own call for this refuses a table with `gc.enabled=false`, whatever is to be deleted.
    This one changes metadata only; statistics of the snapshots go with them.

    Args:
        table: The table.
        snapshot_ids: Snapshots that no remaining ref points to.
        refs: Branches and tags.
    """
    spark = table.spark
    root, view = jvm.view_of(spark), iceberg_view(spark)
    with explained(str(table.name)):
        builder = view.TableMetadata.buildFrom(table.current)
        for ref in refs:
            builder = builder.removeRef(ref)
        # An array makes longs of small numbers as well, which Python's calls would not.
        longs = jvm.array_of(spark, root.long, tuple(snapshot_ids))
        boxed = view.relocated.com.google.common.primitives.Longs.asList(longs)
        ids = root.java.util.HashSet(boxed)
        changed = builder.removeSnapshots(ids).build()
        return replace(table, current=changed, metadata=parsed(spark, changed))


def remove(table: LoadedTable, wanted: LoadedTable, passing: Collection[str] = ()) -> LoadedTable:
    """Commit what `without` returned, on the very metadata that it was made from; delete no file.

    A REST catalog compares no metadata here: it checks the table's UUID, removes the snapshots from
    whatever it has by then, and with them every ref that points to one. So the metadata is compared
    right before the commit, and refs are looked for after it. What is left is a ref that somebody
    makes for an expiring snapshot between the two, within one request: it vanishes unnoticed.

    Args:
        table: The table as it was.
        wanted: The table as it is to be.
        passing: Refs of it that others may remove at any time.

    Returns:
        The table as its catalog has it afterwards.

    Raises:
        ConflictError: Somebody else committed meanwhile.
        CommitStateUnknownError: The commit may have happened or not.
        VerificationError: Refs are gone that were to stay; no file may be deleted then.
    """
    spark, name = table.spark, table.name
    before, after = table.metadata, wanted.metadata
    require_own_log(table)
    with explained(str(name)):
        try:
            table.handle.operations().commit(_unchanged(table), wanted.current)
        except Exception as error:
            if not is_commit_state_unknown(error):
                raise
            found = load_table(spark, name).metadata
            gone = before.snapshots.keys() - after.snapshots, before.refs.keys() - after.refs
            if gone[0] & found.snapshots.keys() or gone[1] & found.refs.keys():
                raise
        spark.catalog.refreshTable(str(name))
    newest = load_table(spark, name)
    _require_refs(set(after.refs).difference(passing), newest, table)
    return newest


def _unchanged(table: LoadedTable) -> Any:  # noqa: ANN401
    """Return Iceberg's metadata of a table if it is still what was loaded.

    Most catalogs compare it by themselves when it is committed on; REST catalogs do not.
    """
    found = table.handle.operations().refresh()
    # Some REST catalogs do not tell the location.
    before, now = (
        (each.metadataFileLocation(), each.lastUpdatedMillis()) for each in (table.current, found)
    )
    if before != now:
        raise ConflictError(
            f"somebody else committed to {table.name}: expected {before[0]}, found {now[0]}",
            hint="run it again: it is then planned anew",
        )
    return found


def _require_refs(expected: set[str], found: LoadedTable, before: LoadedTable) -> None:
    gone = sorted(expected - found.metadata.refs.keys(), key=lambda ref: (ref != MAIN, ref))
    if gone:
        raise VerificationError(
            f"{found.name} has lost {', '.join(gone)} while snapshots were removed: somebody"
            " committed at the same moment. No file was deleted",
            hint="unless somebody dropped it: register the table anew from the metadata before,"
            f" {before.current.metadataFileLocation()}",
        )


def _creation(spark: SparkSession, name: TableName, new: NewTable) -> Any:  # noqa: ANN401
    """Begin to create a table whose columns keep the field ids that they have in the files.

    Iceberg assigns fresh ids to the columns of a new table, so the table starts without columns.
    The partition spec of that start is removed: some engines refuse an unused spec.
    """
    view = iceberg_view(spark)
    catalog, identifier = catalog_of(spark, name)
    no_columns = view.Schema(jvm.view_of(spark).java.util.ArrayList())
    builder = catalog.buildTable(identifier, no_columns)
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
    opened: OpenTransaction,
    schema: Mapping[str, Any],
    last_column_id: int,
) -> None:
    """Set the schema, with a partition spec and a sort order of columns that it has."""
    operations = opened.handle.table().operations()
    base = operations.current()
    new = view.SchemaParser.fromJson(json.dumps(schema))
    changed = (
        view.TableMetadata.buildFrom(base)
        .setCurrentSchema(new, max(last_column_id, base.lastColumnId()))
        .setDefaultPartitionSpec(opened.spec_id)
        .setDefaultSortOrder(_sort_order_id(base, new))
        .build()
    )
    operations.commit(base, changed)


def _sort_order_id(metadata: Any, schema: Any) -> int:  # noqa: ANN401
    """Return the table's sort order, or none if a schema lacks a column of it."""
    for field in metadata.sortOrder().fields():
        if schema.findField(field.sourceId()) is None:
            return _UNSORTED
    found: int = metadata.defaultSortOrderId()
    return found


def change_properties(transaction: Any, properties: Mapping[str, str | None]) -> None:  # noqa: ANN401
    """Set table properties in a transaction, and remove those that are None."""
    if not properties:
        return
    update = transaction.updateProperties()
    for key, value in properties.items():
        update = update.remove(key) if value is None else update.set(key, value)
    update.commit()


def _require_main_at(expected: int | None, metadata: Any, name: TableName) -> None:  # noqa: ANN401
    ref = metadata.ref(MAIN)
    found = None if ref is None else ref.snapshotId()
    if found != expected:
        raise ConflictError(
            f"somebody else committed to {name}: expected snapshot {expected}, found {found}",
            hint="run it again: the difference is then found anew",
        )


def _require_snapshots(expected: Iterable[int], metadata: Any, name: TableName) -> None:  # noqa: ANN401
    for snapshot_id in expected:
        if metadata.snapshot(snapshot_id) is None:
            raise ConflictError(
                f"somebody else expired snapshot {snapshot_id} of {name}, which was staged",
                hint="run it again: it is then staged anew",
            )


def _require_layout(
    expected: tuple[int, int],
    metadata: Any,  # noqa: ANN401
    name: TableName,
) -> None:
    found = metadata.currentSchemaId(), metadata.defaultSpecId()
    if found != expected:
        raise ConflictError(
            f"somebody else changed {name}: expected schema {expected[0]} and partition spec"
            f" {expected[1]}, found {found[0]} and {found[1]}",
            hint="run it again: the change is then named",
        )


def _has_branch(spark: SparkSession, name: TableName, branch: str) -> bool:
    table = find_table(spark, name)
    return table is not None and branch in table.metadata.refs


def _java_map(spark: SparkSession, values: Mapping[str, str]) -> Any:  # noqa: ANN401
    made = jvm.view_of(spark).java.util.HashMap()
    for key, value in values.items():
        made.put(key, value)
    return made
