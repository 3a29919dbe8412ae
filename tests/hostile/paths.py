"""Attacks by paths: a table names files that its writer may not read, and its reader may."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.iceberg.client.catalog import iceberg_view, load_table, table_name
from delvec.vector import Bitmap, pack
from tests.delta.builder import TableBuilder
from tests.hostile.attack import SECRET, Attack, Ground, harmless, refused
from tests.hostile.iceberg_tables import metadata_of
from tests.hostile.operations import IN_LAKE

Named = Callable[[Ground], str]


_ROWS: Final = 20
_BEYOND: Final = "leads out of its folder, to a path that is not allowed"


def _private(folder: Path) -> Path:
    """Write a data file that the table's writer may not read."""
    folder.mkdir(exist_ok=True)
    path = folder / "private.parquet"
    pq.write_table(pa.table({"id": range(_ROWS), "name": [SECRET] * _ROWS}), path)
    return path


def _own(ground: Ground) -> tuple[TableBuilder, dict[str, Any]]:
    table = TableBuilder(ground.table, fields={"id": "long", "name": "string"})
    table.create()
    add = table.write_file("own.parquet", {"id": range(_ROWS), "name": ["x"] * _ROWS})
    return table, add


def _data_file(named: Named, *, live: bool = True) -> Callable[[Ground], None]:
    """Put a table whose second file, which has a vector, is named so: in version 2, or still."""

    def put(ground: Ground) -> None:
        table, add = _own(ground)
        _private(ground.outside)
        [vector] = table.write_vectors([0])
        size = (ground.outside / "private.parquet").stat().st_size
        path = named(ground)
        table.commit({"add": add})
        table.commit({"add": add | {"path": path, "size": size, "deletionVector": vector}})
        if not live:
            removed = {"path": path, "dataChange": True, "deletionVector": vector}
            table.commit({"remove": removed | {"deletionTimestamp": 1_700_000_000_000}})

    return put


def _vector_file(named: Named) -> Callable[[Ground], None]:
    """Put a table whose one file has a vector in a file that is named so."""

    def put(ground: Ground) -> None:
        table, add = _own(ground)
        [packed] = pack([Bitmap(range(10))])
        (ground.outside / "private.bin").write_bytes(packed.data)
        [descriptor] = packed.descriptors
        vector = descriptor.to_json() | {"storageType": "p", "pathOrInlineDv": named(ground)}
        table.commit({"add": add | {"deletionVector": vector}})

    return put


def _at(pattern: str, name: str = "private.parquet") -> Named:
    return lambda ground: pattern.format(outside=ground.outside, folder=ground.folder, name=name)


def _linked_file(ground: Ground) -> str:
    (ground.table / "link.parquet").symlink_to(ground.outside / "private.parquet")
    return "link.parquet"


def _linked_folder(ground: Ground) -> str:
    (ground.table / "day=1").symlink_to(ground.outside)
    return "day=1/private.parquet"


def _linked_from_allowed(ground: Ground) -> str:
    (ground.folder / "allowed").symlink_to(ground.folder / "real")
    (ground.folder / "real").mkdir()
    (ground.folder / "real" / "private.parquet").symlink_to(ground.outside / "private.parquet")
    return f"{ground.folder}/allowed/private.parquet"


def _beside_allowed(ground: Ground) -> str:
    return str(_private(ground.folder / "allowed-not"))


_OUT: Final = "leads out of the table"
_CAPITALS: Final = "scheme in capitals"
# Refused by every operation, with a fence and without.
_NEVER: Final[dict[str, tuple[Named, str]]] = {
    "..": (_at("../outside/{name}"), _OUT),
    "%2e%2e": (_at("%2e%2e/outside/{name}"), _OUT),
    "a folder and %2E%2E": (_at("x/%2E%2E/%2e./outside/{name}"), _OUT),
    "an absolute path with ..": (_at("{folder}/table/../outside/{name}"), _OUT),
    "FILE:// with %252e%252e": (_at("FILE://{folder}/table/%252e%252e/outside/{name}"), _CAPITALS),
    "FILE://": (_at("FILE://{outside}/{name}"), _CAPITALS),
    "File:/": (_at("File:{outside}/{name}"), _CAPITALS),
    "%00": (_at("own.parquet%00{outside}/{name}"), "contains NUL"),
    "a JSON NUL": (_at("own.parquet\0"), "contains NUL"),
    "another host": (_at("file://evil.example{outside}/{name}"), "on another host"),
    "a user of this host": (_at("file://me:pw@localhost{outside}/{name}"), "on another host"),
    "a bucket": (_at("s3a://bucket/{name}"), "another kind of store"),
    "a bucket's user": (_at("s3a://key:secret@bucket/{name}"), "another kind of store|bucket"),
    "an unknown store": (_at("gopher://bucket/{name}"), "does not support the scheme"),
}
# Refused by the fence: without it these are files of the same store, which clones share.
_FENCED: Final[dict[str, Named]] = {
    "an absolute path": _at("{outside}/{name}"),
    "file:": _at("file:{outside}/{name}"),
    "file://": _at("file://{outside}/{name}"),
    "file:////": _at("file:///{outside}/{name}"),
    "file://localhost": _at("file://localhost{outside}/{name}"),
    "two slashes": _at("/{outside}/{name}"),
    "slashes inside": _at("{folder}//outside///{name}"),
    "an encoded slash": lambda ground: f"%2F{str(ground.outside)[1:]}/private.parquet",
    "an encoded letter": lambda ground: f"{ground.folder}/%6Futside/private.parquet",
    "a link to a file": _linked_file,
    "a link to a folder": _linked_folder,
    "a link from an allowed folder": _linked_from_allowed,
    "a folder whose name begins as an allowed one": _beside_allowed,
}
# With Spark, those that take another way there than in Python.
_QUICK: Final = (
    *("%00", "FILE:// with %252e%252e", "another host"),
    *("an absolute path", "a link to a file", "a link to a folder"),
)
_FENCED_READS: Final = ("read, fenced", "read on Spark, fenced")
_ABSOLUTE: Final = _FENCED["an absolute path"]
_AS_FILE: Final = "an absolute path as a data file"
_SLOW_ON_SPARK: Final = ("update", "convert", "read by the data source")


def _leak(place: str, operation: str, put: Any, says: str, *, slow: bool = False) -> Attack:  # noqa: ANN401
    return Attack("leaks", place, operation, "refused", put, says, slow=slow)


def _put_for(operation: str, named: Named) -> Callable[[Ground], None]:
    return _data_file(named, live=operation != "restore")


def _names_it(_: Ground, report: Any) -> None:  # noqa: ANN401
    text = " ".join(str(report).split())
    assert re.search(r"outside.* 1 file \(.*private\.parquet\)", text), text


def _nothing_read(_: Ground, report: Any) -> None:  # noqa: ANN401
    [finding] = [each for each in report.findings if each.kind == "other-store"]
    assert _BEYOND in finding.message


def _allowed(_: Ground, rows: Any) -> None:  # noqa: ANN401
    assert len(rows) == 2 * _ROWS - 1


def _in_allowed(ground: Ground) -> str:
    (ground.folder / "allowed").mkdir()
    return f"file:{_private(ground.folder / 'allowed' / 'deep')}"


_IN_ALLOWED: Final = _data_file(_in_allowed)


def _sidecar(path: str) -> Callable[[Ground], None]:
    """Put a checkpoint whose sidecar is named so, and a file there that would add private rows."""

    def put(ground: Ground) -> None:
        table, add = _own(ground)
        table.commit({"add": add})
        [checkpoint, *sidecars] = table.checkpoint_with_sidecars([add, add], as_json=True)
        evil = ground.outside / "evil.parquet"
        evil.write_bytes(sidecars[0].read_bytes())
        lines = [json.loads(line) for line in checkpoint.read_text().splitlines()]
        for line in lines:
            if "sidecar" in line:
                line["sidecar"]["path"] = path.format(outside=ground.outside)
        checkpoint.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for commit in table.log.glob("0*.json"):
            if "checkpoint" not in commit.name:
                commit.unlink()

    return put


def _iceberg(forge: Callable[[Ground, Any], None]) -> Callable[[Ground], None]:
    """Put an Iceberg table, and let it name what lies outside of its location."""

    def put(ground: Ground) -> None:
        spark = ground.spark
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.hostile")
        spark.sql(f"DROP TABLE IF EXISTS {IN_LAKE} PURGE")
        spark.sql(
            f"CREATE TABLE {IN_LAKE} (id bigint, name string) USING iceberg"
            " TBLPROPERTIES ('format-version' = '2')"
        )
        spark.sql(f"INSERT INTO {IN_LAKE} VALUES (1, 'x'), (2, 'y')")
        forge(ground, spark.table(IN_LAKE))

    return put


def _outside_data(ground: Ground, _: Any) -> None:  # noqa: ANN401
    _private(ground.outside / "data")
    ground.spark.sql(
        f"CALL lake.system.add_files('{IN_LAKE[5:]}', 'parquet.`{ground.outside}/data`')"
    ).collect()


def _with_metadata(change: Callable[[dict[str, Any], Ground], None]) -> Callable[..., None]:
    """Change the newest metadata file, as somebody does who may write to the table's folder."""

    def forge(ground: Ground, _: Any) -> None:  # noqa: ANN401
        value, file = metadata_of(ground, IN_LAKE)
        change(value, ground)
        file.write_text(json.dumps(value))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        ground.spark.sql(f"REFRESH TABLE {IN_LAKE}")

    return forge


def _outside_list(value: dict[str, Any], ground: Ground) -> None:
    for snapshot in value["snapshots"]:
        inside = Path(snapshot["manifest-list"].removeprefix("file:"))
        copy = ground.outside / inside.name
        copy.write_bytes(inside.read_bytes())
        snapshot["manifest-list"] = str(copy)


def _outside_statistics(value: dict[str, Any], ground: Ground) -> None:
    file = {"snapshot-id": value["current-snapshot-id"], "blob-metadata": []}
    sizes = dict.fromkeys(("file-size-in-bytes", "file-footer-size-in-bytes"), 10)
    path = str(ground.outside / "secret.txt")
    value["statistics"] = [{**file, **sizes, "statistics-path": path}]


def _outside_writes(value: dict[str, Any], ground: Ground) -> None:
    value["properties"]["write.data.path"] = str(ground.outside)


def _outside_deletes(ground: Ground, _: Any) -> None:  # noqa: ANN401
    """Add a position delete file that lies outside, by Iceberg's own library."""
    spark = ground.spark
    [[data]] = spark.sql(f"SELECT file_path FROM {IN_LAKE}.files LIMIT 1").collect()
    file = ground.outside / "deletes.parquet"
    columns = (("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545))
    fields = [
        pa.field(name, kind, nullable=False, metadata={b"PARQUET:field_id": str(number).encode()})
        for name, kind, number in columns
    ]
    rows = pa.table({"file_path": [data], "pos": [0]}, schema=pa.schema(fields))
    pq.write_table(rows, file)
    view = iceberg_view(spark)
    table = load_table(spark, table_name(spark, IN_LAKE)).handle
    entry = view.FileMetadata.deleteFileBuilder(table.spec()).ofPositionDeletes()
    entry = entry.withPath(str(file)).withFormat("parquet").withRecordCount(1)
    deletes = entry.withFileSizeInBytes(file.stat().st_size).build()
    table.newRowDelta().addDeletes(deletes).commit()


_ICEBERG: Final[dict[str, Callable[[Ground], None]]] = {
    "a data file": _iceberg(_outside_data),
    "a delete file": _iceberg(_outside_deletes),
    "a manifest list": _iceberg(_with_metadata(_outside_list)),
    "statistics": _iceberg(_with_metadata(_outside_statistics)),
    "write.data.path": _iceberg(_with_metadata(_outside_writes)),
}

ATTACKS: Final = [
    # Data files.
    *(
        _leak(f"{name} in the path of a data file", operation, _data_file(named), says, slow=slow)
        for name, (named, says) in _NEVER.items()
        for operation, slow in (("read", False), ("read on Spark", name not in _QUICK))
    ),
    *(
        _leak(f"{name} in the path of a data file", operation, _put_for(operation, named), says)
        for name, (named, says) in _NEVER.items()
        if name in ("%00", "FILE:// with %252e%252e", "a user of this host")
        for operation in ("purge", "restore", "clone")
    ),
    *(
        _leak(f"{name} as a data file", operation, _data_file(named), _BEYOND, slow=slow)
        for name, named in _FENCED.items()
        for operation, slow in zip(_FENCED_READS, (False, name not in _QUICK), strict=True)
    ),
    *(
        _leak(f"{name} as a data file", f"{operation}, fenced", _data_file(_FENCED[name]), _BEYOND)
        for name in ("an absolute path", "a link to a file")
        for operation in ("purge", "delete", "optimize")
    ),
    *refused(
        "leaks",
        *(
            (_AS_FILE, f"{operation}, fenced", _put_for(operation, _ABSOLUTE), _BEYOND)
            for operation in ("restore", "clone", "convert", "read by the data source", "update")
        ),
        slow=lambda _, operation: operation.startswith(_SLOW_ON_SPARK),
    ),
    *harmless(
        "leaks",
        (_AS_FILE, "check, fenced", _data_file(_ABSOLUTE), _nothing_read),
        (_AS_FILE, ("check", "inspect", "inspect, fenced"), _data_file(_ABSOLUTE), _names_it),
        ("a file in an allowed folder, which is none", "read, fenced", _IN_ALLOWED, _allowed),
    ),
    # Vectors.
    *(
        _leak(f"{name} as the path of a vector", "read", _vector_file(named), "vector|store|scheme")
        for name, named in {
            "..": _at("{folder}/table/../outside/private.bin"),
            "%2e%2e": _at("{folder}/table/%2e%2e/outside/private.bin"),
            "FILE:// with %252e": _at("FILE://{folder}/table/%252e%252e/outside/private.bin"),
            "%00": _at("{outside}/private.bin%00"),
            "another host": _at("file://evil.example{outside}/private.bin"),
            "a bucket": _at("s3a://bucket/private.bin"),
            "a backslash": _at("{outside}\\private.bin"),
        }.items()
    ),
    *(
        _leak(f"{name} as the path of a vector", operation, _vector_file(named), _BEYOND)
        for name, named in {
            "an absolute path": _at("{outside}/private.bin"),
            "file://": _at("file://{outside}/private.bin"),
            "an encoded letter": _at("{folder}/%6Futside/private.bin"),
        }.items()
        for operation in (*_FENCED_READS, "purge, fenced")
    ),
    # Checkpoints.
    *(
        _leak(f"a sidecar named {path}", "read", _sidecar(path), "does not exist|cannot be a key")
        for path in (
            "{outside}/evil.parquet",
            "../../../outside/evil.parquet",
            "file://{outside}/evil.parquet",
            "%2e%2e%2foutside%2fevil.parquet",
            "..%5coutside%5cevil.parquet",
            "x%00",
        )
    ),
    # Iceberg.
    *(
        _leak(f"{name} of Iceberg that lies outside", operation, put, _BEYOND, slow=slow)
        for name, put in _ICEBERG.items()
        for operation, slow in (
            ("read Iceberg, fenced", name != "a data file"),
            ("compact Iceberg, fenced", True),
        )
    ),
    *harmless(
        "leaks",
        (
            "a data file of Iceberg that lies outside",
            ("check Iceberg", "inspect Iceberg", "compact Iceberg"),
            _ICEBERG["a data file"],
            _names_it,
        ),
        slow=True,
    ),
]
