"""Values of identity columns: generated as delta-spark does, unique whoever writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.errors import DelvecError, InvalidArgumentError
from tests.delta import log_files
from tests.delta.write.write_checks import before_commit
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import folder, insert, judged, judged_merge, rows_of

pytestmark = pytest.mark.spark


def made(spark: SparkSession, path: Path, definition: str) -> DeltaTable:
    spark_tables.create(spark, path, f"id BIGINT GENERATED {definition}, v INT")
    return DeltaTable.for_path(spark, path)


def values(spark: SparkSession, first: int, last: int, partitions: int = 2) -> DataFrame:
    return spark.range(first, last, 1, partitions).selectExpr("int(id) AS v")


def mark(path: Path) -> int:
    """Give the high water mark of the newest metadata."""
    actions = [action for commit in log_files.commits(path) for action in commit]
    texts = [action["metaData"]["schemaString"] for action in actions if "metaData" in action]
    metadata: dict[str, Any] = json.loads(texts[-1])["fields"][0]["metadata"]
    return int(metadata["delta.identity.highWaterMark"])


def ids(table: DeltaTable) -> list[int]:
    found = [row.id for row in table.to_df().collect()]
    assert len(set(found)) == len(found)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("definition", "step"),
    [("ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY -3)", -3), ("BY DEFAULT AS IDENTITY", 1)],
)
def test_delvec_and_delta_spark_take_turns(
    spark: SparkSession, tmp_path: Path, definition: str, step: int
) -> None:
    path = tmp_path / "t"
    table = made(spark, path, definition)
    table.append(values(spark, 0, 5))
    start = 10 if step < 0 else 1
    assert {(each - start) % step for each in ids(table)} == {0}
    furthest = min if step < 0 else max
    assert mark(path) == furthest(ids(table))
    spark_tables.sql(spark, path, "INSERT INTO {T} (v) VALUES (5), (6)")
    table.append(values(spark, 7, 9, 3))
    assert len(ids(table)) == 9
    assert mark(path) == furthest(ids(table))
    before, last = set(ids(table)), mark(path)
    (
        table.merge(values(spark, 8, 12), on="t.v = s.v")
        .when_matched_update({"v": "s.v"})
        .when_not_matched_insert({"id": "DEFAULT", "v": "s.v"})
        .execute()
    )
    new = set(ids(table)) - before
    assert len(new) == 3
    assert all((each - last) * step > 0 for each in new)
    last = mark(path)
    assert table.overwrite(values(spark, 0, 3), dry_run=True).rows_inserted == 3
    table.overwrite(values(spark, 0, 3))
    assert all((each - last) * step > 0 for each in ids(table))
    assert sum(rows_of(spark, path).values()) == 3


@pytest.mark.slow
def test_values_that_rows_bring_along(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, "BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY 3)")
    table.append(spark.sql("SELECT 14L AS id, 0 AS v"))
    assert ids(table) == [14]
    (
        table.merge(values(spark, 1, 3), on="t.v = s.v")
        .when_not_matched_insert({"id": "70", "v": "s.v"}, "s.v = 1")
        .when_not_matched_insert({"v": "s.v"})
        .execute()
    )
    # As delta-spark rounds it, to 10 + 3 * 20.
    assert mark(path) == 70
    assert {14, 70} < set(ids(table))


@pytest.mark.slow
def test_a_mark_beyond_a_long_is_refused_as_by_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    made(spark, path, "BY DEFAULT AS IDENTITY (START WITH 0 INCREMENT BY 5)")
    done = judged_merge(
        spark,
        path,
        "mark",
        "SELECT 1 AS v UNION ALL SELECT 2",
        (insert({"id": f"{2**63 - 2}", "v": "s.v"}, "s.v = 1"), insert({"v": "s.v"})),
        on="t.v = s.v",
    )
    assert "no values left" in str(done.error)


@pytest.mark.slow
def test_generated_columns_are_computed_from_generated_ids(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    columns = (
        "id BIGINT GENERATED ALWAYS AS IDENTITY, v INT, g BIGINT GENERATED ALWAYS AS (id * 10)"
    )
    spark_tables.create(spark, path, columns)
    done = judged(
        spark,
        path,
        "generated",
        "INSERT INTO {T} (v) VALUES (1)",
        lambda t: t.append(values(spark, 1, 2, 1)),
    )
    assert rows_of(spark, done.path) == {"Row(id=1, v=1, g=10)": 1}
    table = DeltaTable.for_path(spark, done.path)
    assert table.append(values(spark, 2, 4), dry_run=True).rows_inserted == 2
    with pytest.raises(InvalidArgumentError, match="generated column g is computed from an id"):
        table.merge(values(spark, 1, 3), on="t.v = s.v").when_not_matched_insert(
            {"v": "s.v"}
        ).execute()


def test_two_writers_at_a_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(spark, tmp_path / "t", "ALWAYS AS IDENTITY")
    other = DeltaTable.for_path(spark, tmp_path / "t")
    tried = before_commit(monkeypatch, lambda: other.append(values(spark, 0, 3)))
    table.append(values(spark, 3, 6))
    assert len(tried) == 2
    assert len(ids(table)) == 6


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, f"ALWAYS AS IDENTITY (START WITH {2**63 - 2})")
    table.append(values(spark, 0, 1))
    merge = table.merge(values(spark, 0, 2), on="t.v = s.v")
    acts: dict[str, Callable[[], object]] = {
        "GENERATED ALWAYS": lambda: table.append(spark.sql("SELECT 5L AS id, 1 AS v")),
        "cannot be updated": lambda: table.update({"id": "id + 1"}),
        "rows cannot give": lambda: merge.when_not_matched_insert(
            {"id": "7", "v": "s.v"}
        ).execute(),
        "identity columns": lambda: merge.when_matched_update({"id": "DEFAULT"}).execute(),
        "no values left": lambda: table.append(values(spark, 0, 5)),
    }
    before = folder(path)
    for message, act in acts.items():
        with pytest.raises(DelvecError, match=message):
            act()
    with pytest.raises(InvalidArgumentError, match="no values left"):
        table.append(values(spark, 0, 2, 1))
    assert folder(path) == before
    assert table.update({"v": "v + 1"}).rows_updated == 1
