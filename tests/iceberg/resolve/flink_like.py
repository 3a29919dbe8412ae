"""Snapshots of the shape that Flink's sink for Iceberg commits, by Iceberg's writers for Java.

A batch, which Flink calls a checkpoint, becomes one `RowDelta` of data files, equality deletes and
deletes by position. Each change writes a deleted key, whether the table has it or not, unless the
batch itself wrote a row with that key: then the row is deleted by its position, by a vector in
tables of format 3 and by a position-delete file of format 2 (one for each data file, which names
the data file by its bounds only). Deletes stand in the partition of the changed row. Files of all
kinds, vectors too, have names that end in `.parquet`. Seen of Flink 2.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal

from delvec import IcebergTable
from delvec.iceberg.client.catalog import iceberg_view
from delvec.spark import jvm

Row = Mapping[str, Any]
Change = tuple[Literal["+", "-"], Row]


_NO_DELETES: Final = """
package delvec;
public class NoEarlierDeletes implements java.util.function.Function {
  public Object apply(Object path) { return null; }
}
"""
_attempts = count(1)


def commit_batch(
    table: IcebergTable,
    changes: Sequence[Change],
    keys: Sequence[str] = ("id",),
    *,
    branch: str = "main",
    changelog: bool = False,
) -> int:
    """Commit a batch of changes; return the id of the snapshot.

    A change is `+` and a row that is inserted or replaces that of its key, or `-` and a row whose
    key is deleted, with the columns of the partition at least. Values are in the form of Iceberg's
    JSON for single values. A branch that is not there is made from `main`. A changelog is as
    without `upsert-enabled`: a `+` deletes nothing, and deletes hold whole rows.
    """
    batch = _Batch(table, tuple(keys), changelog=changelog)
    for kind, row in changes:
        batch.write(kind, row)
    return batch.commit(branch)


@dataclass(eq=False)
class _Writers:
    """The open files of a partition."""

    partition: Any
    data: Any = None
    path: str = ""
    rows: int = 0
    deletes: Any = None
    written: dict[tuple[Any, ...], tuple[str, int]] = field(default_factory=dict)
    positions: list[tuple[str, int]] = field(default_factory=list)


class _Batch:
    """The writer of one batch, as one of Flink's tasks."""

    def __init__(self, table: IcebergTable, keys: tuple[str, ...], *, changelog: bool) -> None:
        handle = table._load().handle
        self._spark, self._handle, self._keys = table.spark, handle, keys
        self._changelog = changelog
        self._view = iceberg_view(self._spark)
        self._schema, self._spec = handle.schema(), handle.spec()
        names = jvm.view_of(self._spark).java.util.ArrayList()
        for name in keys:
            names.add(name)
        self._deleted = self._schema if changelog else self._schema.select(names)
        ids = [self._schema.findField(name).fieldId() for name in keys]
        parquet = self._view.FileFormat.PARQUET
        self._factory = (
            jvm.java_class(self._spark, "org.apache.iceberg.data.GenericFileWriterFactory.Builder")(
                handle
            )
            .dataFileFormat(parquet)
            .dataSchema(self._schema)
            .deleteFileFormat(parquet)
            .equalityFieldIds(jvm.array_of(self._spark, jvm.view_of(self._spark).int, ids))
            .equalityDeleteRowSchema(self._deleted)
            .build()
        )
        outputs = self._view.io.OutputFileFactory.builderFor(handle, 1, next(_attempts))
        self._outputs = outputs.format(parquet).build()
        self._partitions: dict[str, _Writers] = {}

    def write(self, kind: str, row: Row) -> None:
        writers = self._writers(row)
        key = tuple(row.get(name) for name in self._keys)
        if kind == "-" or not self._changelog:
            self._delete(writers, key, row)
        if kind == "+":
            if writers.data is None:
                output = self._output(writers)
                writers.path = str(output.encryptingOutputFile().location())
                writers.data = self._factory.newDataWriter(output, self._spec, writers.partition)
            earlier = writers.written.get(key)
            if earlier is not None:
                writers.positions.append(earlier)
            writers.written[key] = (writers.path, writers.rows)
            writers.data.write(self._record(self._schema, row))
            writers.rows += 1

    def commit(self, branch: str) -> int:
        delta = self._handle.newRowDelta()
        for writers in self._partitions.values():
            if writers.data is not None:
                writers.data.close()
                delta.addRows(writers.data.toDataFile())
            if writers.deletes is not None:
                writers.deletes.close()
                delta.addDeletes(writers.deletes.toDeleteFile())
        for delete in self._by_position():
            delta.addDeletes(delete)
        number = str(next(_attempts))
        delta.set("flink.max-committed-checkpoint-id", number)
        delta.set("flink.job-id", "0" * 32)
        delta.set("flink.operator-id", "1" * 32)
        delta.toBranch(branch).commit()
        self._handle.refresh()
        return int(self._handle.snapshot(branch).snapshotId())

    def _delete(self, writers: _Writers, key: tuple[Any, ...], row: Row) -> None:
        """Delete the row that the batch wrote for the key; those of earlier ones, by the key."""
        earlier = writers.written.pop(key, None)
        if earlier is not None:
            writers.positions.append(earlier)
            return
        if writers.deletes is None:
            output = self._output(writers)
            writers.deletes = self._factory.newEqualityDeleteWriter(
                output, self._spec, writers.partition
            )
        writers.deletes.write(self._record(self._deleted, row))

    def _by_position(self) -> list[Any]:
        """Write the deletes by position; return their files."""
        marked = [each for each in self._partitions.values() if each.positions]
        if not marked:
            return []
        if self._view.TableUtil.formatVersion(self._handle) >= 3:
            return self._vectors(marked)
        found = []
        for writers in marked:
            output = self._output(writers)
            writer = self._factory.newPositionDeleteWriter(output, self._spec, writers.partition)
            for path, position in sorted(writers.positions):
                delete = jvm.java_class(
                    self._spark, "org.apache.iceberg.deletes.PositionDelete"
                ).create()
                writer.write(delete.set(path, position))
            writer.close()
            found.append(writer.toDeleteFile())
        return found

    def _vectors(self, marked: Sequence[_Writers]) -> list[Any]:
        nothing = jvm.array_of(self._spark, jvm.view_of(self._spark).java.lang.Object, [])
        compiled = jvm.compile_java(self._spark, "delvec.NoEarlierDeletes", _NO_DELETES)
        [constructor] = compiled.getConstructors()
        writer = jvm.java_class(self._spark, "org.apache.iceberg.deletes.BaseDVFileWriter")(
            self._outputs, constructor.newInstance(nothing)
        )
        for writers in marked:
            for path, position in writers.positions:
                writer.delete(path, position, self._spec, writers.partition)
        writer.close()
        return list(writer.result().deleteFiles())

    def _writers(self, row: Row) -> _Writers:
        """Return the writers of the row's partition."""
        if self._spec.isUnpartitioned():
            return self._partitions.setdefault("", _Writers(None))
        names = [self._schema.findColumnName(each.sourceId()) for each in self._spec.fields()]
        kept = jvm.view_of(self._spark).java.util.ArrayList()
        for name in names:
            kept.add(name)
        schema = self._schema.select(kept)
        key = self._view.PartitionKey(self._spec, schema)
        wrapper = self._view.data.InternalRecordWrapper(schema.asStruct())
        key.partition(wrapper.wrap(self._record(schema, row)))
        return self._partitions.setdefault(key.toPath(), _Writers(key))

    def _record(self, schema: Any, row: Row) -> Any:  # noqa: ANN401
        fields = json.loads(self._view.SchemaParser.toJson(schema))["fields"]
        named = {str(each["id"]): row.get(each["name"]) for each in fields}
        return self._view.SingleValueParser.fromJson(schema.asStruct(), json.dumps(named))

    def _output(self, writers: _Writers) -> Any:  # noqa: ANN401
        if writers.partition is None:
            return self._outputs.newOutputFile()
        return self._outputs.newOutputFile(self._spec, writers.partition)
