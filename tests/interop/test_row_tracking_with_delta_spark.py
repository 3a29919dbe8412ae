"""Rows keep their ids, as delta-spark sees them, through writes of both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from tests.delta import log_files
from tests.spark.delta import spark_tables

pytestmark = pytest.mark.spark

COLUMNS = "key BIGINT, part STRING, value STRING"
PROPERTIES = {
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointInterval": "4",
}


class Tracked(NamedTuple):
    """A row as delta-spark sees it; its key never changes."""

    value: str
    row_id: int
    version: int


class Judge:
    """Looks at a table after each write, and at what the write said it would do."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.rows: dict[int, Tracked] = {}
        self.used: set[int] = set()

    def sees(self, *, updated: set[int], inserted: set[int], deleted: set[int]) -> None:
        before, after = self.rows, self.look()
        version = log_files.newest_version(self.path)
        assert set(after) == (set(before) - deleted) | inserted
        for key in set(after) - inserted:
            assert after[key].row_id == before[key].row_id, f"key {key}"
            if key in updated:
                assert after[key].version == version, f"key {key}"
            else:
                assert after[key] == before[key], f"key {key}"
        new = {after[key].row_id for key in inserted}
        assert len(new) == len(inserted)
        assert not new & self.used, "an id was given twice"
        assert {after[key].version for key in inserted} <= {version}
        assert len({row.row_id for row in after.values()}) == len(after)
        found = DeltaTable.for_path(self.spark, self.path).to_arrow().to_pylist()
        assert {row["key"]: row["value"] for row in found} == {
            key: row.value for key, row in after.items()
        }
        self.rows, self.used = after, self.used | new

    def look(self) -> dict[int, Tracked]:
        rows = (
            spark_tables.as_delta_spark_reads(self.spark, self.path)
            .select("key", "value", "_metadata.row_id", "_metadata.row_commit_version")
            .collect()
        )
        found = {row[0]: Tracked(*row[1:]) for row in rows}
        assert len(found) == len(rows)
        return found


def frame(spark: SparkSession, start: int, end: int, text: str) -> DataFrame:
    return spark.sql(
        f"SELECT id key, concat('p', id % 2) part, concat('{text}', id) value"
        f" FROM range({start}, {end}, 1, 2)"
    )


def upsert(spark: SparkSession, path: Path, start: int, end: int, text: str) -> None:
    """Merge: update partners with an even key, delete the others, insert what is new."""
    (
        DeltaTable.for_path(spark, path)
        .merge(frame(spark, start, end, text), "t.key = s.key")
        .when_matched_update_all("t.key % 2 = 0")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .execute()
    )


MERGE = (
    "MERGE INTO {T} t USING s ON t.key = s.key WHEN MATCHED AND t.key % 2 = 0 THEN UPDATE SET *"
    " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
)


@pytest.mark.parametrize(
    ("vectors", "partitioned_by"),
    [
        pytest.param("true", (), marks=pytest.mark.slow, id="vectors"),
        pytest.param("false", ("part",), marks=pytest.mark.slow, id="copied"),
    ],
)
def test_rows_keep_their_ids(
    spark: SparkSession, tmp_path: Path, vectors: str, partitioned_by: tuple[str, ...]
) -> None:
    path = tmp_path / "t"
    properties = PROPERTIES | {"delta.enableDeletionVectors": vectors}
    spark_tables.create(spark, path, COLUMNS, partitioned_by=partitioned_by, properties=properties)
    table, judge = DeltaTable.for_path(spark, path), Judge(spark, path)

    def write(action: Callable[[], object], **expected: set[int]) -> None:
        action()
        judge.sees(**({"updated": set(), "inserted": set(), "deleted": set()} | expected))

    def sql(statement: str) -> None:
        spark_tables.sql(spark, path, statement)

    write(
        lambda: frame(spark, 0, 20, "a").write.format("delta").mode("append").save(str(path)),
        inserted=set(range(20)),
    )
    write(lambda: table.append(frame(spark, 20, 40, "b")), inserted=set(range(20, 40)))
    write(lambda: table.delete("key % 5 = 0"), deleted=set(range(0, 40, 5)))
    write(lambda: table.update({"value": "'x'", "part": "'p9'"}, "key IN (1, 22)"), updated={1, 22})
    write(
        lambda: upsert(spark, path, 36, 44, "m"),
        updated={36, 38},
        deleted={37, 39},
        inserted={40, 41, 42, 43},
    )
    # Rows that moved before, whose ids are in their files by now.
    write(lambda: table.update({"value": "'y'"}, "key IN (1, 2, 36)"), updated={1, 2, 36})
    write(lambda: sql("UPDATE {T} SET value = 'z' WHERE key IN (2, 3, 42)"), updated={2, 3, 42})
    frame(spark, 40, 46, "n").createOrReplaceTempView("s")
    write(lambda: sql(MERGE), updated={40, 42}, deleted={41, 43}, inserted={44, 45})
    write(lambda: sql("OPTIMIZE {T}"))
    write(lambda: table.delete("key IN (2, 44)"), deleted={2, 44})
    write(
        lambda: table.update({"value": "concat(value, '!')"}, "key < 10"),
        updated={1, 3, 4, 6, 7, 8, 9},
    )
    write(
        lambda: table.overwrite(frame(spark, 30, 34, "o"), "key BETWEEN 30 AND 34"),
        deleted={31, 32, 33, 34},
        inserted={30, 31, 32, 33},
    )
    check_times(path)


def check_times(path: Path) -> None:
    """Make sure that the times in the commits rise, and come first in each."""
    commits = log_files.commits(path)
    times = [actions[0]["commitInfo"]["inCommitTimestamp"] for actions in commits]
    assert times == sorted(set(times))
    writers = {actions[0]["commitInfo"]["engineInfo"].split("/")[0] for actions in commits}
    assert writers == {"delvec", "Apache-Spark"}
