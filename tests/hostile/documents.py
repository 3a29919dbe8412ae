"""Attacks by what is read: JSON, numbers, strings and Parquet that are not what they should be.

And by entries of the folder that are neither files nor folders: one of them stops nothing.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.delta.builder import TableBuilder, small_table
from tests.hostile.attack import Ground, harmless, refused

_ROWS: Final = 16
_DEEP: Final = '{"a":' * 100_000 + "1" + "}" * 100_000
_DIGITS: Final = "9" * 5_000


def _all_rows(_: Ground, rows: Any) -> None:  # noqa: ANN401
    assert len(rows) == _ROWS


def _small(ground: Ground) -> TableBuilder:
    return small_table(ground.table)[0]


def _changed(change: Callable[[dict[str, Any]], object], kind: str) -> Callable[[Ground], None]:
    """Change the actions of a kind in all commits."""

    def put(ground: Ground) -> None:
        table = _small(ground)
        for version in range(table.version + 1):
            path = table.commit_path(version)
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            for action in actions:
                if kind in action:
                    change(action[kind])
            text = "".join(json.dumps(action) + "\n" for action in actions)
            path.write_text(text.replace('"<deep>"', _DEEP))

    return put


def _with_property(name: str, value: str) -> Callable[[Ground], None]:
    return _changed(lambda body: body["configuration"].update({name: value}), "metaData")


def _with_file(name: str, data: bytes | str) -> Callable[[Ground], None]:
    def put(ground: Ground) -> None:
        table = _small(ground)
        (table.log / name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return put


def _with_action(**action: Any) -> Callable[[Ground], object]:  # noqa: ANN401
    return lambda ground: _small(ground).commit(action)


def _set(key: str, value: object, kind: str = "add") -> Callable[[Ground], None]:
    return _changed(lambda body: body.update({key: value}), kind)


def _domain(name: object, configuration: str) -> dict[str, object]:
    return {"domain": name, "configuration": configuration}


# Where a document is nested deep, and what comes of it when the table is read.
_NESTED: Final[dict[str, tuple[Callable[[Ground], object], bool]]] = {
    "the hint at the newest checkpoint": (_with_file("_last_checkpoint", _DEEP), True),
    "a checksum file": (_with_file(f"{2:020d}.crc", _DEEP), True),
    "the mark of the last vacuum": (_with_file("_last_vacuum_info", _DEEP), True),
    "a commitInfo": (_set("extra", "<deep>", "commitInfo"), False),
    "the schema": (_set("schemaString", _DEEP, "metaData"), False),
    "an option of the format": (_set("format", "<deep>", "metaData"), False),
    "statistics": (_set("stats", _DEEP), True),
    "tags of a file": (_set("tags", "<deep>"), True),
    "a domain": (_with_action(domainMetadata=_domain("delta.clustering", _DEEP)), True),
}

_HINTS: Final[dict[str, bytes]] = {
    "no UTF-8": b'{"version":\xff}',
    "a version of thousands of digits": f'{{"version":{_DIGITS}}}'.encode(),
    "half of a surrogate pair": b'{"version":2,"checksum":"\\ud800"}',
    "a list": b"[2]",
    "in UTF-16": '{"version":2}'.encode("utf-16"),
}


def _schema(field: str) -> Callable[[Ground], None]:
    return _set("schemaString", f'{{"type":"struct","fields":[{field}]}}', "metaData")


def _relined(form: str) -> Callable[[Ground], object]:
    """Put the info and the two adds of a commit into other lines."""

    def put(ground: Ground) -> None:
        path = _small(ground).commit_path(1)
        path.write_text(form.format(*path.read_text().splitlines()))

    return put


_WRONG_BODIES: Final[dict[str, Callable[[Ground], object]]] = {
    "a domain that is an object": _with_action(domainMetadata=_domain({}, "")),
    "a transaction of a version beyond longs": _with_action(txn={"appId": "a", "version": 10**30}),
    "an application that is a list": _with_action(txn={"appId": [], "version": 1}),
    "a path that is a number": _set("path", 7),
    "a size beyond longs": _set("size", 10**30),
    "half of a surrogate pair in a path": _set("path", "\ud800"),
    "half of a surrogate pair in the schema": _schema('{"name":"\\ud800","type":"long"}'),
    "a decimal of thousands of digits": _schema(f'{{"name":"id","type":"decimal({_DIGITS},0)"}}'),
    "a line that is null": _relined("null\n{1}\n{2}"),
    "two actions in one line": _relined("{0}\n{1} {2}\n\n"),  # other engines read the first alone
}


def _char_column(width: str) -> Callable[[Ground], None]:
    """Make a table of a char column, and many rows in few bytes."""

    def put(ground: Ground) -> None:
        table = TableBuilder(ground.table, fields={"c": "string"})
        metadata = table.metadata()
        schema = json.loads(metadata["schemaString"])
        schema["fields"][0]["metadata"] = {"__CHAR_VARCHAR_TYPE_STRING": f"char({width})"}
        table.commit(
            {"protocol": table.protocol},
            {"metaData": metadata | {"schemaString": json.dumps(schema)}},
        )
        table.commit({"add": table.write_file("a.parquet", {"c": ["x"] * 2_000})})

    return put


def _count_is(count: int) -> Callable[[Ground, Any], None]:
    def look(_: Ground, found: Any) -> None:  # noqa: ANN401
        assert found == count

    return look


def _strings_of_bytes(ground: Ground) -> None:
    """Put a data file of which a column of bytes is said to be one of strings."""
    table = TableBuilder(ground.table, fields={"s": "string"})
    table.create()
    bad = pa.array([b"\xff\xfe"], pa.binary())
    rows = pa.table({"s": pa.Array.from_buffers(pa.string(), len(bad), bad.buffers())})
    table.commit({"add": table.write_file("a.parquet", rows)})


def _checkpoint(damage: Callable[[bytes], bytes]) -> Callable[[Ground], None]:
    def put(ground: Ground) -> None:
        table, live = small_table(ground.table)
        [path] = table.checkpoint(live)
        path.write_bytes(damage(path.read_bytes()))

    return put


def _data_file(damage: Callable[[bytes], bytes]) -> Callable[[Ground], None]:
    """Damage a data file, and let the log know its new size."""

    def put(ground: Ground) -> None:
        table = TableBuilder(ground.table)
        table.create()
        add = table.write_file("a.parquet", {"id": range(100)})
        path = ground.table / "a.parquet"
        path.write_bytes(damage(path.read_bytes()))
        table.commit({"add": add | {"size": path.stat().st_size}})

    return put


def _with_footer(data: bytes, footer: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _of_another(rows: dict[str, Any]) -> Callable[[bytes], bytes]:
    """Return what gives a file the row groups of another one, and keeps its schema."""

    def change(first: bytes) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.table(rows), sink)
        pair = (first, sink.getvalue())
        footers = [data[-8 - int.from_bytes(data[-8:-4], "little") : -8] for data in pair]
        # Field 4 of both, the row groups, is a list of one struct: `19 1c`, behind how many rows.
        ends = [footer.index(b"\x19\x1c\x19") for footer in footers]
        return _with_footer(first, footers[0][: ends[0]] + footers[1][ends[1] :])

    return change


def _nested_type(data: bytes) -> bytes:
    """Return a file whose footer has structs in structs, 100,000 deep."""
    group = b"\x35\x02\x18\x01a\x15\x02\x00"  # repetition, name, one child
    leaf = b"\x15\x04\x25\x02\x18\x01a\x00"
    count = b"\xa1\x8d\x06"  # 100,001
    elements = group * 100_000 + leaf
    return _with_footer(data, b"\x15\x02\x19\xfc" + count + elements + b"\x16\x00\x19\x0c\x00")


_FOOTERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "a column chunk of another type": _of_another({"id": ["x"] * 100}),
    "sizes of levels that the schema has not": _of_another({"id": [[1]] * 100}),
    "more columns than the schema": _of_another({"id": range(100), "b": range(100)}),
    "structs nested 100,000 deep": _nested_type,
    "a footer that ends early": lambda data: _with_footer(data, data[-40:-8]),
    "zeroes": lambda data: data[:4] + bytes(len(data) - 12) + data[-8:],
    "a name that is not UTF-8": lambda data: data.replace(b"id", b"\xff\xfe"),
}


_BAD_FILES: Final = {what: _data_file(damage) for what, damage in _FOOTERS.items()}
_CHECKPOINTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "strings that are not UTF-8": lambda data: data.replace(b"part-0", b"\xff\xfe\xfdt-0"),
    "zeroes": _FOOTERS["zeroes"],
    "its last byte missing": lambda data: data[:-1],
    "structs nested 100,000 deep": _nested_type,
}


def _looks_odd(ground: Ground, report: Any) -> None:  # noqa: ANN401
    odd = [each.path for each in report.findings if each.kind == "odd-entry"]
    assert len(odd) in (1, 2), report
    assert all(os.path.lexists(ground.table / each) or "\\u" in each for each in odd)


def _link(name: str, to: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).symlink_to(to)


def _name_of_bytes(folder: Path) -> None:
    with open(os.fsencode(folder) + b"/\xff\xfe.parquet", "wb") as file:  # noqa: PTH123
        file.write(b"x")


_ENTRIES: Final[dict[str, Callable[[Path], None]]] = {
    "a link to itself": _link("loop", "loop"),
    "a link to the folder above": _link("up", ".."),
    "a link to nothing": _link("nothing.parquet", "gone"),
    "a link through a file": _link("through", "../part-0.parquet/x"),
    "a link with a name too long": _link("long", "x" * 4000),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe.parquet"),
    "a name that is not UTF-8": _name_of_bytes,
}
_PLACES: Final = {"the folder": "", "the log": "_delta_log", "a partition": "part=1"}
_LOOKS: Final = {
    "read": _all_rows,
    "check": _looks_odd,
    **dict.fromkeys(("inspect", "vacuum", "traces without Spark")),
}


def _with_entry(make: Callable[[Path], None], place: str) -> Callable[[Ground], None]:
    def put(ground: Ground) -> None:
        _small(ground)
        (ground.table / place).mkdir(exist_ok=True)
        make(ground.table / place)

    return put


def _looped(name: str) -> Callable[[Ground], None]:
    return lambda ground: (_small(ground).log / name).symlink_to(name)


def _bad_path(path: str) -> Callable[[Ground], None]:
    """Add a file whose path no file can have, beside two sound ones."""

    def put(ground: Ground) -> None:
        table = _small(ground)
        add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1}
        table.commit({"add": add | {"dataChange": True, "stats": '{"numRecords": 1}'}})

    return put


def _finds_the_file(_: Ground, report: Any) -> None:  # noqa: ANN401
    errors = [each.kind for each in report.findings if each.severity == "error"]
    assert errors in (["unreadable-file"], ["damaged-log"]), errors


_IGNORED: Final = ("check", "vacuum", "checkpoint", "history")
ATTACKS: Final = [
    *refused(
        "foreign error",
        *(
            (f"deep JSON in {place}", ("read", "inspect"), put)
            for place, (put, ignored) in _NESTED.items()
            if not ignored
        ),
        says="damaged|not JSON|no objects",
    ),
    *harmless(
        "foreign error",
        *(
            (
                f"deep JSON in {place}",
                # A checkpoint has to copy tags.
                ("read", "inspect", *(() if place == "tags of a file" else _IGNORED)),
                put,
            )
            for place, (put, ignored) in _NESTED.items()
            if ignored
        ),
    ),
    *harmless(
        "foreign error",
        *(
            (f"a hint that is {what}", "read", _with_file("_last_checkpoint", data))
            for what, data in _HINTS.items()
        ),
        then=_all_rows,
    ),
    *refused(
        "foreign error",
        *((what, ("read", "checkpoint"), put) for what, put in _WRONG_BODIES.items()),
        says="found|damaged|no text|wrong type|does not know",
    ),
    *harmless(
        "foreign error",
        *(
            (
                f"{name} of {value[:9]}...",
                ("read", "checkpoint", "inspect", "set a property", "check"),
                _with_property(name, value),
            )
            for name, value in (
                ("delta.checkpointInterval", _DIGITS),
                ("delta.logRetentionDuration", f"interval {_DIGITS[:300]} weeks"),
                ("delta.deletedFileRetentionDuration", "interval 999999999999999999 weeks"),
            )
        ),
        (
            "a checkpoint interval in Arabic digits",
            *("set a property", _with_property("delta.checkpointInterval", "٣")),
        ),
    ),
    *refused(
        "foreign error",
        *(
            (f"a table whose {key} is {value!r}", "checkpoint", _set(key, value, "metaData"))
            for key, value in (("id", 7), ("createdTime", 10**30), ("format", {"options": 1.5}))
        ),
    ),
    *harmless(
        "takes the machine",
        ("char(65536) of 2,000 rows", "count in batches", _char_column("65536"), _count_is(2_000)),
        confined=True,
    ),
    *refused(
        "foreign error",
        *(
            (f"char of {len(width)} digits", "count in batches", _char_column(width))
            for width in ("65537", "9" * 12, _DIGITS)
        ),
        says="too wide|only Spark pads",
    ),
    *refused(
        "foreign error",
        ("strings of a data file that are not UTF-8", "read", _strings_of_bytes),
        says=r"not UTF-8 in .*a\.parquet",
    ),
    *refused(
        "foreign error",
        *(
            (f"a checkpoint with {what}", ("read", "inspect"), _checkpoint(damage))
            for what, damage in _CHECKPOINTS.items()
        ),
        says="checkpoint",
    ),
    *refused(
        "foreign error",
        *((f"a data file with {what}", "read", put) for what, put in _BAD_FILES.items()),
        says=r"a\.parquet",
        confined=True,
        slow=lambda place, _: "of another type" not in place,
    ),
    *harmless(
        "foreign error",
        *((f"a data file with {what}", "check", put) for what, put in _BAD_FILES.items()),
        confined=True,
        slow=lambda place, _: "nested" not in place,
    ),
    *harmless(
        "takes the machine",
        *(
            (f"{what} in {place}", operation, _with_entry(make, folder), then)
            for what, make in _ENTRIES.items()
            for place, folder in _PLACES.items()
            for operation, then in _LOOKS.items()
            if what == "a link to itself" or operation in ("check", "traces without Spark")
        ),
    ),
    *harmless(
        "takes the machine",
        *(
            (f"{name} that is a link to itself", "read", _looped(name), _all_rows)
            for name in ("_last_checkpoint", f"{2:020d}.crc", "_last_vacuum_info", "_sidecars")
        ),
        *(
            (f"a path of {path!r}", "check", _bad_path(path), _finds_the_file)
            for path in ("a//b.parquet", "a\\b.parquet", "a%00b.parquet", "x" * 3000)
        ),
    ),
]
