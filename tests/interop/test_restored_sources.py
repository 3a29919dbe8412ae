"""Sources that delta-spark restores to before a change of their columns: targets follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import delvec
from tests.delta.rows import same_rows
from tests.interop.conversion_targets import TARGETS, by_spark, check_pyiceberg
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
# Columns, properties, what changes after the first rows, and the types that stay wider.
CHANGES: dict[str, tuple[str, dict[str, str], list[str], str]] = {
    "widened": (
        "id INT, f FLOAT, d DECIMAL(5, 2), s STRUCT<n: SMALLINT>",
        WIDENING,
        [
            "ALTER TABLE {T} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {T} ALTER COLUMN f TYPE DOUBLE",
            "ALTER TABLE {T} ALTER COLUMN d TYPE DECIMAL(9, 2)",
            "ALTER TABLE {T} ALTER COLUMN s.n TYPE BIGINT",
            "INSERT INTO {T} VALUES (5000000000, 0.1D, 10000.5, struct(5000000000))",
        ],
        (
            "'id' is long and not int; 'f' is double and not float;"
            " 'd' is decimal(9, 2) and not decimal(5, 2); 's.n' is long and not int"
        ),
    ),
    "widened, with column mapping": (
        "id INT, n INT",
        MAPPED | WIDENING,
        ["ALTER TABLE {T} ALTER COLUMN n TYPE BIGINT", "INSERT INTO {T} VALUES (9, 5000000000)"],
        "'n' is long and not int",
    ),
    "nullable": (
        "id INT NOT NULL, s STRUCT<n: INT>",
        {},
        ["ALTER TABLE {T} ALTER COLUMN id DROP NOT NULL", "INSERT INTO {T} VALUES (NULL, NULL)"],
        "",
    ),
    "added": (
        "id INT, n INT",
        {},
        ["ALTER TABLE {T} ADD COLUMN x INT AFTER id", "INSERT INTO {T} VALUES (9, 9, 9)"],
        "",
    ),
    "renamed": (
        "id INT, n INT",
        MAPPED,
        [
            "ALTER TABLE {T} RENAME COLUMN n TO m",
            "ALTER TABLE {T} ADD COLUMN n STRING",
            "INSERT INTO {T} VALUES (9, 9, 'n')",
        ],
        "",
    ),
    "dropped": (
        "id INT, n INT NOT NULL, s STRUCT<a: INT, b: INT>",
        MAPPED,
        [
            "ALTER TABLE {T} DROP COLUMN n",
            "ALTER TABLE {T} DROP COLUMN s.a",
            "INSERT INTO {T} VALUES (9, struct(9))",
        ],
        "",
    ),
}
ROWS = {
    "widened": ["(1, 0.1, 1.5, struct(1)), (2, NULL, NULL, NULL)", "(3, 0.3, 3.5, struct(3))"],
    "nullable": ["(1, struct(1)), (2, NULL)", "(3, struct(3))"],
    "dropped": ["(1, 1, struct(1, 1)), (2, 2, NULL)", "(3, 3, struct(3, NULL))"],
}
PAIRS = ["(1, 1), (2, NULL)", "(3, 3)"]


@pytest.fixture(autouse=True)
def timestamps(spark: SparkSession) -> Iterator[None]:
    with settings_of(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_restore_of_columns_is_followed(spark: SparkSession, tmp_path: Path, name: str) -> None:
    columns, properties, changes, wider = CHANGES[name]
    first, more = ROWS.get(name, PAIRS)
    path, base = tmp_path / "source", f"lake.restored.t_{uuid4().hex[:8]}"
    labels = ("v2", "history")

    def convert() -> list[tuple[str, ...]]:
        return [
            delvec.convert(
                spark, path, f"{base}_{label}", verify="rows", **TARGETS[label].choices
            ).notes
            for label in labels
        ]

    spark_tables.create(spark, path, columns, properties=properties)
    spark_tables.sql(spark, path, f"INSERT INTO {{T}} VALUES {first}")
    convert()
    spark_tables.sql(spark, path, *changes)
    assert convert() == [(), ()]
    spark_tables.sql(
        spark,
        path,
        "RESTORE TABLE {T} TO VERSION AS OF 1",
        "DELETE FROM {T} WHERE id = 2",
        f"INSERT INTO {{T}} VALUES {more}",
    )
    for notes in convert():
        assert len(notes) == bool(wider)
        assert all(wider in note for note in notes)
    # The source goes on, and so do its targets.
    spark_tables.sql(spark, path, *changes)
    assert convert() == [(), ()]
    last = delvec.DeltaTable.for_path(spark, path).version
    for version in range(last + 1):
        expected = spark_tables.as_delta_spark_reads(spark, path, version).toArrow()
        found = by_spark(spark, f"{base}_history", version).toArrow()
        assert same_rows(found, expected.cast(_widened(found.schema, expected.schema))), version
    for label in labels:
        check_pyiceberg(spark, f"{base}_{label}", expected)


def _widened(target: pa.Schema, source: pa.Schema) -> pa.Schema:
    """Return the source's schema with the target's types of numbers."""
    assert target.names == source.names
    return pa.schema(
        [
            pa.field(theirs.name, theirs.type if pa.types.is_floating(theirs.type) else ours.type)
            for theirs, ours in zip(target, source, strict=True)
        ]
    )
