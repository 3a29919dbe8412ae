"""Attacks by names and values of a table, which become SQL, paths and fields of Arrow."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec import DeltaTable
from tests.delta.builder import TableBuilder
from tests.hostile.attack import SECRET_VARIABLE, Attack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.hostile.attack import Ground

__all__ = ["ATTACKS"]

_VARIABLES: Final = (f"${{env:{SECRET_VARIABLE}}}", "${spark.hostile.secret}")
# `x` is there to be taken for `.x`.
_NAMES: Final = (
    *_VARIABLES,
    ".x",
    "x",
    "..x",
    "x.",
    "x.y",
    "a`b",
    "*",
    "a b",
    "'",
    '"',
    "\\",
    "%s",
    "{x}",
    "$x",
    "a\nb",
    "[0]",
    "id) OR (1=1",
    "--",
    "/*",
    "n" * 2000,
    "__delvec_clause_of",
    "k",
)
_ROWS: Final = 10
_MAPPED: Final = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"}
_FEED: Final = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


@dataclass
class _Named(TableBuilder):
    """A table with columns of any schema, of ten rows in two files with statistics."""

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
) -> None:
    features = ["deletionVectors", *(["columnMapping"] if mapped else [])]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "changeDataFeed"],
    }
    names = [each["name"] for each in columns]
    physical = {
        each["metadata"].get("delta.columnMapping.physicalName", each["name"]): each["name"]
        for each in columns
    }
    table = _Named(
        ground.table,
        protocol=protocol,
        columns=columns,
        partition_columns=[physical[each] for each in partitions or () if physical[each] in names],
        properties={**_FEED, **(_MAPPED if mapped else {})},
    )
    table.create()
    for number in (0, 1):
        rows = range(number * _ROWS // 2, (number + 1) * _ROWS // 2)
        data = pa.table(dict(stored(rows)))
        add = table.write_file(f"{number}.parquet", data, partitions)
        lowest, highest = data.slice(0, 1).to_pylist()[0], data.slice(len(rows) - 1).to_pylist()[0]
        nulls = {name: _no_nulls(value) for name, value in lowest.items()}
        stats = {
            "numRecords": len(rows),
            "minValues": lowest,
            "maxValues": highest,
            "nullCount": nulls,
        }
        table.commit({"add": add | {"stats": json.dumps(stats)}})


def _no_nulls(value: Any) -> Any:  # noqa: ANN401
    return dict.fromkeys(value, 0) if isinstance(value, dict) else 0


def _as_columns(ground: Ground) -> None:
    _make(
        ground,
        [_field("id"), *map(_field, _NAMES)],
        lambda rows: {"id": rows, **{n: [_value(n, row) for row in rows] for n in _NAMES}},
    )


def _as_physical_names(ground: Ground) -> None:
    _make(
        ground,
        [
            _field("id", physical="id", number=1),
            *(_field(f"c{at}", physical=name, number=at + 2) for at, name in enumerate(_NAMES)),
        ],
        lambda rows: {"id": rows, **{n: [_value(n, row) for row in rows] for n in _NAMES}},
        mapped=True,
    )


def _as_logical_names(ground: Ground) -> None:
    _make(
        ground,
        [
            _field("id", physical="c", number=1),
            *(_field(name, physical=f"c{at}", number=at + 2) for at, name in enumerate(_NAMES)),
        ],
        lambda rows: {
            "c": rows,
            **{f"c{at}": [_value(n, row) for row in rows] for at, n in enumerate(_NAMES)},
        },
        mapped=True,
    )


def _as_fields(ground: Ground) -> None:
    """Fields of a struct, under other physical names, so that they are renamed by a cast."""
    fields = [_field(n, physical=f"_{n}", number=at + 3) for at, n in enumerate(_NAMES)]
    inner = {"type": "struct", "fields": fields}
    _make(
        ground,
        [_field("id", physical="id", number=1), _field("s", inner, physical="${s}", number=2)],
        lambda rows: {
            "id": rows,
            "${s}": [{f"_{n}": _value(n, row) for n in _NAMES} for row in rows],
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
    "physical names": _as_physical_names,
    "logical names of mapped columns": _as_logical_names,
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
    return _rows(place, range(_ROWS))


def _half(place: str) -> list[dict[str, Any]]:
    return _rows(place, range(1, _ROWS, 2))


def _twice(place: str) -> list[dict[str, Any]]:
    return _sorted(_whole(place) * 2)


def _changed(place: str) -> list[dict[str, Any]]:
    rows = _whole(place)
    return _sorted([{**row, "id": row["id"] + 100 if row["id"] < 3 else row["id"]} for row in rows])


_AFTER: Final = {
    "read": _whole,
    "checkpoint": _whole,
    "read on Spark": _whole,
    "read by the data source": _whole,
    "append": _twice,
    "overwrite": _whole,
    "delete": _half,
    "delete by keys": _half,
    "update": _changed,
    "merge": _whole,
    "optimize": _whole,
    "zorder": _whole,
    "purge": _whole,
    "traces": _whole,
    "changes": _whole,
    "check": _whole,
}


def _unharmed(place: str, operation: str) -> Callable[[Ground, Any], None]:
    def look(ground: Ground, result: Any) -> None:  # noqa: ANN401
        expected = _AFTER[operation](place)
        found = DeltaTable.for_path(None, str(ground.table)).to_arrow().to_pylist()
        assert _sorted(found) == expected
        if operation.startswith("read on") or operation.startswith("read by"):
            assert _sorted([row.asDict(recursive=True) for row in result]) == expected

    return look


ATTACKS: Final = [
    Attack(
        "leaks",
        f"{place} named like variables, paths and SQL",
        operation,
        "harmless",
        put=put,
        then=_unharmed(place, operation),
    )
    for place, put in _PLACES.items()
    for operation in _AFTER
]
