"""Delta tables converted to Iceberg, whatever both engines change: readers see the same rows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from random import Random
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion.planning.options import Verify
from tests.delta.builder import small_table
from tests.delta.rows import same_rows
from tests.interop.conversion_sources import KINDS, Source, every_answer, life, questions
from tests.interop.conversion_targets import TARGETS, by_spark, check_pyiceberg, static_table
from tests.interop.runs import SMALL_ROW_GROUPS
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import INTERPRETED, settings_of

pytestmark = pytest.mark.spark

FILE_PATH = 2147483546  # the id of that column in files of position deletes
SLOW_EXAMPLES = min(3, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 3))
SETTINGS: dict[str, object] = {
    **SMALL_ROW_GROUPS,
    # PyIceberg does not read the older timestamps of 96 bits.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **INTERPRETED,
}


@pytest.fixture(autouse=True)
def quick(spark: SparkSession) -> Iterator[None]:
    with settings_of(spark, SETTINGS):
        yield


@pytest.mark.slow
def test_targets_follow_a_partitioned_table(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path / "t", "partitioned", seed=1)
    changes = ("append", "delete", "merge", "add inside", "update", "optimize", "restore", "delete")
    run.live(changes, compared=(1, 4), asked=1)
    run.check_history()


@pytest.mark.slow
def test_a_change_of_columns_alone_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path / "t", "plain", seed=1)
    run.live(("append", "add in array"), compared=(0,), asked=0)


@pytest.mark.slow
def test_position_deletes_are_of_one_file_by_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """Readers that do not know `referenced_data_file` assign them by bounds of `file_path`."""
    name = f"lake.db.bounds_{uuid4().hex[:8]}"
    source = small_table(tmp_path / "a source, with a path of more than sixteen characters")[0]
    delvec.convert(spark, source.root, name, format_version=2, verify="rows")
    deletes = spark.table(f"{name}.delete_files").collect()
    assert len(deletes) == 2
    for each in deletes:
        path = each["referenced_data_file"].encode()
        for bounds in (each["lower_bounds"], each["upper_bounds"]):
            assert {number: bytes(value) for number, value in bounds.items()} == {FILE_PATH: path}
    tasks = list(static_table(spark, name).scan().plan_files())
    assert [len(task.delete_files) for task in tasks] == [1, 1]
    check_pyiceberg(spark, name, spark.table(name).toArrow())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SLOW_EXAMPLES))
@pytest.mark.parametrize("kind", KINDS)
def test_targets_follow_any_life(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    run = Run(spark, tmp_path / "t", kind, seed)
    changes = life(run.rng, KINDS[kind], 24)
    run.live(changes, compared=[at for at in range(24) if run.rng.randrange(2)], asked=2)
    run.check_history()


class Run:
    """A Delta table, and the Iceberg tables that follow it."""

    def __init__(self, spark: SparkSession, path: Path, kind: str, seed: int) -> None:
        self.spark = spark
        self.rng = Random(f"{kind} {seed}")
        self.source = Source.create(spark, path, KINDS[kind], f"changes of {kind} {seed}")
        self.base = f"lake.db.{kind.replace(' ', '_')}_{seed}_{uuid4().hex[:8]}"
        self.seen: dict[int, pa.Table] = {}

    def live(self, changes: Sequence[str], compared: Collection[int], asked: int) -> None:
        """Change the table again and again; convert and compare after some changes and the last."""
        for number, change in enumerate(changes):
            self.source.change(change)
            is_last = number == len(changes) - 1
            if number in compared or is_last:
                # A history that comes behind by several comparisons has more to catch up with.
                behind = () if is_last or self.rng.randrange(3) == 0 else ("history",)
                labels = [label for label in TARGETS if label not in behind]
                self.compare(labels, self.rng.sample(labels, asked))

    def compare(self, labels: Collection[str], asked: Collection[str]) -> None:
        """Convert; hold all rows against those of delta-spark, and answers of some targets."""
        rng, version = self.rng, self.source.version
        expected = self.rows(version)
        of_delta = self.spark.createDataFrame(expected)
        queries = questions(rng, of_delta.schema, 3) if asked else []
        answers = every_answer(of_delta, queries)
        for label in labels:
            target = TARGETS[label]
            name = f"{self.base}_{label}"
            verify: Verify = rng.choice(["rows", "counts"])
            report = delvec.convert(
                self.spark,
                self.source.path,
                name,
                verify=verify,
                copy_files=self.source.kind.copied,
                **target.choices,
            )
            assert report.version == version
            found = by_spark(self.spark, name)
            where = f"{label} after {self.source.done}"
            assert same_rows(found.toArrow(), expected), where
            if label in asked:
                for query, answer, one in zip(
                    queries, every_answer(found, queries), answers, strict=True
                ):
                    assert answer == one, f"{query}: {where}"
            if target.in_pyiceberg:
                check_pyiceberg(self.spark, name, expected)

    def rows(self, version: int) -> pa.Table:
        """Give the rows of a version as delta-spark reads them."""
        if version not in self.seen:
            reading = spark_tables.as_delta_spark_reads(self.spark, self.source.path, version)
            self.seen[version] = reading.toArrow()
        return self.seen[version]

    def check_history(self) -> None:
        """Hold every tag against the version that it names."""
        for version in range(self.source.version + 1):
            found = by_spark(self.spark, f"{self.base}_history", version)
            assert same_rows(found.toArrow(), self.rows(version)), version


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
