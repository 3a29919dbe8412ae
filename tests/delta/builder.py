"""Delta tables written by hand, so that anything can be wrong with them: no JVM, no engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from delvec import DeltaTable
from delvec.vector import Bitmap, pack

if TYPE_CHECKING:
    from typing_extensions import Self

Action = dict[str, Any]
MAPPED = {"delta.columnMapping.mode": "name"}
# Rows 3, and rows 0 and 5, deleted by a vector in the log; the first in the padding of delta-spark
# and in that of delta-rs.
INLINE: Action = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0@@r3",
    "sizeInBytes": 34,
    "cardinality": 1,
}
PADDED = INLINE | {"pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"}
INLINE_TWO = INLINE | {
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5",
    "sizeInBytes": 36,
    "cardinality": 2,
}


def legacy(reader: int, writer: int) -> Action:
    """A protocol without table features."""
    return {"minReaderVersion": reader, "minWriterVersion": writer}


def protocol_of(*features: str, writers: Iterable[str] = ()) -> Action:
    """A protocol of table features, some of which are for writers alone."""
    return legacy(3, 7) | {"readerFeatures": [*features], "writerFeatures": [*features, *writers]}


def field_of(name: str, kind: Any, **metadata: Any) -> Action:  # noqa: ANN401
    """A column as a schema tells it."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def mapped_field(name: str, kind: Any, number: Any, physical: Any = None) -> Action:  # noqa: ANN401
    """A column that has a number, and its name in files."""
    key, physical = "delta.columnMapping", physical or f"col-{number}"
    return field_of(name, kind, **{f"{key}.id": number, f"{key}.physicalName": physical})


def struct_of(*fields: Action) -> Action:
    return {"type": "struct", "fields": [*fields]}


_TEXT, _LONG, _INT = pa.string(), pa.int64(), pa.int32()
_TEXTS, _NAMES = pa.map_(_TEXT, _TEXT), pa.list_(_TEXT)


def _struct(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


_CHECKPOINT = pa.schema(
    _struct(
        protocol=_struct(
            minReaderVersion=_INT,
            minWriterVersion=_INT,
            readerFeatures=_NAMES,
            writerFeatures=_NAMES,
        ),
        metaData=_struct(
            id=_TEXT,
            format=_struct(provider=_TEXT, options=_TEXTS),
            schemaString=_TEXT,
            partitionColumns=_NAMES,
            configuration=_TEXTS,
        ),
        add=_struct(
            path=_TEXT,
            partitionValues=_TEXTS,
            size=_LONG,
            modificationTime=_LONG,
            dataChange=pa.bool_(),
            stats=_TEXT,
            tags=_TEXTS,
            deletionVector=_struct(
                storageType=_TEXT,
                pathOrInlineDv=_TEXT,
                offset=_INT,
                sizeInBytes=_INT,
                cardinality=_LONG,
            ),
        ),
        checkpointMetadata=_struct(version=_LONG),
        sidecar=_struct(path=_TEXT, sizeInBytes=_LONG, modificationTime=_LONG),
    )
)
_MAPS = ("partitionValues", "options", "configuration", "tags")


@dataclass
class TableBuilder:
    """A table that grows commit by commit; every action can be changed before it is written."""

    root: Path
    protocol: Action = field(default_factory=lambda: protocol_of("deletionVectors"))
    # Types by name, or whole columns.
    fields: Mapping[str, Any] | Sequence[Action] = field(default_factory=lambda: {"id": "long"})
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(
        default_factory=lambda: {"delta.enableDeletionVectors": "true"}
    )
    provider: str = "parquet"
    version: int = -1

    @classmethod
    def made(cls, root: Path, **options: Any) -> Self:  # noqa: ANN401
        """A table whose version 0 has no rows."""
        table = cls(root, **options)
        table.create()
        return table

    @property
    def handle(self) -> DeltaTable:
        return DeltaTable.for_path(None, self.root)

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    def commit_path(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def metadata(self) -> Action:
        columns = self.fields
        if isinstance(columns, Mapping):
            columns = [field_of(name, kind) for name, kind in columns.items()]
        return {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": self.provider, "options": {}},
            "schemaString": json.dumps(struct_of(*columns)),
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.properties),
        }

    def create(self) -> None:
        self.redefine()

    def redefine(self, *actions: Action, **changes: Any) -> None:  # noqa: ANN401
        """Commit the protocol and the metadata anew, with changes of the latter."""
        self.commit({"protocol": self.protocol}, {"metaData": self.metadata() | changes}, *actions)

    def commit(self, *actions: Action) -> Path:
        self.version += 1
        self.log.mkdir(parents=True, exist_ok=True)
        info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "TEST"}}
        path = self.commit_path(self.version)
        path.write_text("".join(json.dumps(action) + "\n" for action in (info, *actions)))
        return path

    def write_file(
        self,
        name: str,
        columns: Mapping[str, Any] | pa.Table,
        partition_values: Mapping[str, str | None] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Action:
        """Write a data file; give the `add` that a commit takes, without the word."""
        rows = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, **options)
        return {
            "path": name,
            "partitionValues": dict(partition_values or {}),
            "size": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }

    def append(self, *args: Any, **options: Any) -> Action:  # noqa: ANN401
        """Write a data file and commit it."""
        add = self.write_file(*args, **options)
        self.add(add)
        return add

    def add(self, *adds: Action) -> None:
        self.commit(*({"add": add} for add in adds))

    def write_vectors(self, *positions: Iterable[int], prefix: str = "") -> list[Action]:
        """Write vectors into one file; give their descriptors."""
        [file] = pack([Bitmap(list(each)) for each in positions], prefix=prefix)
        path = self.root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        return [descriptor.to_json() for descriptor in file.descriptors]

    def vector_path(self) -> Path:
        """The one file of vectors."""
        [path] = self.root.glob("**/deletion_vector_*.bin")
        return path

    def delete(self, add: Action, vector: Action) -> Action:
        """Commit a vector for a live file as engines do; give the new add."""
        stats = json.loads(add["stats"]) | {"tightBounds": False}
        new = add | {"stats": json.dumps(stats), "deletionVector": vector}
        self.commit({"remove": removed(add)}, {"add": new})
        return new

    def delete_rows(self, add: Action, rows: Iterable[int], prefix: str = "") -> Action:
        return self.delete(add, self.write_vectors(rows, prefix=prefix)[0])

    def checkpoint(self, adds: Sequence[Action], *, parts: int = 1) -> list[Path]:
        """Write the state as a classic checkpoint, in one part or several."""
        rows = [{"protocol": self.protocol}, {"metaData": self.metadata()}]
        rows += [{"add": add} for add in adds]
        stem = f"{self.version:020d}.checkpoint"
        names = [f"{stem}.parquet"]
        if parts > 1:
            names = [f"{stem}.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)]
        for number, name in enumerate(names):
            self._write_actions(self.log / name, rows[number :: len(names)])
        return [self.log / name for name in names]

    def checkpoint_with_sidecars(self, adds: Sequence[Action], *, as_json: bool) -> list[Path]:
        """Write the state as a checkpoint of the second kind; give it and its two sidecars."""
        sidecars = []
        (self.log / "_sidecars").mkdir()
        for number in range(2):
            path = self.log / "_sidecars" / f"{UUID(int=number)}.parquet"
            self._write_actions(path, [{"add": add} for add in adds[number::2]])
            sidecars.append(path)
        rows: list[Action] = [{"checkpointMetadata": {"version": self.version}}]
        rows += [{"protocol": self.protocol}, {"metaData": self.metadata()}]
        for path in sidecars:
            size = path.stat().st_size
            entry = {"path": path.name, "sizeInBytes": size, "modificationTime": 1_700_000_000_000}
            rows.append({"sidecar": entry})
        suffix = "json" if as_json else "parquet"
        manifest = self.log / f"{self.version:020d}.checkpoint.{UUID(int=9)}.{suffix}"
        if as_json:
            manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            self._write_actions(manifest, rows)
        return [manifest, *sidecars]

    def write_hint(self, text: str | None = None) -> None:
        hint = json.dumps({"version": self.version, "size": 1}) if text is None else text
        (self.log / "_last_checkpoint").write_text(hint)

    def drop_commits(self, *versions: int) -> None:
        for version in versions:
            self.commit_path(version).unlink()

    @staticmethod
    def _write_actions(path: Path, rows: Sequence[Action]) -> None:
        pq.write_table(pa.Table.from_pylist([_with_pairs(row) for row in rows], _CHECKPOINT), path)


def removed(add: Action) -> Action:
    """Give the `remove` that cancels an add."""
    names = ("path", "deletionVector", "partitionValues")
    kept = {name: add[name] for name in names if name in add}
    return kept | {"deletionTimestamp": 1_700_000_000_000, "dataChange": True}


def _with_pairs(value: Any) -> Any:  # noqa: ANN401
    """Turn the dictionaries that are maps into the lists of pairs that Arrow takes."""
    if not isinstance(value, dict):
        return value
    return {
        key: list(item.items()) if key in _MAPS else _with_pairs(item)
        for key, item in value.items()
    }


def table_with(
    root: Path,
    *files: Mapping[str, Any] | pa.Table,
    **options: Any,  # noqa: ANN401
) -> tuple[TableBuilder, list[Action]]:
    """Make a table whose version 1 adds `part-0.parquet` and so on; give it and the adds."""
    table = TableBuilder.made(root, **options)
    adds = [table.write_file(f"part-{number}.parquet", each) for number, each in enumerate(files)]
    table.add(*adds)
    return table, adds


def small_table(root: Path) -> tuple[TableBuilder, list[Action]]:
    """Make a table of three versions: two files of ten rows; then rows 0 and 9, and 3 and 4 go.

    Its rows are the ids 1 to 8, 10 to 12 and 15 to 19. Both vectors are in one file.
    """
    table, adds = table_with(root, {"id": range(10)}, {"id": range(10, 20)})
    vectors = table.write_vectors([0, 9], [3, 4])
    live = [
        add | {"deletionVector": vector, "stats": '{"numRecords": 10, "tightBounds": false}'}
        for add, vector in zip(adds, vectors, strict=True)
    ]
    table.commit(*({"remove": removed(add)} for add in adds), *({"add": add} for add in live))
    return table, live
