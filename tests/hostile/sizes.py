"""Attacks by numbers that a table claims: rows, parts, bytes, lengths, depths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.delta.builder import TableBuilder
from tests.hostile.attack import Ground, Put, harmless, refused

_HUGE: Final = 10**12
_ROWS: Final = 12_345  # a number whose bytes occur in a footer as a count of rows only
_MANY: Final = 5_000_000
_FAR: Final = 2**62
_LONG: Final = '"long"'
_COUNT: Final = json.dumps({"numRecords": _HUGE})
_READS: Final = ("open", "read", "history", "check", "inspect", "checkpoint")
_BY_LOG: Final = ("read", "history", "inspect", "checkpoint")


def _varint(number: int) -> bytes:
    """Encode a number as Thrift's compact protocol does."""
    rest, octets = number << 1, bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])


def _claim(path: Path, rows: int) -> None:
    """Let the footer of a Parquet file claim other rows than its pages have."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    assert _varint(_ROWS) in footer
    footer = footer.replace(_varint(_ROWS), _varint(rows))
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _rows_of_data_file(ground: Ground, column: str = "id", stats: str | None = _COUNT) -> None:
    """Claim 10^12 rows in the footer of a data file, and in its statistics."""
    table = TableBuilder(ground.table, fields={column: "long"})
    table.create()
    add = table.write_file("a.parquet", {"id": range(_ROWS)}, use_dictionary=["id"])
    _claim(ground.table / "a.parquet", _HUGE)
    size = (ground.table / "a.parquet").stat().st_size
    table.commit({"add": add | {"stats": stats, "size": size}})


def _rows_of_checkpoint(ground: Ground, rows: int = _HUGE) -> None:
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": [1]})
    table.commit({"add": add})
    [whole] = table.checkpoint([add] * (_ROWS - 2))
    _claim(whole, rows)
    table.write_hint()


def _with_add(ground: Ground, **changed: object) -> None:
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    table.commit({"add": add | changed})


def _with_properties(ground: Ground, properties: Mapping[str, str]) -> None:
    table = TableBuilder(ground.table)
    given = {f"delta.{name}": value for name, value in properties.items()}
    table.properties = {**table.properties, **given}
    table.create()
    table.commit({"add": table.write_file("a.parquet", {"id": range(10)})})


def _parts(ground: Ground, name: str) -> None:
    _with_add(ground)
    (ground.table / "_delta_log" / name).write_bytes(b"x")


def _inline(ground: Ground, size: int) -> None:
    """Put a vector of many bytes into the log itself."""
    vector = {"storageType": "i", "pathOrInlineDv": "0" * (size // 4 * 5), "sizeInBytes": size}
    _with_add(ground, deletionVector={**vector, "cardinality": 1})


def _many_equal_rows(ground: Ground) -> None:
    """Write an honest file that has far more rows than bytes."""
    table = TableBuilder(ground.table, fields={"x": "long"})
    table.create()
    rows = pa.table({"id": pa.nulls(_MANY, pa.int64())})
    table.commit({"add": table.write_file("a.parquet", rows) | {"stats": None}})
    assert (ground.table / "a.parquet").stat().st_size < _MANY // 100


def _with_schema(ground: Ground, schema: str, partition_columns: Sequence[str] = ()) -> None:
    table = TableBuilder(ground.table)
    metadata = table.metadata() | {"partitionColumns": list(partition_columns)}
    metadata["schemaString"] = f'{{"type":"struct","fields":[{schema}]}}'
    table.commit({"protocol": table.protocol}, {"metaData": metadata})
    table.commit({"add": table.write_file("a.parquet", {"id": range(10)})})


def _field(name: str, kind: str) -> str:
    return f'{{"name":"{name}","nullable":true,"metadata":{{}},"type":{kind}}}'


def _nested(kind: str, levels: int) -> str:
    begin, end = {
        "arrays": ('{"type":"array","elementType":', ',"containsNull":true}'),
        "structs": (
            '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":',
            "}]}",
        ),
        "maps": ('{"type":"map","keyType":"long","valueType":', ',"valueContainsNull":true}'),
    }[kind]
    return f"{_field('id', _LONG)},{_field('x', begin * levels + _LONG + end * levels)}"


def _with_vector(ground: Ground, changed: Mapping[str, int]) -> None:
    [vector] = TableBuilder(ground.table).write_vectors([1, 2])
    _with_add(ground, deletionVector={**vector, **changed})


def _sidecar(ground: Ground, size: int) -> None:
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    table.commit({"add": add})
    manifest = table.checkpoint_with_sidecars([add], as_json=True)[0]
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if "sidecar" in line:
            line["sidecar"]["sizeInBytes"] = size
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table.write_hint()


def _far_checkpoint(ground: Ground) -> None:
    """Claim that the table has 2^62 versions."""
    table = TableBuilder(ground.table, properties={"delta.enableChangeDataFeed": "true"})
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    table.commit({"add": add})
    for version in (1, _FAR):
        table.version = version
        table.checkpoint([add])


def _ten_rows(_: Ground, rows: Any) -> None:  # noqa: ANN401
    assert len(rows) == 10


def _all_counted(_: Ground, rows: object) -> None:
    assert rows == _MANY


_FOOTER: Final = "10^12 rows in the footer of a data file"
_NO_COLUMNS: Final = f"{_FOOTER} without the table's columns"
_OF_NO_COLUMNS: Final = partial(_rows_of_data_file, column="x", stats=None)
_UNLIKE_FOOTER: Final = "does not have the rows that the footer says"
_STATISTICS: Final = {
    f"{rows} rows of a data file in its statistics": partial(
        _with_add, stats=json.dumps({"numRecords": rows})
    )
    for rows in (10**15, 2**63 - 1)
}
_INLINE: Final = partial(_inline, size=1 << 26)
_VECTORS: Final = {
    f"a vector with {name} {value}": partial(_with_vector, changed={name: value})
    for name, value in (
        ("sizeInBytes", 2**31 - 1),
        ("offset", 2**31 - 1),
        ("cardinality", 2**63 - 1),
        ("sizeInBytes", 2**31),
    )
}
_HONEST: Final = "an honest file of many rows without the table's columns"
_OFTEN: Final = "a partition column that is named 10^6 times"
_TWO_LONGS: Final = f"{_field('id', _LONG)},{_field('p', _LONG)}"
_NAMED_OFTEN: Final = partial(
    _with_schema, schema=_TWO_LONGS, partition_columns=["p", "P"] * 500_000
)


def _property(name: str, value: str) -> tuple[str, Put]:
    return f"delta.{name} of {value[:30]}", partial(_with_properties, properties={name: value})


_DAYS: Final = f"interval {'9' * 400} days"
_NUMBERS: Final = (
    *("dataSkippingNumIndexedCols", "dataSkippingStringPrefixLength"),
    *("checkpointInterval", "columnMapping.maxColumnId", "targetFileSize"),
)
_PREFIX: Final = {"randomizeFilePrefixes": "true", "randomPrefixLength": "2000000000"}
_confined_refused = partial(refused, "takes the machine", confined=True)
_confined_harmless = partial(harmless, "takes the machine", confined=True)
ATTACKS: Final = [
    *_confined_harmless(
        *(
            (
                f"a checkpoint of {number} in {count} parts",
                ("read",) if version > 1 else (*_READS, "vacuum", "set properties"),
                partial(_parts, name=f"{version:020d}.checkpoint.{number}.{count}.parquet"),
            )
            for number, count, version in (
                ("0000000001", "9999999999", 1),
                ("9999999999", "9999999999", 5),
                ("0000000000", "0000000000", 1),
                ("0000000000", "0000000001", 7),
            )
        )
    ),
    *_confined_refused(
        (_FOOTER, "read", _rows_of_data_file, _UNLIKE_FOOTER),
        (_NO_COLUMNS, "read", _OF_NO_COLUMNS, f"{_UNLIKE_FOOTER}.*{_HUGE}.*{_ROWS}"),
    ),
    *_confined_harmless(
        (_FOOTER, [each for each in _READS if each != "read"], _rows_of_data_file),
        (_HONEST, "count", _many_equal_rows, _all_counted),
    ),
    *_confined_refused(
        *(
            (
                f"{rows} rows in the footer of a checkpoint",
                (*_BY_LOG, "vacuum", "set properties") if rows == _HUGE else "read",
                partial(_rows_of_checkpoint, rows=rows),
            )
            for rows in (_HUGE, 10**9, 10**5, 2**62)
        ),
        says="a checkpoint claims more rows than it has.*Hint",
        slow=lambda _, operation: operation not in ("read", "set properties"),
    ),
    *_confined_harmless(  # the check reports it
        (f"{_HUGE} rows in the footer of a checkpoint", ("open", "check"), _rows_of_checkpoint),
        slow=lambda *_: True,
    ),
    *_confined_harmless(
        *(
            (f"{size} bytes of a data file", (*_READS, "vacuum"), partial(_with_add, size=size))
            for size in (10**15, 2**63 - 1, -1)
        ),
        slow=lambda place, _: str(10**15) not in place,
    ),
    *refused(
        "takes the machine",
        ("10^15 bytes of a data file", "read on Spark", partial(_with_add, size=10**15)),
        says="does not have as many bytes as the log says.*a.parquet.*Hint",
    ),
    *harmless(  # such a file is large enough
        "takes the machine",
        ("10^15 bytes of a data file", "optimize", partial(_with_add, size=10**15)),
        slow=True,
    ),
    *_confined_refused(
        *((place, "read", put) for place, put in _STATISTICS.items()),
        says="as many rows as the log says",
    ),
    *_confined_harmless(
        *((place, ("check", "inspect"), put) for place, put in _STATISTICS.items())
    ),
    *_confined_refused(
        ("an inline vector of 64 MiB", "read", _INLINE), says="not a vector", slow=True
    ),
    *_confined_harmless(
        ("an inline vector of 64 MiB", ("check", "inspect", "checkpoint"), _INLINE), slow=True
    ),
    *_confined_refused(
        *((place, "read", put) for place, put in _VECTORS.items()),
        says="ends before the requested bytes|wrong number of values|out of bounds",
    ),
    *_confined_harmless(*((place, "check", put) for place, put in _VECTORS.items())),
    *_confined_harmless(
        *(
            (f"a sidecar with sizeInBytes {size}", "read", partial(_sidecar, size=size))
            for size in (10**18, -1)
        ),
        then=_ten_rows,
    ),
    *_confined_refused(
        *(
            (
                f"{levels} {kind} inside of each other",
                ("read", "checkpoint"),
                partial(_with_schema, schema=_nested(kind, levels)),
            )
            for kind in ("arrays", "structs", "maps")
            for levels in (100, 900, 10_000)
        ),
        says="nested too deep",
        slow=lambda place, _: not place.startswith("900 "),
    ),
    *_confined_refused(
        (_OFTEN, ("read", "checkpoint"), _NAMED_OFTEN),
        says="more than once",
        slow=lambda _, operation: operation != "read",
    ),
    *_confined_harmless((_OFTEN, "delvec check", _NAMED_OFTEN), slow=True),
    *_confined_harmless(
        *(
            (place, ("inspect", "set properties", "checkpoint"), put)
            for place, put in (
                *map(_property, _NUMBERS[:2], ("2000000000",) * 2),
                *map(_property, _NUMBERS[2:], ("9" * 5000,) * 3),
                _property("logRetentionDuration", _DAYS),
                _property("logRetentionDuration", "interval 9999999999999999 weeks"),
            )
        ),
        slow=lambda _, operation: operation == "checkpoint",
    ),
    *_confined_refused(
        *(
            (place, operation, put, f"{place.split()[0]} .*Hint")
            for operation, (place, put) in (
                ("checkpoint", _property("dataSkippingNumIndexedCols", "9" * 5000)),
                ("vacuum by retention", _property("deletedFileRetentionDuration", _DAYS)),
                ("clean log", _property("logRetentionDuration", _DAYS)),
            )
        )
    ),
    *refused(
        "takes the machine",
        (
            "2 * 10^9 characters as the prefix of a file",
            "append ids",
            partial(_with_properties, properties=_PREFIX),
            "delta.randomPrefixLength has a value that it cannot have.*255.*Hint",
        ),
        (
            "the changes of 2^62 versions",
            "changes",
            _far_checkpoint,
            "the changes of version 2 .* cannot be read any more",
        ),
    ),
]
