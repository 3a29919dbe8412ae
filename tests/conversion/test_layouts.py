"""Tables of every layout that Delta has, converted: Iceberg's readers see what delta-spark sees."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec import DeltaTable
from delvec.errors import UnsupportedFeatureError
from delvec.vector import Bitmap, Descriptor
from delvec.vector import descriptor as z85
from delvec.vector.frame import encode_frame
from tests.conversion.targets import ids
from tests.delta import log_files
from tests.delta.builder import TableBuilder, small_table
from tests.interop.conversion_targets import TARGETS, check_equal
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import INTERPRETED, ZONE, settings_of

Action = dict[str, Any]

pytestmark = [pytest.mark.spark, pytest.mark.more]

SETTINGS: dict[str, object] = {
    # PyIceberg does not read the older timestamps of 96 bits.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **INTERPRETED,
}
CONVERSIONS = ("v2", "repacked", "referenced")
TEXTS = ("a b", "100%", "%20", "x=y", "a/b", "c:d", "'q\"", "Ünï", "", "#?&+", "NULL", "{a}[b]^")
PARTITIONS = {
    "text STRING": tuple("'" + text.replace("'", "\\'") + "'" for text in TEXTS),
    "big BIGINT": ("-9223372036854775808", "7"),
    "n INT": ("-5", "2147483647"),
    "small SMALLINT": ("-32768", "0"),
    "tiny TINYINT": ("127", "-1"),
    "day DATE": ("DATE'2024-02-29'", "DATE'0001-01-01'", "DATE'9999-12-31'"),
    "stamp TIMESTAMP": (
        "TIMESTAMP'2024-02-29 23:59:59.999999 UTC'",
        "TIMESTAMP'1969-12-31 23:59:59.1 UTC'",
    ),
    "clock TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2024-02-29 23:59:59.999999'",
        "TIMESTAMP_NTZ'1900-01-01 00:00:00'",
    ),
    "flag BOOLEAN": ("true", "false"),
    "price DECIMAL(9, 3)": ("-1.5", "99999.125"),
    "large DECIMAL(30, 10)": ("12345678901234567890.1", "-0.0000000001"),
    "ratio DOUBLE": ("0.1D", "-2.5E300D", "double('Infinity')"),
    "speed FLOAT": ("float(0.1)", "float('-Infinity')"),
    "raw BINARY": ("X'61'", "X'C3BF'"),
}
NESTED = (
    "id BIGINT, s STRUCT<a: INT, b: STRUCT<c: STRING, d: ARRAY<DOUBLE>>>, l ARRAY<INT>,"
    " ll ARRAY<ARRAY<STRING>>, ls ARRAY<STRUCT<x: INT, y: MAP<STRING, INT>>>,"
    " m MAP<STRING, BIGINT>, ms MAP<INT, STRUCT<x: DATE, y: ARRAY<TIMESTAMP>>>"
)


def by_all_types(spark: SparkSession, path: Path) -> None:
    """Partition by a column of each type at once, each value with three rows; all null, too."""
    columns = ", ".join(["id BIGINT", *PARTITIONS])
    names = [each.split()[0] for each in PARTITIONS]
    spark_tables.create(spark, path, columns, partitioned_by=names)
    count = max(map(len, PARTITIONS.values()))
    rows = [", ".join(each[at % len(each)] for each in PARTITIONS.values()) for at in range(count)]
    rows.append(", ".join("NULL" for _ in PARTITIONS))
    values = ", ".join(
        f"({3 * at + more}, {row})" for at, row in enumerate(rows) for more in range(3)
    )
    spark_tables.sql(spark, path, f"INSERT INTO {{T}} VALUES {values}")
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id % 3 = 1 AND id % 2 = 0")


def nested(spark: SparkSession, path: Path, mapping: str = "none") -> None:
    properties = {"delta.columnMapping.mode": mapping}
    spark_tables.create(spark, path, NESTED, properties=properties)
    spark_tables.sql(
        spark,
        path,
        """INSERT INTO {T} SELECT id,
            if(id % 5 = 0, NULL,
                struct(int(id), if(id % 3 = 0, NULL, struct('c', array(0.5D, id))))),
            if(id % 4 = 0, NULL, array(int(id), NULL)), array(array('x', NULL), NULL, array()),
            array(struct(int(id), map('k', int(id))), NULL), map('a', id, 'b', NULL),
            map(int(id), struct(date_add(DATE'2024-01-01', int(id)), array(timestamp_seconds(id))))
        FROM range(40)""",
        "INSERT INTO {T} VALUES (100, NULL, NULL, NULL, NULL, NULL, NULL)",
        "DELETE FROM {T} WHERE id % 7 = 3",
    )


def arrays_of_structs(spark: SparkSession, path: Path) -> None:
    """Map columns where Iceberg needs no more ids than files have: those of the structs' fields."""
    spark_tables.create(
        spark,
        path,
        "id BIGINT, l ARRAY<STRUCT<x: INT, y: STRING>>, s STRUCT<a: INT, l: ARRAY<STRUCT<z: INT>>>",
        properties={"delta.columnMapping.mode": "name"},
    )
    spark_tables.sql(
        spark,
        path,
        """INSERT INTO {T} SELECT id, if(id % 3 = 0, NULL, array(struct(int(id), 'y'), NULL)),
            struct(int(id), array(struct(int(id)))) FROM range(20)""",
        "DELETE FROM {T} WHERE id % 7 = 3",
    )


def several_in_one_file(spark: SparkSession, path: Path) -> None:
    """Make many vectors with one statement, and leave files without."""
    spark_tables.create(spark, path, "id BIGINT, p INT", partitioned_by=["p"])
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {T} SELECT id, int(id % 6) FROM range(120)",
        "DELETE FROM {T} WHERE id % 10 = 1 OR id = 4",
        "DELETE FROM {T} WHERE id = 11",
        "INSERT INTO {T} SELECT id, 1 FROM range(200, 210)",
    )
    adds = [add for add in log_files.live_adds(path) if add.get("deletionVector")]
    assert len(adds) > len({add["deletionVector"]["pathOrInlineDv"] for add in adds})
    assert len(adds) < len(log_files.live_adds(path))


def shallow_clone(spark: SparkSession, path: Path) -> None:
    """Clone a table with vectors: the clone's name the files of the other by absolute paths."""
    origin = path.with_name("the origin")
    several_in_one_file(spark, origin)
    spark_tables.sql(
        spark,
        path,
        f"CREATE TABLE {{T}} SHALLOW CLONE delta.`{origin}`",
        "DELETE FROM {T} WHERE id % 12 = 2",
        "INSERT INTO {T} VALUES (1000, NULL), (1001, 1)",
    )
    kinds = {
        (add.get("deletionVector") or {}).get("storageType") for add in log_files.live_adds(path)
    }
    assert kinds == {"u", "p", None}


def generated(spark: SparkSession, path: Path) -> None:
    spark_tables.create(
        spark,
        path,
        "id BIGINT, at TIMESTAMP_NTZ, born DATE, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)),"
        " year INT GENERATED ALWAYS AS (YEAR(born)), month INT GENERATED ALWAYS AS (MONTH(born))",
        partitioned_by=["day", "year", "month"],
    )
    spark_tables.sql(
        spark,
        path,
        """INSERT INTO {T} (id, at, born) SELECT id,
            if(id % 6 = 0, NULL,
                TIMESTAMP_NTZ'1969-12-30 20:00:00' + make_interval(0, 0, 0, 0, int(id))),
            if(id % 5 = 0, NULL, add_months(DATE'1969-11-30', int(id % 4)))
        FROM range(0, 60, 1, 1)""",
        "DELETE FROM {T} WHERE id % 4 = 0",
    )


def inline(*positions: int) -> Action:
    payload = encode_frame(Bitmap(positions))[4:-4]
    return Descriptor("i", z85.encode(payload), None, len(payload), len(positions)).to_json()


def inline_vectors(_: SparkSession | None, path: Path) -> None:
    """Write vectors into the log itself, as other engines may, beside all other kinds."""
    table = TableBuilder(path)
    table.create()
    [first, second, third] = table.write_vectors([0, 9], [3], [1, 2, 5])
    [other] = TableBuilder(path.with_name("not here")).write_vectors([7])
    apart = path.with_name("not here") / str(Descriptor.from_json(other).file_path)
    absolute = other | {"storageType": "p", "pathOrInlineDv": apart.as_uri()}
    vectors = [first, second, None, third, inline(0), inline(2, 3, 4), absolute]
    [prefixed] = table.write_vectors([8, 9], prefix="ab")
    adds = []
    for number, vector in enumerate([*vectors, prefixed]):
        rows = {"id": pa.array(range(10 * number, 10 * number + 10), pa.int64())}
        add = table.write_file(f"part {number}%.parquet", rows)
        add["path"] = f"part%20{number}%25.parquet"
        adds.append(add if vector is None else add | {"deletionVector": vector})
    table.commit(*({"add": add} for add in adds))


LAYOUTS: dict[str, Callable[[Any, Path], None]] = {
    "partitions of all types": by_all_types,
    "nested": nested,
    "nested, mapped by name": partial(nested, mapping="name"),
    "nested, mapped by id": partial(nested, mapping="id"),
    "arrays of structs, mapped": arrays_of_structs,
    "several vectors in a file": several_in_one_file,
    "shallow clone": shallow_clone,
    "generated partitions": generated,
    "inline vectors": inline_vectors,
}
COPIED = ("nested, mapped by name", "nested, mapped by id")
GOLDEN = (
    "basic-dv-no-checkpoint",
    "table-with-dv-small",
    "with-short-dv",
    "dv-partitioned-with-checkpoint",
    "dv-with-columnmapping",
    "multi-part-checkpoint",
    "v2-checkpoint-json",
    "corrupted-last-checkpoint-kernel",
    "table-with-columnmapping-mode-id",
    "data-reader-partition-values",
    "data-reader-primitives",
    "time-travel-start-start20-start40",
    "canonicalized-paths-special-a",
)
# PyIceberg does not read timestamps of 96 bits.
OLD_TIMESTAMPS = ("with-short-dv", "table-with-columnmapping-mode-id")


@pytest.fixture(autouse=True)
def quick(spark: SparkSession) -> Iterator[None]:
    with settings_of(spark, SETTINGS):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_reads_the_same_in_iceberg(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "a täble 100%25"
    LAYOUTS[name](spark, path)
    for conversion in CONVERSIONS:
        target = f"lake.layouts.t{uuid4().hex}"
        if name == "inline vectors" and conversion == "referenced":
            with pytest.raises(UnsupportedFeatureError, match="is in the log itself"):
                delvec.convert(spark, path, target, **TARGETS[conversion].choices)
            continue
        check_equal(spark, path, target, TARGETS[conversion], copy_files=name in COPIED)


def test_a_warehouse_whose_name_looks_escaped(spark: SparkSession, tmp_path: Path) -> None:
    """Iceberg's locations are not escaped, unlike paths in the log of Delta."""
    small_table(tmp_path / "source")
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop"}
    for key, value in {**settings, ".warehouse": f"file:{tmp_path}/a%20b c"}.items():
        spark.conf.set(f"spark.sql.catalog.escaped{key}", value)
    live = DeltaTable.for_path(None, tmp_path / "source").to_arrow()["id"].to_pylist()
    for version in (2, 3):
        target = f"escaped.db.t{version}"
        delvec.convert(spark, tmp_path / "source", target, format_version=version, verify="rows")
        assert ids(spark, target) == sorted(live)
        assert list((tmp_path / "a%20b c" / "db" / f"t{version}").glob("d*/*.p*"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a%20b c", "source"]


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_a_table_of_other_engines_reads_the_same_in_iceberg(
    spark: SparkSession, tmp_path: Path, golden: Path, name: str
) -> None:
    path = tmp_path / name
    shutil.copytree(golden / name / "delta", path)
    zone = {ZONE: "America/Los_Angeles"} if name == "data-reader-partition-values" else {}
    with settings_of(spark, zone):
        for conversion in CONVERSIONS:
            target = f"lake.layouts.t{uuid4().hex}"
            check_equal(
                spark,
                path,
                target,
                TARGETS[conversion],
                pyiceberg=name not in OLD_TIMESTAMPS,
                copy_files=name == "table-with-columnmapping-mode-id",
            )
