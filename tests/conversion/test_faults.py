"""Conversions that something goes wrong with: the target reads as before or as after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion import apply, step_writer, target_properties
from delvec.conversion.files import repack
from delvec.errors import (
    ConflictError,
    DelvecError,
    FormatError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    UnsupportedFeatureError,
    VerificationError,
)
from delvec.iceberg.client import content_files as file_json
from delvec.iceberg.client.catalog import find_table, load_table, table_name
from delvec.iceberg.commit import publish as commit
from tests.conversion.targets import (
    Killed,
    before,
    branches,
    delete_paths,
    files_below,
    ids,
    numbered,
    state,
)
from tests.delta.builder import TableBuilder, removed, small_table
from tests.marks import slow_but
from tests.repository import ROOT

Action = dict[str, Any]

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

LIVE = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17, 18, 19]
BOTH = [3, pytest.param(2, marks=pytest.mark.slow)]


@pytest.fixture
def target() -> str:
    return f"lake.faults.t_{uuid4().hex[:8]}"


@pytest.fixture
def source(tmp_path: Path) -> TableBuilder:
    """A table of three versions, see `small_table`."""
    return small_table(tmp_path / "source")[0]


def live_of(table: TableBuilder) -> list[Action]:
    """Give the adds of the newest commit."""
    lines = table.commit_path(table.version).read_text().splitlines()
    return [each["add"] for each in map(json.loads, lines) if "add" in each]


def nothing_of(spark: SparkSession, target: str) -> bool:
    """Tell whether no table and no file is left of a target in the catalog of folders."""
    name = table_name(spark, target)
    folder = Path(spark.conf.get("spark.sql.catalog.lake.warehouse") or "", *name.namespace)
    left = [path for path in (folder / name.table).rglob("*") if path.is_file()]
    return find_table(spark, name) is None and left == []


# Killed. Before a call all is as after the one before it, so one of the two does each time.
WHEN = ["after", pytest.param("before", marks=pytest.mark.slow)]


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("when", WHEN)
def test_a_first_conversion_that_is_killed_anywhere_is_made_good_by_the_next(
    spark: SparkSession, source: TableBuilder, target: str, format_version: int, when: str
) -> None:
    choices: dict[str, Any] = {"format_version": format_version}
    with numbered() as calls:
        delvec.convert(spark, source.root, target, **choices)
    assert calls.names == ["write"] * (4 - format_version) + ["commit", "commit"]
    first = calls.names.index("commit")
    for number in range(len(calls.names)):
        spark.sql(f"DROP TABLE {target}")
        with numbered(kill=(number, when)), pytest.raises(Killed):
            delvec.convert(spark, source.root, target, **choices)
        found = state(spark, target)
        is_last = (number, when) == (len(calls.names) - 1, "after")
        assert (found is not None and found[1] == tuple(LIVE)) == is_last
        is_early = number < first or (number, when) == (first, "before")
        assert (found is None) == is_early
        report = delvec.convert(spark, source.root, target, **choices)
        assert report.mode == ("none" if is_last else "full")
        assert ids(spark, target) == LIVE
        assert len(delete_paths(spark, target)) == 2


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("when", WHEN)
def test_an_increment_that_is_killed_anywhere_is_made_good_by_the_next(
    spark: SparkSession, source: TableBuilder, target: str, format_version: int, when: str
) -> None:
    delvec.convert(spark, source.root, target, format_version=format_version)
    live, gone = live_of(source)[1], 5
    names = ["write", "commit", "commit"]
    for number in range(len(names)):
        [vector] = source.write_vectors(range(3, gone))
        live, gone = source.delete(live, vector), gone + 1
        old = state(spark, target)
        with numbered(kill=(number, when)) as dying, pytest.raises(Killed):
            delvec.convert(spark, source.root, target)
        assert dying.names == names[: number + 1]
        expected = sorted({*range(1, 9), *range(10, 20)} - set(range(13, 10 + gone - 1)))
        found = state(spark, target)
        assert found is not None
        is_last = (number, when) == (2, "after")
        assert (found[1] == tuple(expected)) if is_last else (found == old)
        delvec.convert(spark, source.root, target)
        assert ids(spark, target) == expected
        assert len(delete_paths(spark, target)) == 2
    # Branches of the dead stay for a day, in which nobody reads them.
    kept = [name for name in branches(spark, target) if name.startswith("delvec-convert-")]
    assert len(kept) == 1


@pytest.mark.more
def test_branches_of_the_dead_are_removed_after_a_day(
    spark: SparkSession, source: TableBuilder, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delvec.convert(spark, source.root, target, version=1)
    with numbered(kill=(2, "before")), pytest.raises(Killed):
        delvec.convert(spark, source.root, target)
    [dead] = branches(spark, target) - {"main"}
    real = commit.stage

    def staged_late(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        staged = real(*arguments, **named)
        metadata = staged.table.metadata
        late = {
            key: replace(each, timestamp_ms=each.timestamp_ms + 25 * 3600 * 1000)
            if key == staged.snapshot_id
            else each
            for key, each in metadata.snapshots.items()
        }
        return replace(
            staged, table=replace(staged.table, metadata=replace(metadata, snapshots=late))
        )

    monkeypatch.setattr(apply, "stage", staged_late)
    delvec.convert(spark, source.root, target)
    assert dead not in branches(spark, target)
    assert ids(spark, target) == LIVE


@pytest.mark.more
@pytest.mark.parametrize("history", ["latest", pytest.param("per-version", marks=pytest.mark.slow)])
def test_an_interrupt_tidies_up_what_no_commit_refers_to(
    spark: SparkSession,
    source: TableBuilder,
    target: str,
    history: Any,  # noqa: ANN401
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    for act in (before(interrupt), after_interrupt):
        with numbered({0: act}), pytest.raises(KeyboardInterrupt):
            delvec.convert(spark, source.root, target, history=history)
        assert nothing_of(spark, target) or history == "per-version"
        assert find_table(spark, table_name(spark, target)) is None
    delvec.convert(spark, source.root, target, history=history)
    assert ids(spark, target) == LIVE


def after_interrupt(call: Callable[[], Any]) -> None:
    call()
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_process_that_is_killed_leaves_a_target_to_go_on_from(
    spark: SparkSession, source: TableBuilder, target: str, call: int
) -> None:
    delvec.convert(spark, source.root, target, version=1)
    old = state(spark, target)
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
    arguments = [str(source.root), target, warehouse, str(call)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.conversion.test_faults", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    found = state(spark, target)
    assert found is not None
    if call == 2:
        assert found[1] == tuple(LIVE)
    else:
        assert found == old
    delvec.convert(spark, source.root, target, verify="rows")
    assert ids(spark, target) == LIVE


def _die_in(path: str, target: str, warehouse: str, call: str) -> None:
    """Convert, and die after a call."""
    spark = delvec.session(
        warehouse,
        master="local[1]",
        conf={"spark.driver.memory": "512m", "spark.ui.enabled": "false"},
    )

    def die(real: Callable[[], Any]) -> None:
        real()
        os.killpg(os.getpgid(0), signal.SIGKILL)

    with numbered({int(call): die}):
        delvec.convert(spark, path, target)


# The source changes meanwhile.
@pytest.mark.more
@pytest.mark.parametrize("format_version", [2, 3])
def test_a_vector_that_vacuum_removes_meanwhile_is_named_and_the_target_is_as_before(
    spark: SparkSession, source: TableBuilder, target: str, format_version: int
) -> None:
    plan = delvec.plan_conversion(spark, source.root, target, format_version=format_version)
    vectors = source.vector_path()
    kept = vectors.read_bytes()
    vectors.unlink()
    with pytest.raises(ObjectNotFoundError) as missing:
        plan.apply()
    for part in ("part-0.parquet", vectors.name):
        assert part in str(missing.value)
    assert nothing_of(spark, target)

    delvec.convert(spark, source.root, target, version=1, format_version=format_version)
    plan = delvec.plan_conversion(spark, source.root, target)
    old, files = state(spark, target), files_below(spark, target)
    with pytest.raises(ObjectNotFoundError, match=vectors.name):
        plan.apply()
    assert state(spark, target) == old
    assert files_below(spark, target) == files
    assert branches(spark, target) == {"main"}
    vectors.write_bytes(kept)
    assert plan.apply().version == 2
    assert ids(spark, target) == LIVE


@pytest.mark.slow
def test_a_data_file_that_vacuum_removes_meanwhile_is_found_when_rows_are_verified(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    plan = delvec.plan_conversion(spark, source.root, target)
    data = source.root / "part-1.parquet"
    kept = data.read_bytes()
    data.unlink()
    with pytest.raises(StorageError, match=r"part-1\.parquet"):
        plan.apply(verify="rows")
    assert state(spark, target) == (None, ())
    data.write_bytes(kept)
    delvec.convert(spark, source.root, target, version=1)
    old = state(spark, target)
    plan = delvec.plan_conversion(spark, source.root, target)
    data.unlink()
    with pytest.raises(StorageError, match=r"part-1\.parquet"):
        plan.apply(verify="rows")
    data.write_bytes(kept)
    assert state(spark, target) == old
    assert branches(spark, target) == {"main"}
    assert plan.apply(verify="rows").verified == "rows"
    assert ids(spark, target) == LIVE


def test_a_plan_is_carried_out_as_it_was_made_and_once(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    first = delvec.plan_conversion(spark, source.root, target)
    [live, other] = live_of(source)
    [vector] = source.write_vectors(range(10))
    source.commit({"remove": removed(live)})
    source.delete(other, vector)
    assert first.apply().version == 2
    assert ids(spark, target) == LIVE
    with pytest.raises((ConflictError, PlanError)):
        first.apply()
    assert ids(spark, target) == LIVE
    second = delvec.plan_conversion(spark, source.root, target, version=3)
    source.commit({"add": live})
    assert second.apply().version == 3
    old = state(spark, target)
    with pytest.raises((ConflictError, PlanError)):
        second.apply()
    assert state(spark, target) == old
    assert old is not None
    assert old[1] == (10, 11, 12, 15, 16, 17, 18, 19)
    assert branches(spark, target) == {"main"}


# Others change the target.
@pytest.mark.parametrize("format_version", BOTH)
def test_rows_that_others_changed_are_refused_and_taken_back_on_request(
    spark: SparkSession, source: TableBuilder, target: str, format_version: int
) -> None:
    delvec.convert(spark, source.root, target, format_version=format_version)
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    for statement in (
        f"INSERT INTO {target} VALUES (1000)",
        f"DELETE FROM {target} WHERE id IN (1, 10)",
    ):
        spark.sql(statement)
        changed = state(spark, target)
        with pytest.raises(PlanError, match="others have changed files") as refused:
            delvec.convert(spark, source.root, target)
        assert "foreign='overwrite'" in str(refused.value.hint)
        assert state(spark, target) == changed
        report = delvec.convert(spark, source.root, target, foreign="overwrite")
        assert report.mode == "full"
        assert "taken back" in report.notes[0]
        assert ids(spark, target) == LIVE
        assert len(delete_paths(spark, target)) == 2
    assert delvec.convert(spark, source.root, target).mode == "none"


@pytest.mark.slow
def test_commits_of_others_that_leave_the_rows_alone_are_in_nobodys_way(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    delvec.convert(spark, source.root, target, version=1)
    name = target.removeprefix("lake.")
    live = None
    for number, statement in enumerate(
        (
            f"CALL lake.system.rewrite_manifests('{name}')",
            f"ALTER TABLE {target} CREATE TAG theirs",
            f"ALTER TABLE {target} SET TBLPROPERTIES ('theirs' = '1')",
            f"ALTER TABLE {target} CREATE BRANCH aside",
        )
    ):
        spark.sql(statement)
        if live is None:
            delvec_report = delvec.convert(spark, source.root, target)
            live = live_of(source)[0]
        else:
            [vector] = source.write_vectors([0, *range(9 - number, 10)])
            live = source.delete(live, vector)
            delvec_report = delvec.convert(spark, source.root, target)
        assert (delvec_report.mode, delvec_report.notes) == ("incremental", ())
    assert ids(spark, target) == [1, 2, 3, 4, 5, *LIVE[8:]]
    assert {"theirs", "aside"} <= branches(spark, target)
    properties = load_table(spark, table_name(spark, target)).metadata.properties
    assert properties["theirs"] == "1"


@pytest.mark.slow
def test_a_target_that_was_rolled_back_is_noticed_and_goes_on_from_there(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    name = target.removeprefix("lake.")
    old = delvec.convert(spark, source.root, target, version=1).snapshot_id
    delvec.convert(spark, source.root, target)
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {old})")
    assert len(ids(spark, target)) == 20
    plan = delvec.plan_conversion(spark, source.root, target)
    assert plan.start_version == 1
    assert any("rolled back from version 2 to 1" in note for note in plan.notes)
    assert plan.apply("rows").mode == "incremental"
    assert ids(spark, target) == LIVE
    assert delvec.convert(spark, source.root, target).notes == ()
    # Back to an older version of the source on purpose is no rollback.
    assert delvec.convert(spark, source.root, target, version=1).version == 1
    assert len(ids(spark, target)) == 20
    report = delvec.convert(spark, source.root, target)
    assert report.notes == ()
    assert ids(spark, target) == LIVE


def test_a_commit_of_somebody_elses_in_the_middle_is_not_lost(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    delvec.convert(spark, source.root, target, version=1)
    insert = before(lambda: spark.sql(f"INSERT INTO {target} VALUES (1000)"))
    with numbered({2: insert}), pytest.raises(PlanError, match="others have changed"):
        delvec.convert(spark, source.root, target)
    assert ids(spark, target) == [*range(20), 1000]
    assert branches(spark, target) == {"main"}
    delvec.convert(spark, source.root, target, version=1, foreign="overwrite")
    # One that changes no rows makes it begin again.
    name = target.removeprefix("lake.")
    tag = before(lambda: spark.sql(f"CALL lake.system.rewrite_manifests('{name}')"))
    with numbered({1: tag}):
        report = delvec.convert(spark, source.root, target)
    assert report.version == 2
    assert ids(spark, target) == LIVE
    assert branches(spark, target) == {"main"}


def test_two_first_conversions_at_once_leave_one_whole_table(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    other = before(lambda: delvec.convert(spark, source.root, target))
    for number in (1, 2):  # while the first stages, and before it publishes
        with numbered({number: other}):
            report = delvec.convert(spark, source.root, target)
        assert report.version == 2
        assert ids(spark, target) == LIVE
        assert branches(spark, target) == {"main"}
        spark.sql(f"DROP TABLE {target}")


@pytest.mark.more
def test_a_lost_race_for_a_new_target_leaves_no_branch_while_others_go_on_committing(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    """The third commit is to publish; by the seventh the loser removes its branch."""
    other = before(lambda: delvec.convert(spark, source.root, target))
    properties = f"ALTER TABLE {target} SET TBLPROPERTIES ('theirs' = '1')"
    more = before(lambda: spark.sql(properties))
    with numbered({2: other, 6: more}) as calls:
        report = delvec.convert(spark, source.root, target)
    assert calls.names[6:8] == ["commit", "commit"]
    assert report.version == 2
    assert ids(spark, target) == LIVE
    assert branches(spark, target) == {"main"}


@pytest.mark.more
def test_a_new_target_that_another_conversion_publishes_is_kept_by_one_that_fails(
    spark: SparkSession, source: TableBuilder, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apply.verify_counts

    def fail(*_: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(apply, "verify_counts", real)
        raise VerificationError("some difference")

    monkeypatch.setattr(apply, "verify_counts", fail)
    other = before(lambda: delvec.convert(spark, source.root, target))
    with numbered({2: other}) as calls, pytest.raises(VerificationError):
        delvec.convert(spark, source.root, target)
    assert "dropTable" not in calls.names
    assert ids(spark, target) == LIVE
    assert branches(spark, target) == {"main"}


@pytest.mark.more
def test_targets_that_do_not_fit_are_refused_as_they_are(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    spark.sql(f"CREATE TABLE {target} (id BIGINT) USING iceberg")
    for _ in range(2):  # empty, and with rows
        with pytest.raises(PlanError, match="was not made by a conversion") as refused:
            delvec.convert(spark, source.root, target, foreign="overwrite")
        assert refused.value.hint
        spark.sql(f"INSERT INTO {target} VALUES (1)")
    assert ids(spark, target) == [1, 1]
    spark.sql(f"DROP TABLE {target}")
    delvec.convert(spark, source.root, target, format_version=2)
    with pytest.raises(PlanError, match="has format 2, not 3"):
        delvec.convert(spark, source.root, target, format_version=3)
    assert delvec.convert(spark, source.root, target).format_version == 2


@pytest.mark.more
def test_a_target_in_its_source_or_around_it_is_refused(
    spark: SparkSession, source: TableBuilder
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.faults")
    name = f"sqlite.faults.t_{uuid4().hex[:8]}"
    root = source.root
    files = set(root.rglob("*"))
    for location in (root, root / "inside", f"file:{root}/inside", root.parent, f"file://{root}"):
        with pytest.raises(PlanError, match="overlaps with the source"):
            delvec.convert(spark, root, name, location=str(location))
        assert find_table(spark, table_name(spark, name)) is None
    assert set(root.rglob("*")) == files
    delvec.convert(spark, root, name, location=f"{root}-beside")
    assert ids(spark, name) == LIVE


# Damage.
def flipped(data: bytes) -> bytes:
    return data[:20] + bytes([data[20] ^ 1]) + data[21:]


def cut(data: bytes) -> bytes:
    return data[:-5]


def with_native_magic(data: bytes) -> bytes:
    """Say that the first vector is in Delta's native layout, checksum and all."""
    size = int.from_bytes(data[1:5], "big")
    payload = (1681511376).to_bytes(4, "little") + data[9 : 5 + size]
    return data[:5] + payload + zlib.crc32(payload).to_bytes(4, "big") + data[9 + size :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": flipped,
    "cut": cut,
    "native": with_native_magic,
}
FORGED: dict[str, dict[str, Any]] = {
    "long": {"sizeInBytes": 2**31 - 1},
    "short": {"sizeInBytes": 3},
    "far": {"offset": 2**31 - 1},
    "negative": {"offset": -1},
    "many rows": {"cardinality": 11},
    "one row more": {"cardinality": 3},
    "no rows": {"cardinality": 0},
    "elsewhere": {"storageType": "p", "pathOrInlineDv": "s3://nobody/x.bin"},
    "unknown kind": {"storageType": "x"},
}


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_vector_is_named_and_the_target_is_as_before(
    spark: SparkSession, source: TableBuilder, target: str, format_version: int, damage: str
) -> None:
    vectors = source.vector_path()
    vectors.write_bytes(DAMAGES[damage](vectors.read_bytes()))
    with pytest.raises(FormatError) as wrong:
        delvec.convert(spark, source.root, target, format_version=format_version)
    assert vectors.name in str(wrong.value)
    assert ("part-1" if damage == "cut" else "part-0") in str(wrong.value)
    assert nothing_of(spark, target)
    delvec.convert(spark, source.root, target, version=1, format_version=format_version)
    old, files = state(spark, target), files_below(spark, target)
    with pytest.raises(FormatError):
        delvec.convert(spark, source.root, target)
    assert (state(spark, target), files_below(spark, target)) == (old, files)
    assert branches(spark, target) == {"main"}


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("forged", slow_but({"long", "many rows", "one row more"}, FORGED))
def test_a_forged_descriptor_is_refused_before_anything_is_published(
    spark: SparkSession, source: TableBuilder, target: str, format_version: int, forged: str
) -> None:
    delvec.convert(spark, source.root, target, version=1, format_version=format_version)
    old, files = state(spark, target), files_below(spark, target)
    path = source.commit_path(2)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if action.get("add", {}).get("path") == "part-0.parquet":
            action["add"]["deletionVector"] |= FORGED[forged]
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(DelvecError, match=r"part-0\.parquet"):
        delvec.convert(spark, source.root, target)
    assert (state(spark, target), files_below(spark, target)) == (old, files)
    assert branches(spark, target) == {"main"}


# What the last check is for.
@pytest.mark.parametrize("format_version", BOTH)
def test_a_vector_that_gets_lost_on_the_way_is_missed(
    spark: SparkSession,
    source: TableBuilder,
    target: str,
    format_version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = file_json.delete_file_json

    def forgetful(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        return real(*arguments, **keywords)[1:]

    def never(*_: Any) -> None:  # noqa: ANN401
        """Trust the counts."""

    choices: dict[str, Any] = {"format_version": format_version}
    delvec.convert(spark, source.root, target, version=1, **choices)
    old = state(spark, target)
    with monkeypatch.context() as patch:
        patch.setattr(step_writer, "delete_file_json", forgetful)
        with pytest.raises(VerificationError) as missed:
            delvec.convert(spark, source.root, target)
        assert [file.rpartition("/")[2] for file in missed.value.files] == ["part-0.parquet"]
        assert "part-0.parquet" in str(missed.value)
        patch.setattr(apply, "verify_counts", never)
        with pytest.raises(VerificationError, match=r"part-0\.parquet") as missed:
            delvec.convert(spark, source.root, target, verify="rows")
        assert len(missed.value.files) == 1
        assert "18 rows" in str(missed.value.found)
        assert state(spark, target) == old
        assert branches(spark, target) == {"main"}
        with pytest.raises(VerificationError):
            delvec.convert(spark, source.root, f"{target}_new", verify="rows", **choices)
        assert state(spark, f"{target}_new") == (None, ())
        assert branches(spark, f"{target}_new") == set()
    delvec.convert(spark, source.root, target, verify="rows")
    assert ids(spark, target) == LIVE


def test_vectors_that_change_places_are_found_by_their_rows(
    spark: SparkSession, source: TableBuilder, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = repack.repack

    def confused(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        stored = real(*arguments, **keywords)
        assert stored.offsets is not None
        assert stored.lengths is not None
        return replace(stored, offsets=stored.offsets[::-1], lengths=stored.lengths[::-1])

    delvec.convert(spark, source.root, target, version=1)
    old = state(spark, target)
    monkeypatch.setattr(step_writer, "repack", confused)
    with pytest.raises(VerificationError) as wrong:
        delvec.convert(spark, source.root, target, verify="rows")
    assert sorted(file.rpartition("/")[2] for file in wrong.value.files) == [
        "part-0.parquet",
        "part-1.parquet",
    ]
    assert state(spark, target) == old
    assert branches(spark, target) == {"main"}


@pytest.mark.more
def test_columns_that_change_places_are_found_by_their_nulls(
    spark: SparkSession, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows (null, 5), (7, null) and (5, null), (null, 7) have the same hashes in Spark."""
    table = TableBuilder(tmp_path / "source", fields={"a": "long", "b": "long"})
    table.create()
    values = {"a": pa.array([None, 7], pa.int64()), "b": pa.array([5, None], pa.int64())}
    table.commit({"add": table.write_file("part-0.parquet", values)})
    real = target_properties.staged_properties

    def confused(*arguments: Any) -> dict[str, str]:  # noqa: ANN401
        key = "schema.name-mapping.default"
        properties = real(*arguments)
        first, second = json.loads(properties[key])
        first["names"], second["names"] = second["names"], first["names"]
        return {**properties, key: json.dumps([first, second])}

    monkeypatch.setattr(apply, "staged_properties", confused)
    with pytest.raises(VerificationError, match=r"part-0\.parquet"):
        delvec.convert(spark, table.root, target, verify="rows")
    assert spark.table(target).count() == 0


@pytest.mark.more
def test_tags_move_with_what_is_published_and_not_before(
    spark: SparkSession, source: TableBuilder, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = target.removeprefix("lake.")
    start = delvec.convert(spark, source.root, target, version=1, history="per-version")
    delvec.convert(spark, source.root, target, history="per-version")
    tagged = {f"delta-version-{version}" for version in range(3)}
    assert branches(spark, target) == {"main", *tagged}
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {start.snapshot_id})")
    real = file_json.delete_file_json

    def forgetful(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        return real(*arguments, **keywords)[1:]

    def looked() -> None:
        seen.append(ids(spark, target, "'delta-version-2'"))

    seen: list[list[int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(step_writer, "delete_file_json", forgetful)
        with numbered({2: before(looked)}), pytest.raises(VerificationError):
            delvec.convert(spark, source.root, target, history="per-version")
    assert seen == [LIVE]
    assert branches(spark, target) == {"main", *tagged}
    assert ids(spark, target, "'delta-version-2'") == LIVE


# What cannot be converted.
@pytest.mark.more
def test_new_partition_columns_are_refused_and_the_target_is_as_before(
    spark: SparkSession, source: TableBuilder, target: str
) -> None:
    delvec.convert(spark, source.root, target)
    old = state(spark, target)
    live = live_of(source)
    source.fields = {"id": "long", "p": "string"}
    source.partition_columns = ["p"]
    add = source.write_file("p=a/part-9.parquet", {"id": [1]}, {"p": "a"})
    gone = [{"remove": removed(each)} for each in live]
    source.commit({"metaData": source.metadata()}, *gone, {"add": add})
    for foreign in ("refuse", "overwrite"):
        with pytest.raises((PlanError, UnsupportedFeatureError), match="partition") as refused:
            delvec.convert(spark, source.root, target, foreign=foreign)
        assert refused.value.hint
    assert state(spark, target) == old
    delvec.convert(spark, source.root, f"{target}_new", verify="rows")
    assert ids(spark, f"{target}_new") == [1]


@pytest.mark.parametrize("kind", ["void", "interval day", "variant"])
def test_types_that_iceberg_has_not_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, target: str, kind: str
) -> None:
    table = TableBuilder(tmp_path / "source", fields={"id": "long", "strange": kind})
    if kind == "variant":
        for side in ("readerFeatures", "writerFeatures"):
            table.protocol[side].append("variantType")
    table.create()
    table.commit({"add": table.write_file("part-0.parquet", {"id": [1]})})
    with pytest.raises(UnsupportedFeatureError) as refused:
        delvec.convert(spark, table.root, target)
    assert "strange" in str(refused.value) or kind.split(maxsplit=1)[0] in str(refused.value)
    assert nothing_of(spark, target)


if __name__ == "__main__":
    _die_in(*sys.argv[1:])
