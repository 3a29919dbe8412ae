"""Targets of many conversions are cleaned: readers and the source notice nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion import apply
from delvec.conversion import clean_target as cleaning
from delvec.errors import InvalidArgumentError, PlanError, TableNotFoundError
from delvec.iceberg.client.catalog import LoadedTable, load_table, table_name
from delvec.iceberg.commit import lock
from delvec.iceberg.commit import publish as commit
from delvec.iceberg.commit.refs import remove
from tests.conversion.targets import Killed, before, branches, ids, ids_in_delta, numbered
from tests.delta.builder import TableBuilder, removed, small_table
from tests.marks import slow_but

Rows = dict[int, list[int]]

pytestmark = pytest.mark.spark

DAY = 24 * 3600
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "format 3": ("lake", {"format_version": 3}),
    "format 2": ("sqlite", {"format_version": 2}),
    "by reference": ("lake", {"format_version": 3, "vectors": "reference"}),
    "one snapshot for several versions": ("sqlite", {"format_version": 3, "history": "latest"}),
    "format 2 in another folder": ("lake", {"format_version": 2, "folder": "some/where"}),
}


@dataclass
class Source:
    """A table that changes: in every version rows are deleted, and files come and go."""

    table: TableBuilder
    live: list[dict[str, Any]]
    gone: int = 5

    def change(self) -> None:
        [vector] = self.table.write_vectors(range(3, min(self.gone, 10)))
        self.live[1] = self.table.delete(self.live[1], vector)
        add = self.table.write_file(
            f"part-{self.gone}.parquet", {"id": [100 * self.gone, 100 * self.gone + 1]}
        )
        self.table.commit({"add": add}, *({"remove": removed(old)} for old in self.live[2:]))
        self.live[2:] = [add]
        self.gone += 1

    @property
    def rows(self) -> list[int]:
        return ids_in_delta(self.table.root, self.table.version)

    @property
    def state(self) -> dict[str, str]:
        """Every file with a digest of its bytes."""
        files = sorted(path for path in self.table.root.rglob("*") if path.is_file())
        return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(*small_table(tmp_path / "source"))


@pytest.fixture
def target() -> str:
    return f"lake.cleaning.t_{uuid4().hex[:8]}"


def location(spark: SparkSession, target: str) -> Path:
    return Path(
        load_table(spark, table_name(spark, target)).metadata.location.removeprefix("file:")
    )


def files_of(spark: SparkSession, target: str) -> set[str]:
    folder = location(spark, target)
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    return {str(path.relative_to(folder)) for path in found}


def snapshots(spark: SparkSession, target: str) -> Rows:
    """Give the rows of every snapshot, as Iceberg reads them."""
    metadata = load_table(spark, table_name(spark, target)).metadata
    return {number: ids(spark, target, str(number)) for number in metadata.snapshots}


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
    spark: SparkSession, source: Source, kind: str, later: Callable[[float], None]
) -> None:
    catalog, choices = KINDS[kind]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.cleaning")
    target = f"{catalog}.cleaning.t_{uuid4().hex[:8]}"
    choices = {"history": "per-version", **choices}
    for _ in range(2 if choices["history"] == "per-version" else 3):
        delvec.convert(spark, source.table.root, target, **choices)
        source.change()
    delvec.convert(spark, source.table.root, target, **choices)
    handle = load_table(spark, table_name(spark, target)).handle
    expected, untouched = snapshots(spark, target), source.state
    tagged = list(expected)[1 if choices["history"] == "per-version" else 0]
    handle.manageSnapshots().createTag("mine", tagged).commit()
    there = files_of(spark, target)
    refs = branches(spark, target)

    planned = delvec.clean_target(spark, target, retain_last=2, dry_run=True)
    assert files_of(spark, target) == there
    assert branches(spark, target) == refs
    report = delvec.clean_target(spark, target, retain_last=2)
    assert report.snapshots == planned.snapshots
    assert report.files["path"].to_pylist() == planned.files["path"].to_pylist()
    assert (report.count("orphan"), report.files_young, report.files_unknown) == (0, 0, 0)
    assert len(report.snapshots) == len(expected) - 3 == len(expected) - report.snapshots_kept
    left = branches(spark, target)
    assert refs - left == set(report.tags)
    assert len(report.tags) == (len(report.snapshots) if choices["history"] != "latest" else 0)
    assert {"main", "mine"} <= left
    root = location(spark, target)
    deleted = {str(Path(path).relative_to(root)) for path in report.files["path"].to_pylist()}
    # Iceberg itself removes metadata files, of which a commit writes one.
    assert deleted == {
        name for name in there - files_of(spark, target) if "metadata.json" not in name
    }
    assert any(name.startswith("metadata/snap-") for name in deleted)
    assert any("metadata/" not in name for name in deleted) == (kind != "by reference")

    kept = {number: rows for number, rows in expected.items() if number not in report.snapshots}
    assert snapshots(spark, target) == kept
    assert ids(spark, target, "'mine'") == expected[tagged]
    assert source.state == untouched
    later(4 * DAY)
    nothing = delvec.clean_target(spark, target, dry_run=True)
    assert (nothing.files.num_rows, nothing.snapshots, nothing.branches) == (0, (), ())

    source.change()
    after = delvec.convert(spark, source.table.root, target, verify="rows", **choices)
    assert after.mode == "incremental"
    assert ids(spark, target) == source.rows
    assert ids(spark, target, "'mine'") == expected[tagged]


def test_orphans_are_deleted_when_they_are_old_and_the_files_of_others_never(
    spark: SparkSession, source: Source, target: str
) -> None:
    delvec.convert(spark, source.table.root, target)
    rows, there, folder = ids(spark, target), files_of(spark, target), location(spark, target)
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
    untouched = source.state
    planned = delvec.clean_target(spark, target, dry_run=True)
    assert files_of(spark, target) == {*there, *orphans, young, unknown}
    for report in (planned, delvec.clean_target(spark, target)):
        assert {str(folder / name) for name in orphans} == set(report.files["path"].to_pylist())
        assert (report.count("orphan"), report.count("expired")) == (len(orphans), 0)
        assert (report.files_young, report.files_unknown, report.bytes_deleted) == (1, 1, 36)
        assert (report.snapshots, report.snapshots_kept) == ((), 1)
    assert files_of(spark, target) == {*there, young, unknown}

    # Metadata of another table: its files could be any of those that seem to be orphans.
    other = folder / f"metadata/00001-{uuid4()}.metadata.json"
    other.write_text(f'{{"format-version": 2, "table-uuid": "{uuid4()}"}}')
    report = delvec.clean_target(spark, target, orphan_age=timedelta(days=1))
    assert report.files.num_rows == 0
    assert "metadata of another table" in str(report)
    other.unlink()
    report = delvec.clean_target(spark, target, orphan_age=timedelta(days=1))
    assert report.files["path"].to_pylist() == [str(folder / young)]
    assert ids(spark, target) == rows
    assert source.state == untouched


@pytest.mark.slow
def test_a_crash_between_commit_and_deletion_leaves_orphans_for_the_next_run(
    spark: SparkSession, source: Source, target: str, later: Callable[[float], None]
) -> None:
    for _ in range(2):
        delvec.convert(spark, source.table.root, target)
        source.change()
    delvec.convert(spark, source.table.root, target)
    expected, there = snapshots(spark, target), files_of(spark, target)
    with numbered(kill=(0, "after")) as calls, pytest.raises(Killed):
        delvec.clean_target(spark, target, retain_last=1)
    assert calls.names == ["commit"]
    assert there <= files_of(spark, target)
    [head] = snapshots(spark, target)
    planned = delvec.clean_target(spark, target, dry_run=True)
    assert (planned.files.num_rows, planned.files_young > 0) == (0, True)
    later(4 * DAY)
    with numbered(kill=(0, "before")) as calls, pytest.raises(Killed):
        delvec.clean_target(spark, target)
    assert calls.names == ["delete"]
    report = delvec.clean_target(spark, target)
    assert report.count("orphan") == planned.files_young
    assert snapshots(spark, target) == {head: expected[head]} == {head: source.rows}
    assert delvec.convert(spark, source.table.root, target).mode == "none"


@pytest.mark.slow
def test_conversions_at_the_same_time_lose_nothing(
    spark: SparkSession, source: Source, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = source.table.root
    for _ in range(2):
        delvec.convert(spark, root, target)
        source.change()
    reports: list[Any] = []

    def convert() -> None:
        source.change()
        delvec.convert(spark, root, target)

    def clean() -> None:
        reports.append(delvec.clean_target(spark, target, retain_last=1))

    # A whole conversion before the commit of cleaning, which then plans again, and one after it.
    with numbered({0: before(convert)}) as calls:
        clean()
    assert calls.names[0] == "commit"
    assert calls.names[-2:] == ["commit", "delete"]
    assert snapshots(spark, target) == {load(spark, target): source.rows}
    convert()
    with numbered({1: before(convert)}) as calls:
        clean()
    assert calls.names[:2] == ["commit", "delete"]
    assert snapshots(spark, target)[load(spark, target)] == source.rows

    # Cleaning within a conversion: at each of its commits, so that it conflicts and begins again.
    for call in (1, 2):
        source.change()
        with numbered({call: before(clean)}) as calls:
            delvec.convert(spark, root, target, verify="rows")
        assert calls.names.count("write") == 2
        assert ids(spark, target) == source.rows
        assert branches(spark, target) == {"main"}

    # And when it has staged its snapshots: they are on a branch, and are published.
    real = commit.publish

    def cleaned_before(*arguments: Any) -> Any:  # noqa: ANN401
        clean()
        return real(*arguments)

    source.change()
    monkeypatch.setattr(apply, "publish", cleaned_before)
    with numbered() as calls:
        delvec.convert(spark, root, target, verify="rows")
    assert calls.names.count("write") == 1
    assert ids(spark, target) == source.rows
    assert branches(spark, target) == {"main"}
    assert all(report.count("orphan") == 0 for report in reports)
    assert delvec.convert(spark, root, target).mode == "none"


@pytest.mark.slow
def test_a_lock_on_the_target_disturbs_neither_conversion_nor_cleaning(
    spark: SparkSession, source: Source, target: str
) -> None:
    root = source.table.root
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.cleaning")
    delvec.convert(spark, root, target)

    def newest() -> LoadedTable:
        return load_table(spark, table_name(spark, target))

    def renewed(call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Commit, and have the lock renewed before the refs are looked at."""
        result = call()
        lock._advance(newest(), state, held, lambda _: ())
        return result

    with lock.hold_lock(newest(), "RESOLVE", lease=600) as held:
        assert held.state is not None
        state = held.state
        for _ in range(2):
            source.change()
            assert delvec.convert(spark, root, target).mode == "incremental"
        held.check(newest().metadata)
        with numbered({0: renewed}) as calls:
            report = delvec.clean_target(spark, target, retain_last=1)
        assert calls.names[0] == "commit"
        assert report.snapshots_kept == 2, "the newest, and the one that the lock names"
        held.check(newest().metadata)
    assert branches(spark, target) == {"main"}
    assert ids(spark, target) == source.rows


@pytest.mark.slow
@pytest.mark.parametrize("what", ["cleaned", "expired"])
def test_versions_that_are_staged_while_others_expire_snapshots_are_published(
    spark: SparkSession, source: Source, target: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, real = source.table.root, commit.publish

    def publish_late(*arguments: Any) -> Any:  # noqa: ANN401
        monkeypatch.setattr(apply, "publish", real)
        if what == "cleaned":
            assert delvec.clean_target(spark, target, retain_last=1).branches == ()
        else:
            table = load_table(spark, table_name(spark, target))
            remove(table, arguments[0].snapshot_ids[:1], [])
        return real(*arguments)

    for is_new in (True, False):
        monkeypatch.setattr(apply, "publish", publish_late)
        with numbered() as calls:
            delvec.convert(spark, root, target, history="per-version", verify="rows")
        attempts = 1 if what == "cleaned" else 2
        assert calls.names.count("write") == attempts * (1 if is_new else 2)
        assert ids(spark, target) == source.rows
        for version in range(source.table.version + 1):
            if is_new or version == source.table.version:
                found = ids(spark, target, f"'delta-version-{version}'")
                assert found == ids_in_delta(root, version)
        assert not any(name.startswith("delvec-convert-") for name in branches(spark, target))
        source.change()
        source.change()


@pytest.mark.slow
def test_what_an_entry_of_another_catalog_reads_is_kept(
    spark: SparkSession, source: Source, target: str, later: Callable[[float], None]
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.cleaning")
    root = source.table.root
    delvec.convert(spark, root, target)
    metadata = load_table(spark, table_name(spark, target)).current.metadataFileLocation()
    fork = f"cleaning.f_{uuid4().hex[:8]}"
    spark.sql(f"CALL sqlite.system.register_table('{fork}', '{metadata}')").collect()
    fork = f"sqlite.{fork}"
    source.change()
    delvec.convert(spark, root, fork)
    expected = ids(spark, fork)
    for is_newer in (False, True):
        if is_newer:  # than what the other entry committed
            source.change()
            delvec.convert(spark, root, target)
        later(4 * DAY)
        report = delvec.clean_target(spark, target, retain_last=1)
        assert report.files.num_rows == 0
        assert "another catalog's entry" in str(report)
        assert ids(spark, fork) == expected


def load(spark: SparkSession, target: str) -> int:
    head = load_table(spark, table_name(spark, target)).metadata.head()
    assert head is not None
    return head.id


@pytest.mark.slow
def test_branches_of_dead_conversions_go_after_a_day_with_what_they_hold(
    spark: SparkSession, source: Source, target: str, later: Callable[[float], None]
) -> None:
    delvec.convert(spark, source.table.root, target)
    expected, there = snapshots(spark, target), files_of(spark, target)
    source.change()
    with numbered(kill=(2, "before")), pytest.raises(Killed):
        delvec.convert(spark, source.table.root, target)
    [dead] = branches(spark, target) - {"main"}
    assert not delvec.clean_target(spark, target, retain_last=1).branches
    later(2 * DAY)
    report = delvec.clean_target(spark, target)
    assert report.branches == (dead,)
    assert report.snapshots_kept == len(report.snapshots) == 1
    assert snapshots(spark, target) == expected
    kept = {name for name in files_of(spark, target) if "metadata.json" not in name}
    assert kept == {name for name in there if "metadata.json" not in name}
    delvec.convert(spark, source.table.root, target)
    assert ids(spark, target) == source.rows


@pytest.mark.more
def test_tables_that_are_not_targets_and_wrong_arguments_are_refused(
    spark: SparkSession, source: Source, target: str
) -> None:
    with pytest.raises(TableNotFoundError):
        delvec.clean_target(spark, target)
    spark.sql(f"CREATE TABLE {target} (id BIGINT) USING iceberg")
    with pytest.raises(PlanError, match="not made by a conversion") as refused:
        delvec.clean_target(spark, target, retain_last=1)
    assert "lake.system.expire_snapshots" in str(refused.value.hint)
    spark.sql(f"DROP TABLE {target}")
    delvec.convert(spark, source.table.root, target)
    log = location(spark, target) / "_delta_log"
    log.mkdir()
    (log / "00000000000000000000.json").write_text("{}")
    with pytest.raises(PlanError, match="another table inside"):
        delvec.clean_target(spark, target)
    (log / "00000000000000000000.json").unlink()
    for wrong in (
        {"older_than": timedelta(days=-1)},
        {"older_than": 7},
        {"retain_last": 0},
        {"retain_last": True},
        {"orphan_age": timedelta(hours=23)},
    ):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            delvec.clean_target(spark, target, **wrong)
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    assert "gc.enabled" in str(delvec.clean_target(spark, target))


@pytest.mark.slow
def test_a_target_that_overlaps_with_its_source_is_refused(
    spark: SparkSession, source: Source, target: str
) -> None:
    delvec.convert(spark, source.table.root, target)
    inside = location(spark, target) / "data/source"
    source.table.root.rename(inside)
    source.table.root.symlink_to(inside)
    with pytest.raises(PlanError, match="overlaps with its source"):
        delvec.clean_target(spark, target)
