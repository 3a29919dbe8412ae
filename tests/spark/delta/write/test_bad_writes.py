"""Writes that cannot be: a clear error, no new version, no file left, and the table still reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from delvec import DeltaTable
from delvec.delta.write.change import Base
from delvec.delta.write.commit import commit
from delvec.errors import (
    ConstraintError,
    DelvecError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.storage.uncommitted import UncommittedFiles
from tests.delta.builder import small_table
from tests.delta.write.write_checks import before_commit, deletion, files_below, ids
from tests.marks import slow_but
from tests.repository import ROOT
from tests.spark.delta.readers import settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads

ANSI = "spark.sql.ansi.enabled"
COLUMNS = StructType(
    [
        StructField("id", IntegerType(), nullable=False),
        StructField("n", IntegerType()),
        StructField("name", StringType()),
        StructField("g", LongType(), metadata={"delta.generationExpression": "n * 2L"}),
    ]
)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """A table with rules: ids are not null, n is below 100, g is twice n."""
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


BAD: dict[str, tuple[Any, type[DelvecError], str]] = {
    "delete by an unknown column": (
        lambda _, t: t.delete("nope = 1"),
        InvalidArgumentError,
        "nope",
    ),
    "update of an unknown column": (
        lambda _, t: t.update({"nope": "1"}),
        InvalidArgumentError,
        "nope",
    ),
    "merge with an unknown column in a condition": (
        lambda s, t: (
            t.merge(one(s, "1 AS id"), "t.id = s.id").when_matched_delete("s.nope = 1").execute()
        ),
        InvalidArgumentError,
        "nope",
    ),
    "merge with two partners for a row": (
        lambda s, t: (
            t.merge(s.range(2).selectExpr("1 AS id", "5 AS n"), "t.id = s.id")
            .when_matched_update({"n": "s.n"})
            .execute()
        ),
        InvalidArgumentError,
        "several rows of the source",
    ),
    "append of a text to a number": (
        lambda s, t: t.append(one(s, "'x' AS id")),
        InvalidArgumentError,
        "id",
    ),
    "append against a constraint": (
        lambda s, t: t.append(one(s, "1 AS id", "100 AS n")),
        ConstraintError,
        "small",
    ),
    "merge against a constraint": (
        lambda s, t: (
            t.merge(one(s, "1 AS id"), "t.id = s.id").when_matched_update({"n": "100"}).execute()
        ),
        ConstraintError,
        "small",
    ),
    "overwrite against a constraint": (
        lambda s, t: t.overwrite(one(s, "1 AS id", "100 AS n")),
        ConstraintError,
        "small",
    ),
    "update to null": (lambda _, t: t.update({"id": "null"}, "n > 3"), ConstraintError, "id"),
    "append without a column that must be there": (
        lambda s, t: t.append(one(s, "1 AS n")),
        DelvecError,
        "id",
    ),
    "append of a wrong generated value": (
        lambda s, t: t.append(one(s, "1 AS id", "1 AS n", "3L AS g")),
        ConstraintError,
        "g",
    ),
    "overwrite of rows outside the condition": (
        lambda s, t: t.overwrite(one(s, "7 AS id", "7 AS n"), where="id < 3"),
        ConstraintError,
        "id < 3",
    ),
    "division by zero": (
        lambda _, t: t.update({"n": "n div (n - n)"}),
        InvalidArgumentError,
        "DIVIDE_BY_ZERO",
    ),
    "overflow on the way into the column": (
        lambda _, t: t.update({"n": "n + 3000000000L"}),
        InvalidArgumentError,
        "n",
    ),
}


FAST = (
    "delete by an unknown column",
    "update of an unknown column",
    "merge with an unknown column in a condition",
    "merge with two partners for a row",
    "append of a text to a number",
    "append against a constraint",
    "merge against a constraint",
    "update to null",
    "overwrite of rows outside the condition",
    "overflow on the way into the column",
)


@pytest.mark.first_cases(2)
@pytest.mark.quick_cases(4)
@pytest.mark.spark
@pytest.mark.parametrize("name", slow_but(FAST, BAD))
def test_a_write_that_cannot_be_changes_nothing(
    spark: SparkSession, table: DeltaTable, name: str
) -> None:
    act, kind, word = BAD[name]
    with nothing_happens(folder_of(table)), settings_of(spark, {ANSI: "true"}):
        with pytest.raises(kind) as caught:
            act(spark, table)
        assert word in caught.value.describe()
        if isinstance(caught.value, ConstraintError):
            assert caught.value.constraint
            assert folder_of(table).name in str(caught.value)


@pytest.mark.spark
def test_what_overflows_without_ansi_fits_or_is_refused(
    spark: SparkSession, table: DeltaTable
) -> None:
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
def test_a_table_that_is_dropped_meanwhile_stays_dropped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    path = small_table(tmp_path / "t")[0].root
    table = DeltaTable.for_path(spark, path)
    acts: dict[str, Callable[[], object]] = {
        "delete": lambda: table.delete("id = 1"),
        "append": lambda: table.append(spark.range(3)),
    }
    before_commit(monkeypatch, lambda: shutil.rmtree(path))
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
            with (
                pytest.raises(StorageError, match=r"deletion_vector_.*No space left") as caught,
                UncommittedFiles(snapshot.storage) as uncommitted,
            ):
                commit(Base.of(snapshot), change, uncommitted)
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


UNPRIVILEGED = """
import os, sys
from delvec import DeltaTable
from delvec.delta.write.change import Base
from delvec.delta.write.commit import commit
from delvec.storage.uncommitted import UncommittedFiles
from delvec.errors import StorageError
from tests.delta.write.write_checks import deletion
import contextlib, delvec.delta.write.transaction, delvec.delta.alter.operations, pyspark
with contextlib.suppress(ImportError):
    import pandas  # Arrow imports it later, where it is
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
table = DeltaTable.for_path(None, sys.argv[1])
snapshot = table.snapshot()
def delete():
    with UncommittedFiles(snapshot.storage) as uncommitted:
        commit(Base.of(snapshot), deletion(snapshot, {"part-0.parquet": [1]}), uncommitted)
for act in (delete, lambda: table.set_properties({"a.b": "c"}), table.checkpoint):
    try:
        act()
    except StorageError as error:
        print(error.describe(), "|", error.hint)
"""


@pytest.mark.more
def test_a_folder_that_this_user_may_not_write() -> None:
    # Not below the folder of the test, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        path = small_table(Path(name) / "t")[0].root
        Path(name).chmod(0o755)
        folders = [path, path / "_delta_log"]
        for folder in folders:
            folder.chmod(0o555)
        with nothing_happens(path):
            done = subprocess.run(
                [sys.executable, "-c", UNPRIVILEGED, str(path)],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
            )
            assert done.returncode == 0, done.stderr
            lines = done.stdout.splitlines()
            assert len(lines) == 3
            for line in lines:
                assert line.startswith(f"{path}/")
                assert ": Permission denied | check the owner and the mode" in line
        for folder in folders:
            folder.chmod(0o755)
