"""The reader that fills in positions and bits of vectors, on files, settings and filters at random.

Every row holds the number of its file and its own position, so that a row tells what is right.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from delvec import DeltaTable, explain
from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.delta.scan.reader import READER
from tests.delta.builder import Action, TableBuilder, field_of, struct_of
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

SLOW_EXAMPLES = min(500, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 500))
WIDE: Final = 110
_ARRAY: Final = {"type": "array", "elementType": "long", "containsNull": True}
FIELDS: Final = [
    field_of("f", "long"),
    field_of("at", "long"),
    field_of("x", "long"),
    field_of("s", "string"),
    field_of("deep", struct_of(field_of("a", "long"), field_of("list", _ARRAY))),
]
# What Parquet may skip rows by, what it may not, and what names the reader's own column.
CONDITIONS: Final = (
    "true",
    "at BETWEEN 100 AND 900",
    "at < 40 OR at >= 1990",
    "x IS NOT NULL",
    "x % 3 = 0",
    "x = 5",
    "s IN ('s1', 's700')",
    "s > 's5' AND at < 1500",
    "deep.a > 1000",
    "get(deep.list, 0) = 5",
    "_pos = 500",
    "_pos > 64 AND at % 2 = 0",
    "at = -1",
)
SELECTED: Final = ("*", "f, at, _pos", "f, at, deep.a, _pos", "count(*)")
SETTINGS: Final[dict[str, tuple[Any, ...]]] = {
    "spark.sql.files.maxPartitionBytes": ("128m", "8k", "20k"),
    "spark.sql.parquet.columnarReaderBatchSize": (4096, 4096, 100, 7),
    "spark.sql.columnVector.offheap.enabled": ("false", "false", "true"),
    "spark.sql.codegen.wholeStage": ("true", "true", "true", "false"),
    "spark.sql.parquet.enableVectorizedReader": ("true", "true", "true", "false"),
    "spark.sql.parquet.enableNestedColumnVectorizedReader": ("true", "true", "false"),
    "spark.sql.codegen.maxFields": (100, 100, 4),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.parquet.filterPushdown": ("true", "true", "true", "false"),
    "spark.sql.parquet.filterPushdown.stringPredicate": ("true", "false"),
}


def rows_of(file: int, count: int, wide: int) -> pa.Table:
    at = list(range(count))
    columns: dict[str, Any] = {
        "f": [file] * count,
        "at": at,
        "x": [None if i % 5 == 4 else i % 17 for i in at],
        "s": [f"s{i}" for i in at],
        "deep": [None if i % 7 == 6 else {"a": i, "list": [i, i + 1][: i % 3]} for i in at],
    }
    kind = pa.struct({"a": pa.int64(), "list": pa.list_(pa.int64())})
    table = pa.table(columns | {"deep": pa.array(columns["deep"], kind)})
    for number in range(wide):
        table = table.append_column(f"w{number}", [at])
    return table


def built(root: Path, dice: random.Random) -> set[tuple[int, int]]:
    """Make a table of some files, several row groups and small pages each; give its live rows."""
    wide = dice.choice([0, 0, 0, WIDE])
    fields = [*FIELDS, *(field_of(f"w{number}", "long") for number in range(wide))]
    table = TableBuilder.made(root, fields=fields)
    adds: list[Action] = []
    marks, live = [], set()
    for file in range(dice.randint(1, 3)):
        count = dice.choice([1, 63, 64, 500, 2000])
        adds.append(
            table.write_file(
                f"part-{file}.parquet",
                rows_of(file, count, wide),
                row_group_size=dice.choice([50, 64, 700, 4096]),
                data_page_size=dice.choice([256, 1 << 20]),
                write_page_index=dice.random() < 0.7,
                use_dictionary=dice.random() < 0.5,
                max_rows_per_page=dice.choice([20, 20_000]),
            )
        )
        share = dice.choice([0, 0.01, 0.5, 1])
        gone = {i for i in range(count) if dice.random() < share}
        marks.append(gone)
        live |= {(file, i) for i in range(count)} - {(file, i) for i in gone}
    table.add(*adds)
    for add, gone in zip(adds, marks, strict=True):
        if gone:
            table.delete_rows(add, sorted(gone))
    return live


def check(spark: SparkSession, root: Path, seed: int) -> None:
    dice = random.Random(seed)
    live = built(root, dice)
    plain = spark.read.parquet(*(str(each) for each in root.glob("part-*.parquet")))
    chosen = {name: dice.choice(values) for name, values in SETTINGS.items()}
    handle = DeltaTable.for_path(spark, root)
    columns = [*handle.snapshot().metadata.schema.names, "_pos"]
    # Settings may change between the making of a plan and its execution.
    early = handle.to_df(columns=columns)
    with settings_of(spark, chosen):
        for condition in dice.sample(CONDITIONS, 4):
            found = plain.where(condition.replace("_pos", "at")).select("f", "at").collect()
            expected = {(row.f, row.at) for row in found} & live
            made = dice.choice([early, handle.to_df(columns=columns)])
            query = made.where(condition)
            selected = dice.choice(SELECTED)
            rows = query.selectExpr(*selected.split(", ")).collect()
            if selected == "count(*)":
                assert rows == [(len(expected),)], condition
                continue
            places = [(row.f, row.at) for row in rows]
            assert len(places) == len(expected), condition
            assert set(places) == expected, condition
            assert all(row.at == row._pos for row in rows), condition
        condition = dice.choice([each for each in CONDITIONS if "_pos" not in each])
        gone = {(row.f, row.at) for row in plain.where(condition).select("f", "at").collect()}
        handle.delete(condition)
        rows = handle.to_arrow(columns=["f", "at"]).to_pylist()
        assert {(row["f"], row["at"]) for row in rows} == live - gone, condition
        assert len(rows) == len(live - gone)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("seed", range(6))
def test_rows_and_positions_are_right(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path / "t", seed)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int]]:
    """A file of many row groups with a vector; and its live rows."""
    table = TableBuilder.made(tmp_path_factory.mktemp("split"), fields=FIELDS)
    add = table.write_file("a.parquet", rows_of(0, 2000, 0), row_group_size=64)
    table.add(add)
    table.delete_rows(add, range(0, 2000, 3))
    return table.root, {*range(2000)} - {*range(0, 2000, 3)}


# How Spark executes what was planned for batches.
@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.parquet.columnarReaderBatchSize=7",
        "spark.sql.columnVector.offheap.enabled=true",
        "spark.sql.parquet.enableVectorizedReader=false",
        "spark.sql.codegen.wholeStage=false",
        "spark.sql.codegen.maxFields=2",
    ],
)
def test_a_file_that_is_split_is_counted_from_each_split(
    spark: SparkSession, split: tuple[Path, set[int]], setting: str
) -> None:
    root, live = split
    plain = spark.read.parquet(f"{root}/a.parquet")
    handle = DeltaTable.for_path(spark, root)
    frames = [handle.to_df(columns=each) for each in (["at", "x", "_pos"], ["at", "x"])]
    assert all("the reader marks deleted rows" in str(explain(df)) for df in frames)
    name, value = setting.split("=")
    with settings_of(spark, {name: value, "spark.sql.files.maxPartitionBytes": "10k"}):
        for condition in ("true", "x % 3 = 0", "at > 900", "at = 777"):
            expected = {row.at for row in plain.where(condition).collect()} & live
            for df in frames:
                rows = df.where(condition).collect()
                assert [each.at for each in rows] == sorted(expected), condition
                assert all(row.at == row[-1] for row in rows if "_pos" in df.columns)
        assert frames[0].rdd.getNumPartitions() > 3


@pytest.mark.slow
@pytest.mark.parametrize("block", range(SLOW_EXAMPLES // 25))
def test_many_are_right(spark: SparkSession, tmp_path: Path, block: int) -> None:
    for seed in range(100 + 25 * block, 125 + 25 * block):
        check(spark, tmp_path / str(seed), seed)


def test_where_the_class_cannot_be_had_vectors_are_joined(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Py4JError("no compiler here")

    table = TableBuilder.made(tmp_path / "t")
    table.delete_rows(table.append("a.parquet", {"id": [0, 1, 2]}), [1])
    handle = DeltaTable.for_path(spark, table.root)
    assert "the reader marks deleted rows" in str(explain(handle.to_df()))
    monkeypatch.delitem(jvm.cache(spark), ("positioned", spark.sparkContext.applicationId))
    with monkeypatch.context() as without:
        without.setattr(jvm, "install_java", refuse)
        df = handle.to_df()
        assert sorted(row.id for row in df.collect()) == [0, 2]
        why = f"Spark {spark.version} does not take it here: no compiler here"
        assert f"by a broadcast join, since {why}" in str(explain(df))
    with settings_of(spark, {READER: "fast"}), pytest.raises(InvalidArgumentError, match="'fast'"):
        handle.to_df()
