"""Attacks by numbers that a table claims: rows, parts, bytes, lengths, depths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.delta.builder import TableBuilder
from tests.hostile.attack import Attack, Ground

_HUGE: Final = 10**12
_ROWS: Final = 12_345  # a number whose bytes occur in a footer as a count of rows only
_MANY: Final = 5_000_000
_FAR: Final = 2**62
_LONG: Final = '"long"'
_READS: Final = ("open", "read", "history", "check", "inspect", "checkpoint")


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


def _rows_of_data_file(ground: Ground, **fields: str) -> None:
    """Claim 10^12 rows in the footer of a data file, and in its statistics."""
    table = TableBuilder(ground.table, fields={"id": "long", **fields})
    table.create()
    add = table.write_file("a.parquet", {"id": range(_ROWS)}, use_dictionary=["id"])
    _claim(ground.table / "a.parquet", _HUGE)
    stats = json.dumps({"numRecords": _HUGE})
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
    table.properties = {
        **table.properties,
        **{f"delta.{name}": value for name, value in properties.items()},
    }
    table.create()
    table.commit({"add": table.write_file("a.parquet", {"id": range(10)})})


def _parts(ground: Ground, name: str) -> None:
    _with_add(ground)
    (ground.table / "_delta_log" / name).write_bytes(b"x")


def _inline(ground: Ground, size: int) -> None:
    """Put a vector of many bytes into the log itself."""
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "0" * (size // 4 * 5),
        "sizeInBytes": size,
        "cardinality": 1,
    }
    _with_add(ground, deletionVector=vector)


def _only_missing_columns(ground: Ground) -> None:
    """Claim rows in a file that has none of the table's columns."""
    table = TableBuilder(ground.table, fields={"x": "long"})
    table.create()
    add = table.write_file("a.parquet", {"id": range(_ROWS)})
    _claim(ground.table / "a.parquet", _HUGE)
    size = (ground.table / "a.parquet").stat().st_size
    table.commit({"add": add | {"stats": None, "size": size}})


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
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    [vector] = table.write_vectors([1, 2])
    table.commit({"add": add | {"deletionVector": {**vector, **changed}}})


def _sidecar(ground: Ground, changed: Mapping[str, int]) -> None:
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    table.commit({"add": add})
    manifest = table.checkpoint_with_sidecars([add], as_json=True)[0]
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if "sidecar" in line:
            line["sidecar"] |= dict(changed)
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


ATTACKS: Final = [
    *(
        Attack(
            "takes the machine",
            f"a checkpoint of {number} in {count} parts",
            operation,
            "harmless",
            put=partial(_parts, name=f"{version:020d}.checkpoint.{number}.{count}.parquet"),
            confined=True,
        )
        for number, count, version in (
            ("0000000001", "9999999999", 1),
            ("9999999999", "9999999999", 5),
            ("0000000000", "0000000000", 1),
            ("0000000000", "0000000001", 7),
        )
        for operation in (("read",) if version > 1 else (*_READS, "vacuum", "set properties"))
    ),
    *(
        Attack(
            "takes the machine",
            "10^12 rows in the footer of a data file",
            operation,
            "refused" if operation == "read" else "harmless",
            put=_rows_of_data_file,
            says="does not have the rows that the footer says",
            confined=True,
        )
        for operation in _READS
    ),
    Attack(
        "takes the machine",
        "10^12 rows in the footer of a data file without the table's columns",
        "read",
        "refused",
        put=_only_missing_columns,
        says=f"does not have the rows that the footer says.*{_HUGE}.*{_ROWS}",
        confined=True,
    ),
    Attack(
        "takes the machine",
        "an honest file of many rows without the table's columns",
        "count",
        "harmless",
        put=_many_equal_rows,
        then=lambda _, rows: _is_equal(rows, _MANY),
        confined=True,
    ),
    *(
        Attack(
            "takes the machine",
            f"{rows} rows in the footer of a checkpoint",
            operation,
            "refused",
            put=partial(_rows_of_checkpoint, rows=rows),
            says="a checkpoint claims more rows than it has.*Hint",
            confined=True,
            slow=operation not in ("read", "set properties"),
        )
        for rows, operation in (
            *((_HUGE, operation) for operation in (*_READS, "vacuum", "set properties")),
            (10**9, "read"),
            (10**5, "read"),
            (2**62, "read"),
        )
    ),
    *(
        Attack(
            "takes the machine",
            f"{size} bytes of a data file",
            operation,
            "harmless",
            put=partial(_with_add, size=size),
            confined=True,
            slow=size != 10**15,
        )
        for size in (10**15, 2**63 - 1, -1)
        for operation in (*_READS, "vacuum")
    ),
    Attack(
        "takes the machine",
        "10^15 bytes of a data file",
        "read on Spark",
        "refused",
        put=partial(_with_add, size=10**15),
        says="does not have as many bytes as the log says.*a.parquet.*Hint",
    ),
    Attack(
        "takes the machine",
        "10^15 bytes of a data file",
        "optimize",
        "harmless",  # such a file is large enough
        put=partial(_with_add, size=10**15, deletionVector=None),
        slow=True,
    ),
    *(
        Attack(
            "takes the machine",
            f"{rows} rows of a data file in its statistics",
            operation,
            "refused" if operation == "read" else "harmless",
            put=partial(_with_add, stats=json.dumps({"numRecords": rows})),
            says="as many rows as the log says",
            confined=True,
        )
        for rows in (10**15, 2**63 - 1)
        for operation in ("read", "check", "inspect")
    ),
    *(
        Attack(
            "takes the machine",
            "an inline vector of 64 MiB",
            operation,
            "refused" if operation == "read" else "harmless",
            put=partial(_inline, size=1 << 26),
            says="not a vector",
            confined=True,
            slow=True,
        )
        for operation in ("read", "check", "inspect", "checkpoint")
    ),
    *(
        Attack(
            "takes the machine",
            f"a vector with {', '.join(f'{name} {value}' for name, value in changed.items())}",
            operation,
            "refused" if operation == "read" else "harmless",
            put=partial(_with_vector, changed=changed),
            says="ends before the requested bytes|wrong number of values|out of bounds",
            confined=True,
        )
        for changed in (
            {"sizeInBytes": 2**31 - 1},
            {"offset": 2**31 - 1},
            {"cardinality": 2**63 - 1},
            {"sizeInBytes": 2**31},
        )
        for operation in ("read", "check")
    ),
    *(
        Attack(
            "takes the machine",
            f"a sidecar with {name} {value}",
            "read",
            "harmless",
            put=partial(_sidecar, changed={name: value}),
            then=_ten_rows,
            confined=True,
        )
        for name, value in (("sizeInBytes", 10**18), ("sizeInBytes", -1))
    ),
    *(
        Attack(
            "takes the machine",
            f"{levels} {kind} inside of each other",
            operation,
            "refused",
            put=partial(_with_schema, schema=_nested(kind, levels)),
            says="nested too deep",
            confined=True,
            slow=levels != 900,
        )
        for kind in ("arrays", "structs", "maps")
        for levels in (100, 900, 10_000)
        for operation in ("read", "checkpoint")
    ),
    *(
        Attack(
            "takes the machine",
            "a partition column that is named 10^6 times",
            operation,
            "refused" if operation != "delvec check" else "harmless",
            put=partial(
                _with_schema,
                schema=f"{_field('id', _LONG)},{_field('p', _LONG)}",
                partition_columns=["p", "P"] * 500_000,
            ),
            says="more than once",
            confined=True,
            slow=operation != "read",
        )
        for operation in ("read", "delvec check", "checkpoint")
    ),
    *(
        Attack(
            "takes the machine",
            f"delta.{name} of {value[:30]}",
            operation,
            "harmless",
            put=partial(_with_properties, properties={name: value}),
            confined=True,
            slow=operation == "checkpoint",
        )
        for name, value in (
            ("dataSkippingNumIndexedCols", "2000000000"),
            ("dataSkippingStringPrefixLength", "2000000000"),
            ("checkpointInterval", "9" * 5000),
            ("logRetentionDuration", f"interval {'9' * 400} days"),
            ("logRetentionDuration", "interval 9999999999999999 weeks"),
            ("columnMapping.maxColumnId", "9" * 5000),
            ("targetFileSize", "9" * 5000),
        )
        for operation in ("inspect", "set properties", "checkpoint")
    ),
    *(
        Attack(
            "takes the machine",
            f"delta.{name} of {value[:30]}",
            operation,
            "refused",
            put=partial(_with_properties, properties={name: value}),
            says=f"delta.{name} .*Hint",
            confined=True,
        )
        for name, value, operation in (
            ("dataSkippingNumIndexedCols", "9" * 5000, "checkpoint"),
            ("deletedFileRetentionDuration", f"interval {'9' * 400} days", "vacuum by retention"),
            ("logRetentionDuration", f"interval {'9' * 400} days", "clean log"),
        )
    ),
    Attack(
        "takes the machine",
        "2 * 10^9 characters as the prefix of a file",
        "append ids",
        "refused",
        put=partial(
            _with_properties,
            properties={"randomizeFilePrefixes": "true", "randomPrefixLength": "2000000000"},
        ),
        says="delta.randomPrefixLength has a value that it cannot have.*255.*Hint",
    ),
    Attack(
        "takes the machine",
        "the changes of 2^62 versions",
        "changes",
        "refused",
        put=_far_checkpoint,
        says="the changes of version 2 .* cannot be read any more",
    ),
]


def _is_equal(found: object, expected: object) -> None:
    assert found == expected
