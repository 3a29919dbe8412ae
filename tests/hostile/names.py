"""Attacks by names and values of a table, which become SQL, paths and fields of Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from delvec import DeltaTable, IcebergTable
from delvec.iceberg.client.catalog import catalog_of, find_table, table_name
from delvec.iceberg.search.key_index import index_name
from tests.delta.builder import TableBuilder
from tests.hostile.attack import SECRET_VARIABLE, Ground, harmless, refused
from tests.hostile.iceberg_tables import NAME

_VARIABLES: Final = (f"${{env:{SECRET_VARIABLE}}}", "${spark.hostile.secret}")
# `x` is there to be taken for `.x`.
_NAMES: Final = (
    *(*_VARIABLES, ".x", "x", "..x", "x.", "x.y", "a`b", "*", "a b", "'", '"', "\\", "%s", "{x}"),
    *("$x", "a\nb", "[0]", "id) OR (1=1", "--", "/*", "n" * 2000),
)
_SHORT: Final = (".x", "x", *_VARIABLES)
_ROWS: Final = 10
_LIVE: Final = 9  # the last row is deleted by a vector
_MAPPED: Final = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"}
_FEED: Final = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


@dataclass
class _Named(TableBuilder):
    """A table with columns of any schema."""

    columns: list[dict[str, Any]] = field(default_factory=list)

    def metadata(self) -> dict[str, Any]:
        schema = {"type": "struct", "fields": self.columns}
        return super().metadata() | {"schemaString": json.dumps(schema)}


def _field(name: str, kind: Any = "long", physical: str | None = None, number: int = 0) -> Any:  # noqa: ANN401
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    metadata = {} if physical is None else mapping
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _value(name: str, row: int) -> int:
    return row * 100 + _NAMES.index(name)


def _make(
    ground: Ground,
    columns: list[dict[str, Any]],
    stored: Callable[[range], Mapping[str, Any]],
    partitions: Mapping[str, str] | None = None,
    *,
    mapped: bool = False,
    properties: Mapping[str, str] | None = None,
) -> None:
    features = ["deletionVectors", *(["columnMapping"] if mapped else [])]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "changeDataFeed"],
    }
    table = _Named(
        ground.table,
        protocol=protocol,
        columns=columns,
        partition_columns=list(partitions or ()),
        properties={**_FEED, **(_MAPPED if mapped else {}), **(properties or {})},
    )
    table.create()
    for number in (0, 1):
        rows = range(number * _ROWS // 2, (number + 1) * _ROWS // 2)
        data = pa.table(dict(stored(rows)))
        add = table.write_file(f"{number}.parquet", data, partitions)
        lowest, highest = data.slice(0, 1).to_pylist()[0], data.slice(len(rows) - 1).to_pylist()[0]
        nulls = {name: _no_nulls(value) for name, value in lowest.items()}
        stats = {"minValues": lowest, "maxValues": highest, "nullCount": nulls}
        add["stats"] = json.dumps({"numRecords": len(rows), **stats})
        table.commit({"add": add})
    [vector] = table.write_vectors([_ROWS // 2 - 1])
    table.delete(add, vector)


def _no_nulls(value: Any) -> Any:  # noqa: ANN401
    return dict.fromkeys(value, 0) if isinstance(value, dict) else 0


def _as_columns(ground: Ground) -> None:
    _make(
        ground,
        [_field("id"), *map(_field, _NAMES)],
        lambda rows: {"id": rows, **{n: [_value(n, row) for row in rows] for n in _NAMES}},
    )


def _mapped(ground: Ground, names: Sequence[str], stored: Sequence[str]) -> None:
    """Make a table with columns under other names than in its files."""
    both = list(zip(("id", *names), ("id", *stored), strict=True))
    _make(
        ground,
        [_field(name, physical=own, number=at + 1) for at, (name, own) in enumerate(both)],
        lambda rows: {
            own: [_value(_NAMES[at - 1], row) if at else row for row in rows]
            for at, (_, own) in enumerate(both)
        },
        mapped=True,
    )


_PLAIN: Final = [f"c{at}" for at in range(len(_NAMES))]


def _as_fields(ground: Ground) -> None:
    """Fields of a struct, each under the name of the next one, so that a cast renames them."""
    stored = dict(zip(_NAMES, (*_NAMES[1:], _NAMES[0]), strict=True))
    fields = [_field(n, physical=stored[n], number=at + 3) for at, n in enumerate(_NAMES)]
    inner = {"type": "struct", "fields": fields}
    _make(
        ground,
        [_field("id", physical="id", number=1), _field("s", inner, physical="${s}", number=2)],
        lambda rows: {
            "id": rows,
            "${s}": [{stored[n]: _value(n, row) for n in _NAMES} for row in rows],
        },
        mapped=True,
    )


def _as_partitions(ground: Ground) -> None:
    """Partition columns of hostile names, with hostile values."""
    values = dict(zip(_PARTITIONS, _VALUES, strict=True))
    _make(
        ground,
        [_field("id"), *(_field(name, "string") for name in _PARTITIONS)],
        lambda rows: {"id": rows},
        values,
    )


_PARTITIONS: Final = (*_VARIABLES, ".x", "x", "a`b", "'")
_VALUES: Final = ("x' OR '1'='1", *_VARIABLES, "\\", "a`b", "')--")
_PLACES: Final = {
    "columns": _as_columns,
    "physical names": partial(_mapped, names=_PLAIN, stored=_NAMES),
    "logical names of mapped columns": partial(_mapped, names=_NAMES, stored=_PLAIN),
    "fields of a struct": _as_fields,
    "partition columns and their values": _as_partitions,
}


def _rows(place: str, ids: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Give the rows that a table has, by their ids as they were at first."""
    if place == "fields of a struct":
        return [{"id": i, "s": {n: _value(n, i) for n in _NAMES}} for i in ids]
    if place == "physical names":
        return [{"id": i, **{f"c{at}": _value(n, i) for at, n in enumerate(_NAMES)}} for i in ids]
    if place == "partition columns and their values":
        return [{"id": i, **dict(zip(_PARTITIONS, _VALUES, strict=True))} for i in ids]
    return [{"id": i, **{n: _value(n, i) for n in _NAMES}} for i in ids]


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def _whole(place: str) -> list[dict[str, Any]]:
    return _rows(place, range(_LIVE))


def _half(place: str) -> list[dict[str, Any]]:
    return _rows(place, range(1, _LIVE, 2))


def _changed(place: str) -> list[dict[str, Any]]:
    rows = _whole(place)
    return _sorted([{**row, "id": row["id"] + 100 if row["id"] < 3 else row["id"]} for row in rows])


_KEPT: Final = ("checkpoint", "read on Spark", "overwrite", "merge", "optimize", "zorder", "purge")
_AFTER: Final = {
    **dict.fromkeys((*_KEPT, "traces", "changes"), _whole),
    "append": lambda place: _sorted(_whole(place) * 2),
    **dict.fromkeys(("delete", "delete by keys"), _half),
    "update": _changed,
}
_QUICK: Final = {
    "columns": ("checkpoint", "read on Spark", "delete"),
    "physical names": ("checkpoint", "read on Spark", "delete", "traces"),
    "logical names of mapped columns": ("read on Spark",),
    "fields of a struct": ("checkpoint", "read on Spark", "delete"),
    "partition columns and their values": ("checkpoint", "read on Spark", "append"),
}
# Nothing of these names is read or computed there.
_NOT_TOUCHED: Final = {
    *((place, each) for place in list(_PLACES)[:-1] for each in ("append", "overwrite")),
    *(
        ("logical names of mapped columns", operation)
        for operation in ("checkpoint", "delete", "delete by keys", "traces")
    ),
}


def _unharmed(place: str, operation: str) -> Callable[[Ground, Any], None]:
    def look(ground: Ground, result: Any) -> None:  # noqa: ANN401
        expected = _AFTER[operation](place)
        table = DeltaTable.for_path(None, str(ground.table))
        assert _sorted(table.to_arrow().to_pylist()) == expected
        if operation == "read on Spark":
            assert _sorted([row.asDict(recursive=True) for row in result]) == expected
        if operation == "checkpoint":
            _found_by_filters(table, expected[1])

    return look


def _found_by_filters(table: DeltaTable, row: dict[str, Any]) -> None:
    """Look for a row by the value of each of its columns: statistics must not rule it out."""
    for name, value in row.items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for key, each in inner:
            path = (name,) if key is None else (name, key)
            assert row in table.to_arrow([(path, "=", each)]).to_pylist(), path


def _named(*names: str, **properties: str) -> Callable[[Ground], None]:
    """Return what puts a table with some more columns, and properties."""
    return lambda ground: _make(
        ground,
        [_field("id"), *map(_field, names)],
        lambda rows: {"id": rows, **{name: [row * 100 for row in rows] for name in names}},
        properties=properties,
    )


def _iceberg(ground: Ground, names: Sequence[str]) -> None:
    """Make an Iceberg table of ten rows in two files, with columns of these names."""
    spark = ground.spark
    kinds = StructType([StructField(name, LongType()) for name in ("id", *names)])
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.hostile")
    for name in (NAME, f"{NAME}__delvec_index"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    for first in (0, _ROWS // 2):
        rows = [
            (row, *(row * 100 + at for at in range(len(names)))) for row in range(first, first + 5)
        ]
        writer = spark.createDataFrame(rows, kinds).coalesce(1).writeTo(NAME)
        if first:
            writer.append()
        else:
            place = writer.using("iceberg").tableProperty("location", str(ground.table))
            place.tableProperty("format-version", "3").create()


def _iceberg_columns(ground: Ground) -> None:
    _iceberg(ground, _SHORT)


def _odd_rows(ground: Ground, _: Any) -> None:  # noqa: ANN401
    found = IcebergTable.for_name(ground.spark, NAME).to_arrow().to_pylist()
    assert _sorted(found) == [
        {"id": row, **{name: row * 100 + at for at, name in enumerate(_SHORT)}}
        for row in range(1, _ROWS, 2)
    ]


def _iceberg_own_name(ground: Ground) -> None:
    """A column that reading through deletes of two key columns would overwrite."""
    _iceberg(ground, ["x", "__delvec_file_sequence"])
    keys = pa.table({"id": [0], "x": [0]})
    IcebergTable.for_name(ground.spark, NAME).delete_keys(keys, columns=["id", "x"])


def _iceberg_uuid(ground: Ground) -> None:
    """A table whose UUID is a variable: the index keeps it as a property."""
    _iceberg(ground, ["x"])
    name = table_name(ground.spark, NAME)
    catalog, identifier = catalog_of(ground.spark, name)
    [path] = (ground.table / "metadata").glob("00001-*.metadata.json")
    forged = json.loads(path.read_text()) | {"table-uuid": _VARIABLES[0]}
    catalog.dropTable(identifier, False)
    path = path.with_name("00002-forged.metadata.json")
    path.write_text(json.dumps(forged))
    catalog.registerTable(identifier, str(path))


def _index_knows_no_secret(ground: Ground, _: Any) -> None:  # noqa: ANN401
    index = find_table(ground.spark, index_name(table_name(ground.spark, NAME)))
    assert index is not None
    assert _VARIABLES[0] in index.metadata.properties.values()


def _one_name_twice(ground: Ground) -> None:
    """A file with two columns of a name, which the table tells apart by their ids."""
    columns = [_field(name, physical=name, number=at + 1) for at, name in enumerate(("id", "x"))]
    table = _Named(
        ground.table,
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        columns=columns,
        properties={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"},
    )
    table.create()
    stored = [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": str(number)}) for number in (1, 2)
    ]
    data = pa.table([range(3), range(3, 6)], schema=pa.schema(stored))
    table.commit({"add": table.write_file("0.parquet", data)})


def _told_apart(_: Ground, rows: Any) -> None:  # noqa: ANN401
    assert rows == [{"id": row, "x": row + 3} for row in range(3)]


_LIKE_VARIABLES: Final = "named like variables, paths and SQL"
_LIKE_OURS: Final = "a column of an Iceberg table that is called like one of delvec's"
_OTHER_NAMES: Final = "names of other columns"
_OWN: Final = "is delvec's own"
_IDS: Final = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "x",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}

ATTACKS: Final = [
    *harmless(
        "leaks",
        *(
            (f"{place} {_LIKE_VARIABLES}", operation, put, _unharmed(place, operation))
            for place, put in _PLACES.items()
            for operation in _AFTER
            if (place, operation) not in _NOT_TOUCHED
        ),
        slow=lambda place, each: each not in _QUICK[place.removesuffix(f" {_LIKE_VARIABLES}")],
    ),
    *refused(
        "comes back",
        *(
            (f"a column {name}", operation, _named(name), says)
            for name, operation, says in (
                ("__delvec_place", "zorder", _OWN),
                ("__delvec_number", "delete", _OWN),
                ("__DELVEC_CLAUSE", "update", _OWN),
                ("__delvec_change", "changes", _OWN),
                ("__delvec_position", "traces", _OWN),
                ("_Change_Type", "changes", "as the change feed has"),
                ("_change_type", "delete", "as the change feed has"),
            )
        ),
        ("columns of row tracking that are others", "update", _named("x", **_IDS), _OTHER_NAMES),
        (_LIKE_OURS, "iceberg: read", _iceberg_own_name, _OWN),
    ),
    *refused(
        "foreign error",
        *(
            (f"columns {one!a} and {other!a}", "read on Spark", _named(one, other))
            for one, other in (("x", "X"), ("K", "k"))
        ),
        says="differ in case only",
    ),
    *harmless(
        "comes back",
        (
            "key columns named like variables and paths",
            [f"iceberg: delete keys{then}" for then in ("", " and resolve", " and consolidate")],
            _iceberg_columns,
            _odd_rows,
        ),
        slow=lambda _, operation: operation != "iceberg: delete keys",
    ),
    *refused(
        "leaks",
        ("the UUID of an Iceberg table", "iceberg: index", _iceberg_uuid),
        says="Invalid UUID string: \\$",
        then=_index_knows_no_secret,
    ),
    *harmless(
        "foreign error", ("a file with two columns of a name", "read", _one_name_twice, _told_apart)
    ),
]
