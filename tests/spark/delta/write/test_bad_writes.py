"""Writes that cannot be: a clear error, no new version, no file left, and the table still reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from delvec import DeltaTable
from delvec.delta.table.writes import MergeBuilder
from delvec.errors import (
    ConstraintError,
    DelvecError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from tests.delta.builder import small_table
from tests.delta.write.write_checks import deletion, files_below, ids, put
from tests.spark.delta.readers import settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads
from tests.spark.delta.write.judge import Meanwhile, New

ANSI = "spark.sql.ansi.enabled"
COLUMNS = StructType().add("id", "integer", nullable=False).add("n", "integer")
COLUMNS = COLUMNS.add("name", "string")
COLUMNS = COLUMNS.add("g", "long", metadata={"delta.generationExpression": "n * 2L"})
INVARIANT = '{"expression":{"expression":"coalesce(m, 0) < 5"}}'
COLUMNS = COLUMNS.add("m", "integer", metadata={"delta.invariants": INVARIANT})


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """A table with rules: ids are not null, n is below 100, g is twice n, m is below 5."""
    found = DeltaTable.create(spark, tmp_path_factory.mktemp("bad") / "t", COLUMNS)
    found.append(
        spark.sql("SELECT int(id) AS id, int(id) AS n, 'a' AS name FROM range(0, 8, 1, 1)")
    )
    found.add_constraint("small", "n < 100")
    return found


def folder_of(table: DeltaTable) -> Path:
    return Path(table.storage.root)


@contextmanager
def nothing_happens(root: Path) -> Iterator[None]:
    """Compare all files of a table, those of its log and hidden ones too."""
    before, rows = files_below(root), ids(root)
    yield
    after = files_below(root)
    assert after.keys() == before.keys()
    assert after == before
    assert ids(root) == rows


def one(spark: SparkSession, *columns: str) -> DataFrame:
    return spark.sql(f"SELECT {', '.join(columns)}")


def merging(spark: SparkSession, table: DeltaTable, rows: int = 1) -> MergeBuilder:
    return table.merge(spark.range(rows).selectExpr("1 AS id", "5 AS n"), "t.id = s.id")


class Bad(NamedTuple):
    """An error, a word of it, and what is told so."""

    error: type[DelvecError]
    word: str
    act: Callable[[SparkSession, DeltaTable], object]


BAD = {
    "delete by an unknown column": Bad(
        InvalidArgumentError, "nope", lambda _, t: t.delete("nope = 1")
    ),
    "update of an unknown column": Bad(
        InvalidArgumentError, "nope", lambda _, t: t.update({"nope": "1"})
    ),
    "append of a text to a number": Bad(
        InvalidArgumentError, "id", lambda s, t: t.append(one(s, "'x' AS id"))
    ),
    "append against a constraint": Bad(
        ConstraintError, "small", lambda s, t: t.append(one(s, "1 AS id", "100 AS n"))
    ),
    "merge against a constraint": Bad(
        ConstraintError,
        "small",
        lambda s, t: merging(s, t).when_matched_update({"n": "100"}).execute(),
    ),
    "overwrite against a constraint": Bad(
        ConstraintError, "small", lambda s, t: t.overwrite(one(s, "1 AS id", "100 AS n"))
    ),
    "division by zero": Bad(
        InvalidArgumentError, "DIVIDE_BY_ZERO", lambda _, t: t.update({"n": "n div (n - n)"})
    ),
    "update to null": Bad(ConstraintError, "id", lambda _, t: t.update({"id": "null"}, "n > 3")),
    "append without a column that must be there": Bad(
        DelvecError, "id", lambda s, t: t.append(one(s, "1 AS n"))
    ),
    "append of a wrong generated value": Bad(
        ConstraintError, "g", lambda s, t: t.append(one(s, "1 AS id", "1 AS n", "3L AS g"))
    ),
    "merge with two partners for a row": Bad(
        InvalidArgumentError,
        "several rows of the source",
        lambda s, t: merging(s, t, rows=2).when_matched_update({"n": "s.n"}).execute(),
    ),
    "merge with an unknown column in a condition": Bad(
        InvalidArgumentError,
        "nope",
        lambda s, t: merging(s, t).when_matched_delete("s.nope = 1").execute(),
    ),
    "overwrite of rows outside the condition": Bad(
        ConstraintError,
        "id < 3",
        lambda s, t: t.overwrite(one(s, "7 AS id", "7 AS n"), where="id < 3"),
    ),
    "overflow on the way into the column": Bad(
        InvalidArgumentError, "n", lambda _, t: t.update({"n": "n + 3000000000L"})
    ),
}


@pytest.mark.first_cases(2)
@pytest.mark.quick_cases(4)
@pytest.mark.spark
@pytest.mark.parametrize("name", BAD)
def test_a_bad_write_changes_nothing(spark: SparkSession, table: DeltaTable, name: str) -> None:
    kind, word, act = BAD[name]
    with nothing_happens(folder_of(table)), settings_of(spark, {ANSI: "true"}):
        with pytest.raises(kind) as caught:
            act(spark, table)
        assert word in caught.value.describe()
        if isinstance(caught.value, ConstraintError):
            assert caught.value.constraint
            assert folder_of(table).name in str(caught.value)


def writes_of(
    spark: SparkSession, table: DeltaTable, name: str, value: str
) -> list[Callable[[], object]]:
    """All ways by which a column of a row may get a value."""
    values = {"id": "9", "n": "9", "m": "1", name: value}
    row = one(spark, *(f"{each} AS {of}" for of, each in values.items()))
    merge = table.merge(row, "t.name = 'nobody'")
    return [
        lambda: table.append(row),
        lambda: table.overwrite(row, where="id < 100"),
        lambda: table.update({name: value}, "id = 3"),
        lambda: merging(spark, table).when_matched_update({name: value}).execute(),
        lambda: merge.when_not_matched_insert(values).execute(),
        lambda: merge.when_not_matched_by_source_update({name: value}).execute(),
    ]


@pytest.mark.more
@pytest.mark.spark
def test_every_write_keeps_every_rule(spark: SparkSession, table: DeltaTable) -> None:
    bad = (("NOT NULL id", "id", "int(null)"), ("small", "n", "100"), ("m", "m", "5"))
    for rule, name, value in bad:
        for act in writes_of(spark, table, name, value):
            with nothing_happens(folder_of(table)), pytest.raises(ConstraintError) as caught:
                act()
            assert caught.value.constraint == rule


@pytest.mark.spark
def test_what_overflows_without_ansi_is_refused(spark: SparkSession, table: DeltaTable) -> None:
    root = folder_of(table)
    with nothing_happens(root), settings_of(spark, {ANSI: "false"}):
        for value in ("n + 3000000000L", "date'2026-01-01'"):
            with pytest.raises(InvalidArgumentError, match="n"):
                table.update({"n": value}, "id = 1")
        with pytest.raises(InvalidArgumentError, match="id"):
            table.append(one(spark, "3000000000L AS id"))
        # Spark's arithmetic wraps around then, and nobody can tell.
        planned = table.update({"n": "n + 2147483647"}, "id = 1", dry_run=True)
        assert planned.rows_updated == 1


@pytest.mark.spark
def test_a_table_that_only_grows_is_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")[0].root
    DeltaTable.for_path(None, path).set_properties({"delta.appendOnly": "true"})
    table, rows = DeltaTable.for_path(spark, path), spark.range(1)
    acts: list[Callable[[], object]] = [
        lambda: table.delete("id = 1"),
        lambda: table.update({"id": "1"}),
        table.merge(rows, "t.id = s.id").when_matched_delete().execute,
        lambda: table.overwrite(rows),
    ]
    for act in acts:
        with nothing_happens(path), pytest.raises(UnsupportedFeatureError) as caught:
            act()
        assert caught.value.hint == "set delta.appendOnly to false"
        assert str(path) in caught.value.message


@pytest.mark.spark
@pytest.mark.parametrize("operation", ["delete", pytest.param("append", marks=pytest.mark.slow)])
def test_a_table_that_is_dropped_stays_dropped(
    spark: SparkSession, tmp_path: Path, meanwhile: Meanwhile, operation: str
) -> None:
    path = small_table(tmp_path / "t")[0].root
    table = DeltaTable.for_path(spark, path)
    acts: dict[str, Callable[[], object]] = {
        "delete": lambda: table.delete("id = 1"),
        "append": lambda: table.append(spark.range(3)),
    }
    meanwhile(lambda: shutil.rmtree(path))
    with pytest.raises((TableNotFoundError, StorageError), match=str(path)) as caught:
        acts[operation]()
    assert caught.value.hint
    assert not path.exists() or not files_below(path)


@pytest.mark.spark
def test_a_data_file_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")[0].root
    (path / "part-1.parquet").unlink()
    before = files_below(path)
    table = DeltaTable.for_path(spark, path)
    with pytest.raises(StorageError, match=r"part-1\.parquet") as caught:
        table.delete("id % 2 = 1")
    assert caught.value.hint
    assert files_below(path) == before


# Disks.
def can_mount() -> bool:
    """Try it in a mount namespace of its own, of which nothing stays."""
    command = "unshare --mount mount -t tmpfs none /tmp"
    tried = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    return tried.returncode == 0


MOUNTS = pytest.mark.skipif(not can_mount(), reason="only root of Linux may mount a disk")


@contextmanager
def mounted(folder: Path, *commands: list[str]) -> Iterator[None]:
    """Mount a file system of our own for the time of a test."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *commands[0]], check=True, capture_output=True)
    try:
        for command in commands[1:]:
            subprocess.run(["mount", *command], check=True, capture_output=True)
        yield
    finally:
        # Lazily: a failed task of Spark may hold a file open a moment longer.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    with mounted(folder, ["-t", "tmpfs", "-o", "size=512k", "delvec-test", str(folder)]):
        yield


def fill(folder: Path) -> Path:
    """Leave no byte of a disk."""
    filler = folder / ".filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


@MOUNTS
def test_a_full_disk_takes_no_vectors_and_no_commits(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk):
        path = small_table(disk / "t")[0].root
        snapshot = DeltaTable.for_path(None, path).snapshot()
        change = deletion(snapshot, {"part-0.parquet": [1]})
        filler = fill(disk)
        with nothing_happens(path):
            with pytest.raises(StorageError, match=r"deletion_vector_.*No space left") as caught:
                put(snapshot, change)
            assert caught.value.hint == "make room on the disk"
            with pytest.raises(StorageError, match=r"0003\.json: No space left") as caught:
                DeltaTable.for_path(None, path).set_properties({"a.b": "c"})
            assert caught.value.hint == "make room on the disk"
        filler.unlink()
        assert DeltaTable.for_path(None, path).set_properties({"a.b": "c"}).version == 3


@MOUNTS
@pytest.mark.spark
def test_a_full_disk_takes_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk):
        path = small_table(disk / "t")[0].root
        table = DeltaTable.for_path(spark, path)
        filler = fill(disk)
        with nothing_happens(path), pytest.raises(StorageError, match="No space left"):
            table.delete("id % 7 = 1")
        filler.unlink()
        rows = spark.range(200_000).select(F.xxhash64("id").alias("id"))
        with nothing_happens(path), pytest.raises(StorageError, match="No space left") as caught:
            table.append(rows)
        assert str(path) in caught.value.message
        assert caught.value.hint
        # Parquet's writer leaves the file that it could not write open, so deleted ones take room.
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert table.append(rows.limit(3)).version == 3


@pytest.mark.more
@MOUNTS
@pytest.mark.spark
def test_a_disk_that_is_mounted_read_only(spark: SparkSession, tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")[0].root
    bind = ["--bind", str(path), str(path)]
    table = DeltaTable.for_path(spark, path)
    with mounted(path, bind, ["-o", "remount,ro,bind", str(path)]), nothing_happens(path):
        acts: list[Callable[[], object]] = [
            lambda: table.append(spark.range(3)),
            lambda: table.update({"id": "-id"}, "id = 1"),
            lambda: table.delete("id = 1"),
            lambda: table.set_properties({"a.b": "c"}),
        ]
        for act in acts:
            with pytest.raises(StorageError) as caught:
                act()
            assert str(path) in caught.value.message
            assert caught.value.hint
    assert as_delta_spark_reads(spark, path).count() == 16


@pytest.mark.more
def test_a_folder_that_this_user_may_not_write() -> None:
    user = os.geteuid()
    # Not below the folder of the test, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        table, path = small_table(Path(name) / "t")[0], Path(name) / "t"
        handle, change = DeltaTable.for_path(None, path), {"part-0.parquet": [1]}
        for folder, mode in ((Path(name), 0o755), (path, 0o555), (table.log, 0o555)):
            folder.chmod(mode)
        acts: list[Callable[[], object]] = [
            lambda: put(handle.snapshot(), deletion(handle.snapshot(), change)),
            lambda: handle.set_properties({"a.b": "c"}),
            handle.checkpoint,
        ]
        for act in acts:
            with nothing_happens(path):
                os.seteuid(user or 65534)  # root may do everything, nobody may not
                try:
                    with pytest.raises(StorageError, match=f"{path}/.*: Permission den") as caught:
                        act()
                finally:
                    os.seteuid(user)
                assert str(caught.value.hint).startswith("check the owner and the mode")
        for folder in (path, table.log):
            folder.chmod(0o755)


@pytest.mark.spark
def test_what_follows_a_commit_cannot_make_it_look_undone(
    spark: SparkSession, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise OSError("no disk")

    monkeypatch.setattr("delvec.delta.write.after_commit.write_checkpoint", broken)
    report = new("id long", properties={"delta.checkpointInterval": "1"}).append(spark.range(2))
    assert report.version == 1
    assert "the checkpoint of version 1 was not written: OSError('no disk')" in report.notes
