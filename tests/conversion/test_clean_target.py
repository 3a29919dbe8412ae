"""Targets of many conversions are cleaned: readers and the source notice nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion import apply
from delvec.conversion import clean_target as cleaning
from delvec.conversion.files.copies import resolve_paths
from delvec.conversion.planning import step, target_files
from delvec.errors import InvalidArgumentError, PlanError, TableNotFoundError
from delvec.iceberg.client.catalog import load_table, table_name
from delvec.iceberg.commit import lock
from delvec.iceberg.commit import publish as commit
from delvec.iceberg.commit.refs import remove
from tests.conversion.targets import Killed, Pair, before, ids, numbered
from tests.delta.builder import removed, small_table
from tests.marks import slow_but
from tests.spark.delta.spark_tables import as_delta_spark_reads, sql

pytestmark = pytest.mark.spark

DAY = 24 * 3600
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "format 3": ("lake", {"format_version": 3}),
    "format 2": ("sqlite", {"format_version": 2}),
    "by reference": ("lake", {"format_version": 3, "vectors": "reference"}),
    "one snapshot for several versions": ("sqlite", {"format_version": 3, "history": "latest"}),
    "format 2 in another folder": ("lake", {"format_version": 2, "folder": "some/where"}),
}


class Cleaned(Pair):
    """A source in every version of which rows are deleted, and files come and go; its target."""

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            gone = 4 + self.source.version // 2  # each change has two versions
            self.delete(1, range(3, min(gone, 10)))
            name = f"part-{gone}.parquet"
            add = self.source.write_file(name, {"id": [100 * gone, 100 * gone + 1]})
            self.source.commit({"add": add}, *({"remove": removed(old)} for old in self.live[2:]))
            self.live[2:] = [add]

    def digests(self) -> dict[str, str]:
        """Every file of the source with a digest of its bytes."""
        files = sorted(path for path in self.source.root.rglob("*") if path.is_file())
        return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}

    @property
    def folder(self) -> Path:
        return Path(self.metadata().location.removeprefix("file:"))

    def all_files(self) -> set[str]:
        """Name the files of the target, its metadata too."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)) for path in found if path.suffix != ".crc"}

    def snapshots(self) -> dict[int, list[int]]:
        """The rows of every snapshot, as Iceberg reads them."""
        return {number: self.ids(str(number)) for number in self.metadata().snapshots}

    def head(self) -> int:
        return self.metadata().refs["main"].snapshot_id


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path, target: str) -> Cleaned:
    return Cleaned(spark, *small_table(tmp_path / "source"), target)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the clock of cleaning be some seconds late."""

    def shift(seconds: float) -> None:
        clock = SimpleNamespace(time=lambda: time.time() + seconds)
        monkeypatch.setattr(cleaning, "time", clock)

    return shift


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(["format 3"], KINDS))
def test_what_is_left_reads_as_before_and_the_source_is_untouched(
    pair: Cleaned, kind: str, later: Callable[[float], None]
) -> None:
    catalog, choices = KINDS[kind]
    pair.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.cleaning")
    pair = replace(pair, target=f"{catalog}.cleaning.t_{uuid4().hex[:8]}")
    choices = {"history": "per-version", **choices}
    for _ in range(2 if choices["history"] == "per-version" else 3):
        pair.convert(**choices)
        pair.change()
    pair.convert(**choices)
    expected, untouched = pair.snapshots(), pair.digests()
    tagged = list(expected)[1 if choices["history"] == "per-version" else 0]
    pair.loaded().handle.manageSnapshots().createTag("mine", tagged).commit()
    there, refs = pair.all_files(), pair.refs()

    planned = pair.clean(retain_last=2, dry_run=True)
    assert (pair.all_files(), pair.refs()) == (there, refs)
    report = pair.clean(retain_last=2)
    assert report.snapshots == planned.snapshots
    assert report.files["path"].to_pylist() == planned.files["path"].to_pylist()
    assert (report.count("orphan"), report.files_young, report.files_unknown) == (0, 0, 0)
    assert len(report.snapshots) == len(expected) - 3 == len(expected) - report.snapshots_kept
    left = pair.refs()
    assert refs - left == set(report.tags)
    assert len(report.tags) == (len(report.snapshots) if choices["history"] != "latest" else 0)
    assert {"main", "mine"} <= left
    root = pair.folder
    deleted = {str(Path(path).relative_to(root)) for path in report.files["path"].to_pylist()}
    # Iceberg itself removes metadata files, of which a commit writes one.
    assert deleted == {name for name in there - pair.all_files() if "metadata.json" not in name}
    assert any(name.startswith("metadata/snap-") for name in deleted)
    assert any("metadata/" not in name for name in deleted) == (kind != "by reference")

    kept = {number: rows for number, rows in expected.items() if number not in report.snapshots}
    assert pair.snapshots() == kept
    assert pair.ids("'mine'") == expected[tagged]
    assert pair.digests() == untouched
    later(4 * DAY)
    nothing = pair.clean(dry_run=True)
    assert (nothing.files.num_rows, nothing.snapshots, nothing.branches) == (0, (), ())

    pair.change()
    after = pair.convert(verify="rows", **choices)
    assert after.mode == "incremental"
    assert pair.ids() == pair.in_delta()
    assert pair.ids("'mine'") == expected[tagged]


def test_orphans_are_deleted_when_they_are_old_and_the_files_of_others_never(pair: Cleaned) -> None:
    pair.convert()
    rows, there, folder = pair.ids(), pair.all_files(), pair.folder
    orphans = [
        f"metadata/{uuid4()}-m0.avro",
        f"metadata/snap-7-1-{uuid4()}.avro",
        f"data/{uuid4()}-deletes.puffin",
        f"deletion-vectors/{'a' * 32}-{uuid4()}.parquet",
        f"data/copies/{'b' * 40}.parquet",
        f"data/.delvec-staged-{uuid4().hex}",
    ]
    young = f"data/{uuid4()}-deletes.puffin"
    unknown = "data/part-0.parquet"  # as a file of the source is named
    now = time.time()
    for name in (*orphans, young, unknown):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"orphan")
        age = 2 * DAY if name == young else 4 * DAY
        os.utime(path, (now - age, now - age))
    untouched = pair.digests()
    planned = pair.clean(dry_run=True)
    assert pair.all_files() == {*there, *orphans, young, unknown}
    for report in (planned, pair.clean()):
        assert {str(folder / name) for name in orphans} == set(report.files["path"].to_pylist())
        assert (report.count("orphan"), report.count("expired")) == (len(orphans), 0)
        assert (report.files_young, report.files_unknown, report.bytes_deleted) == (1, 1, 36)
        assert (report.snapshots, report.snapshots_kept) == ((), 1)
    assert pair.all_files() == {*there, young, unknown}

    # Metadata of another table: its files could be any of those that seem to be orphans.
    other = folder / f"metadata/00001-{uuid4()}.metadata.json"
    other.write_text(f'{{"format-version": 2, "table-uuid": "{uuid4()}"}}')
    report = pair.clean(orphan_age=timedelta(days=1))
    assert report.files.num_rows == 0
    assert "metadata of another table" in str(report)
    other.unlink()
    report = pair.clean(orphan_age=timedelta(days=1))
    assert report.files["path"].to_pylist() == [str(folder / young)]
    assert pair.ids() == rows
    assert pair.digests() == untouched


@pytest.mark.slow
def test_a_crash_between_commit_and_deletion_leaves_orphans_for_the_next_run(
    pair: Cleaned, later: Callable[[float], None]
) -> None:
    for _ in range(2):
        pair.convert()
        pair.change()
    pair.convert()
    expected, there = pair.snapshots(), pair.all_files()
    with numbered(kill=(0, "after")) as calls, pytest.raises(Killed):
        pair.clean(retain_last=1)
    assert calls.names == ["commit"]
    assert there <= pair.all_files()
    [head] = pair.snapshots()
    planned = pair.clean(dry_run=True)
    assert (planned.files.num_rows, planned.files_young > 0) == (0, True)
    later(4 * DAY)
    with numbered(kill=(0, "before")) as calls, pytest.raises(Killed):
        pair.clean()
    assert calls.names == ["delete"]
    report = pair.clean()
    assert report.count("orphan") == planned.files_young
    assert pair.snapshots() == {head: expected[head]} == {head: pair.in_delta()}
    assert pair.convert().mode == "none"


@pytest.mark.slow
def test_conversions_at_once_lose_nothing(pair: Cleaned, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        pair.convert()
        pair.change()
    reports: list[Any] = []

    def convert() -> None:
        pair.change()
        pair.convert()

    def clean() -> None:
        reports.append(pair.clean(retain_last=1))

    # A whole conversion before the commit of cleaning, which then plans again, and one after it.
    with numbered({0: before(convert)}) as calls:
        clean()
    assert calls.names[0] == "commit"
    assert calls.names[-2:] == ["commit", "delete"]
    assert pair.snapshots() == {pair.head(): pair.in_delta()}
    convert()
    with numbered({1: before(convert)}) as calls:
        clean()
    assert calls.names[:2] == ["commit", "delete"]
    assert pair.snapshots()[pair.head()] == pair.in_delta()

    # Cleaning within a conversion: at each of its commits, so that it conflicts and begins again.
    for call in (1, 2):
        pair.change()
        with numbered({call: before(clean)}) as calls:
            pair.convert(verify="rows")
        assert calls.names.count("write") == 2
        assert pair.ids() == pair.in_delta()
        assert pair.refs() == {"main"}

    # And when it has staged its snapshots: they are on a branch, and are published.
    real = commit.publish

    def cleaned_before(*arguments: Any) -> Any:  # noqa: ANN401
        clean()
        return real(*arguments)

    pair.change()
    monkeypatch.setattr(apply, "publish", cleaned_before)
    with numbered() as calls:
        pair.convert(verify="rows")
    assert calls.names.count("write") == 1
    assert pair.ids() == pair.in_delta()
    assert pair.refs() == {"main"}
    assert all(report.count("orphan") == 0 for report in reports)
    assert pair.convert().mode == "none"


@pytest.mark.slow
def test_a_lock_on_the_target_disturbs_neither_conversion_nor_cleaning(pair: Cleaned) -> None:
    pair.convert()

    def renewed(call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Commit, and have the lock renewed before the refs are looked at."""
        result = call()
        lock._advance(pair.loaded(), state, held, lambda _: ())
        return result

    with lock.hold_lock(pair.loaded(), "RESOLVE", lease=600) as held:
        assert held.state is not None
        state = held.state
        for _ in range(2):
            pair.change()
            assert pair.convert().mode == "incremental"
        held.check(pair.loaded().metadata)
        with numbered({0: renewed}) as calls:
            report = pair.clean(retain_last=1)
        assert calls.names[0] == "commit"
        assert report.snapshots_kept == 2, "the newest, and the one that the lock names"
        held.check(pair.loaded().metadata)
    assert pair.refs() == {"main"}
    assert pair.ids() == pair.in_delta()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["cleaned", "expired"])
def test_versions_that_are_staged_while_others_expire_snapshots_are_published(
    pair: Cleaned, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = commit.publish

    def publish_late(*arguments: Any) -> Any:  # noqa: ANN401
        monkeypatch.setattr(apply, "publish", real)
        if what == "cleaned":
            assert pair.clean(retain_last=1).branches == ()
        else:
            remove(pair.loaded(), arguments[0].snapshot_ids[:1], [])
        return real(*arguments)

    for is_new in (True, False):
        monkeypatch.setattr(apply, "publish", publish_late)
        with numbered() as calls:
            pair.convert(history="per-version", verify="rows")
        attempts = 1 if what == "cleaned" else 2
        assert calls.names.count("write") == attempts * (1 if is_new else 2)
        assert pair.ids() == pair.in_delta()
        for version in range(pair.source.version + 1):
            if is_new or version == pair.source.version:
                assert pair.ids(f"'delta-version-{version}'") == pair.in_delta(version)
        assert not any(name.startswith("delvec-convert-") for name in pair.refs())
        pair.change(2)


@pytest.mark.slow
def test_what_another_catalog_reads_is_kept(pair: Cleaned, later: Callable[[float], None]) -> None:
    fork = replace(pair, target=f"sqlite.cleaning.f_{uuid4().hex[:8]}")
    pair.convert()
    metadata = pair.loaded().current.metadataFileLocation()
    pair.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.cleaning")
    fork.sql(f"CALL sqlite.system.register_table('{{n}}', '{metadata}')")
    pair.change()
    fork.convert()
    expected = fork.ids()
    for is_newer in (False, True):
        if is_newer:  # than what the other entry committed
            pair.change()
            pair.convert()
        later(4 * DAY)
        report = pair.clean(retain_last=1)
        assert report.files.num_rows == 0
        assert "another catalog's entry" in str(report)
        assert fork.ids() == expected


@pytest.mark.slow
def test_branches_of_dead_conversions_go_after_a_day_with_what_they_hold(
    pair: Cleaned, later: Callable[[float], None]
) -> None:
    pair.convert()
    expected, there = pair.snapshots(), pair.all_files()
    pair.change()
    with numbered(kill=(2, "before")), pytest.raises(Killed):
        pair.convert()
    [dead] = pair.refs() - {"main"}
    assert not pair.clean(retain_last=1).branches
    later(2 * DAY)
    report = pair.clean()
    assert report.branches == (dead,)
    assert report.snapshots_kept == len(report.snapshots) == 1
    assert pair.snapshots() == expected
    kept = {name for name in pair.all_files() if "metadata.json" not in name}
    assert kept == {name for name in there if "metadata.json" not in name}
    pair.convert()
    assert pair.ids() == pair.in_delta()


@pytest.mark.more
def test_tables_that_are_not_targets_and_wrong_arguments_are_refused(pair: Cleaned) -> None:
    with pytest.raises(TableNotFoundError):
        pair.clean()
    pair.sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    with pytest.raises(PlanError, match="not made by a conversion") as refused:
        pair.clean(retain_last=1)
    assert "lake.system.expire_snapshots" in str(refused.value.hint)
    pair.sql("DROP TABLE {t}")
    pair.convert()
    log = pair.folder / "_delta_log"
    log.mkdir()
    (log / "00000000000000000000.json").write_text("{}")
    with pytest.raises(PlanError, match="another table inside"):
        pair.clean()
    (log / "00000000000000000000.json").unlink()
    for wrong in (
        {"older_than": timedelta(days=-1)},
        {"older_than": 7},
        {"retain_last": 0},
        {"retain_last": True},
        {"orphan_age": timedelta(hours=23)},
    ):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            pair.clean(**wrong)
    pair.sql("ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    assert "gc.enabled" in str(pair.clean())


@pytest.mark.slow
def test_a_target_that_overlaps_with_its_source_is_refused(pair: Cleaned) -> None:
    pair.convert()
    inside = pair.folder / "data/source"
    pair.source.root.rename(inside)
    pair.source.root.symlink_to(inside)
    with pytest.raises(PlanError, match="overlaps with its source"):
        pair.clean()


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Path:
    """Make a table whose files have to be copied: two of them, with ten rows each."""
    path = tmp_path / "source"
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    insert = "INSERT INTO {T} SELECT id, array(1) FROM range(%s, 1, 1)"
    sql(
        spark,
        path,
        f"CREATE TABLE {{T}} (id LONG, l ARRAY<INT>) USING delta TBLPROPERTIES ({mapped})",
        insert % "0, 10",
        insert % "10, 20",
    )
    return path


def copies_of(spark: SparkSession, target: str) -> set[Path]:
    location = load_table(spark, table_name(spark, target)).metadata.location
    return set(Path(location.removeprefix("file:")).glob("data/copies/*.parquet"))


def age(paths: set[Path]) -> None:
    long_ago = time.time() - 4 * DAY
    for path in paths:
        os.utime(path, (long_ago, long_ago))


def early_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copies have the names of earlier versions, the same each time."""

    def resolved(paths: pa.Array, location: str, run: str, **prefix: Any) -> pa.Array:  # noqa: ANN401
        found = resolve_paths(paths, location, run, **prefix)
        return pc.replace_substring(found, f"-{run}.parquet", ".parquet")

    for module in (apply, step, target_files):
        monkeypatch.setattr(module, "resolve_paths", resolved)


@pytest.mark.slow
def test_a_copy_that_is_being_deleted_is_not_used_again(spark: SparkSession, source: Path) -> None:
    target = f"lake.cleaning.t_{uuid4().hex[:8]}"
    delvec.convert(spark, source, target, copy_files=True)
    sql(spark, source, "DELETE FROM {T} WHERE id < 10")
    delvec.convert(spark, source, target, copy_files=True)
    there = copies_of(spark, target)
    with numbered(kill=(0, "after")), pytest.raises(Killed):
        delvec.clean_target(spark, target, retain_last=1)
    sql(spark, source, "RESTORE TABLE {T} TO VERSION AS OF 2")
    age(there)

    def convert() -> None:
        report = delvec.convert(spark, source, target, copy_files=True, verify="rows")
        assert report.files_copied == 1

    with numbered({0: before(convert)}) as calls:
        cleaned = delvec.clean_target(spark, target)
    assert calls.names[0] == "delete"
    assert cleaned.files["kind"].to_pylist().count("copied data file") == 1
    assert len(copies_of(spark, target)) == 2
    assert ids(spark, target) == list(range(20))
    # Copies that the target has are used again.
    sql(spark, source, "DELETE FROM {T} WHERE id = 3")
    report = delvec.convert(spark, source, target, copy_files=True, verify="rows")
    assert (report.mode, report.files_copied, report.vectors_added) == ("incremental", 0, 1)
    # What expires is deleted at once, as vectors are: no later conversion needs it.
    sql(spark, source, "DELETE FROM {T} WHERE id >= 10")
    delvec.convert(spark, source, target, copy_files=True)
    delvec.clean_target(spark, target, retain_last=1)
    assert len(copies_of(spark, target)) == 1
    assert ids(spark, target) == [0, 1, 2, *range(4, 10)]


@pytest.mark.slow
def test_a_file_that_comes_and_goes_at_once_has_one_copy(spark: SparkSession, source: Path) -> None:
    target = f"lake.cleaning.t_{uuid4().hex[:8]}"
    choices: dict[str, Any] = {"copy_files": True, "history": "per-version"}
    sql(spark, source, "DELETE FROM {T} WHERE id < 10", "RESTORE TABLE {T} TO VERSION AS OF 2")
    delvec.convert(spark, source, target, verify="rows", **choices)
    assert len(copies_of(spark, target)) == 2
    assert ids(spark, target) == list(range(20))
    sql(spark, source, "DELETE FROM {T} WHERE id < 10", "RESTORE TABLE {T} TO VERSION AS OF 2")
    delvec.convert(spark, source, target, verify="rows", **choices)
    assert len(copies_of(spark, target)) == 3
    assert ids(spark, target) == list(range(20))
    assert ids(spark, target, "'delta-version-5'") == list(range(10, 20))


@pytest.mark.slow
@pytest.mark.parametrize("names", ["unique", "early"])
def test_two_targets_in_one_location_do_not_lose_copies_to_each_other(
    spark: SparkSession, source: Path, tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.cleaning")
    one, two = (f"sqlite.cleaning.t_{uuid4().hex[:8]}" for _ in range(2))
    location = str(tmp_path / "both of%20them")
    with monkeypatch.context() as patch:
        if names == "early":
            early_names(patch)
        for target in (one, two):
            delvec.convert(spark, source, target, copy_files=True, location=location)
    sql(spark, source, "DELETE FROM {T} WHERE id < 10")
    report = delvec.convert(spark, source, one, copy_files=True, verify="rows")
    assert (report.mode, report.files_copied, report.files_removed) == ("incremental", 0, 1)
    there = copies_of(spark, one)
    assert len(there) == (2 if names == "early" else 4)
    age(there)
    cleaned = delvec.clean_target(spark, one, retain_last=1)
    assert "metadata of another table" in str(cleaned)
    assert len(there - copies_of(spark, one)) == (0 if names == "early" else 1)
    assert ids(spark, two) == list(range(20))
    assert ids(spark, one) == list(range(10, 20))
    found = sorted(map(str, spark.table(one).collect()))
    assert found == sorted(map(str, as_delta_spark_reads(spark, source).collect()))
