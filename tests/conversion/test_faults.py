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
from delvec.conversion import apply, step_writer
from delvec.conversion import apply as target_properties
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
from delvec.iceberg.client.catalog import find_table, table_name
from delvec.iceberg.commit import publish as commit
from tests.conversion.targets import Killed, Pair, before, ids, numbered
from tests.delta.builder import TableBuilder, removed
from tests.marks import slow_but
from tests.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

LIVE = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17, 18, 19]
BOTH = [3, pytest.param(2, marks=pytest.mark.slow)]


def nothing_of(spark: SparkSession, target: str) -> bool:
    """Tell whether no table and no file is left of a target in the catalog of folders."""
    name = table_name(spark, target)
    folder = Path(spark.conf.get("spark.sql.catalog.lake.warehouse") or "", *name.namespace)
    left = [path for path in (folder / name.table).rglob("*") if path.is_file()]
    return find_table(spark, name) is None and left == []


def is_refused_as_before(pair: Pair, error: type[DelvecError], match: str | None = None) -> None:
    """Convert, which has to fail and to leave neither rows nor files nor branches."""
    old, files = pair.state(), pair.files()
    with pytest.raises(error, match=match):
        pair.convert()
    assert (pair.state(), pair.files(), pair.refs()) == (old, files, {"main"})


# Killed. Before a call all is as after the one before it, so one of the two does each time.
WHEN = ["after", pytest.param("before", marks=pytest.mark.slow)]


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("when", WHEN)
def test_a_first_conversion_that_is_killed_anywhere_is_made_good_by_the_next(
    pair: Pair, format_version: int, when: str
) -> None:
    with numbered() as calls:
        pair.convert(format_version=format_version)
    assert calls.names == ["write"] * (4 - format_version) + ["commit", "commit"]
    first = calls.names.index("commit")
    for number in range(len(calls.names)):
        pair.sql("DROP TABLE {t}")
        with numbered(kill=(number, when)), pytest.raises(Killed):
            pair.convert(format_version=format_version)
        found = pair.state()
        is_last = (number, when) == (len(calls.names) - 1, "after")
        assert (found is not None and found[1] == tuple(LIVE)) == is_last
        is_early = number < first or (number, when) == (first, "before")
        assert (found is None) == is_early
        report = pair.convert(format_version=format_version)
        assert report.mode == ("none" if is_last else "full")
        assert pair.ids() == LIVE
        assert len(pair.delete_paths()) == 2


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("when", WHEN)
def test_an_increment_killed_anywhere_is_made_good(
    pair: Pair, format_version: int, when: str
) -> None:
    pair.convert(format_version=format_version)
    names = ["write", "commit", "commit"]
    for number in range(len(names)):
        pair.delete(1, range(3, 5 + number))
        old = pair.state()
        with numbered(kill=(number, when)) as dying, pytest.raises(Killed):
            pair.convert()
        assert dying.names == names[: number + 1]
        expected = sorted({*range(1, 9), *range(10, 20)} - set(range(13, 15 + number)))
        found = pair.state()
        assert found is not None
        is_last = (number, when) == (2, "after")
        assert (found[1] == tuple(expected)) if is_last else (found == old)
        pair.convert()
        assert pair.ids() == expected
        assert len(pair.delete_paths()) == 2
    # Branches of the dead stay for a day, in which nobody reads them.
    assert len([name for name in pair.refs() if name.startswith("delvec-convert-")]) == 1


@pytest.mark.more
def test_branches_of_the_dead_go_after_a_day(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.convert(version=1)
    with numbered(kill=(2, "before")), pytest.raises(Killed):
        pair.convert()
    [dead] = pair.refs() - {"main"}
    real = commit.stage

    def staged_late(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        staged = real(*arguments, **named)
        metadata = staged.table.metadata
        own = metadata.snapshots[staged.snapshot_id]
        late = replace(own, timestamp_ms=own.timestamp_ms + 25 * 3600 * 1000)
        metadata = replace(metadata, snapshots={**metadata.snapshots, own.id: late})
        return replace(staged, table=replace(staged.table, metadata=metadata))

    monkeypatch.setattr(apply, "stage", staged_late)
    pair.convert()
    assert dead not in pair.refs()
    assert pair.ids() == LIVE


@pytest.mark.more
@pytest.mark.parametrize("history", ["latest", pytest.param("per-version", marks=pytest.mark.slow)])
def test_an_interrupt_tidies_up_what_no_commit_refers_to(pair: Pair, history: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def after_interrupt(call: Callable[[], Any]) -> None:
        call()
        raise KeyboardInterrupt

    for act in (before(interrupt), after_interrupt):
        with numbered({0: act}), pytest.raises(KeyboardInterrupt):
            pair.convert(history=history)
        assert nothing_of(pair.spark, pair.target) or history == "per-version"
        assert pair.table() is None
    pair.convert(history=history)
    assert pair.ids() == LIVE


@pytest.mark.slow
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_process_that_is_killed_leaves_a_target_to_go_on_from(pair: Pair, call: int) -> None:
    pair.convert(version=1)
    old = pair.state()
    warehouse = pair.spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
    arguments = [str(pair.source.root), pair.target, warehouse, str(call)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.conversion.test_faults", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    found = pair.state()
    assert found is not None
    assert (found[1] == tuple(LIVE)) if call == 2 else (found == old)
    pair.convert(verify="rows")
    assert pair.ids() == LIVE


def _die_in(path: str, target: str, warehouse: str, call: str) -> None:
    """Convert, and die after a call."""
    conf = {"spark.driver.memory": "512m", "spark.ui.enabled": "false"}
    spark = delvec.session(warehouse, master="local[1]", conf=conf)

    def die(real: Callable[[], Any]) -> None:
        real()
        os.killpg(os.getpgid(0), signal.SIGKILL)

    with numbered({int(call): die}):
        delvec.convert(spark, path, target)


# The source changes meanwhile.
@pytest.mark.more
@pytest.mark.parametrize("format_version", [2, 3])
def test_a_vector_that_vacuum_removes_meanwhile_is_named_and_the_target_is_as_before(
    pair: Pair, format_version: int
) -> None:
    plan = pair.plan(format_version=format_version)
    vectors = pair.source.vector_path()
    kept = vectors.read_bytes()
    vectors.unlink()
    with pytest.raises(ObjectNotFoundError) as missing:
        plan.apply()
    for part in ("part-0.parquet", vectors.name):
        assert part in str(missing.value)
    assert nothing_of(pair.spark, pair.target)

    pair.convert(version=1, format_version=format_version)
    plan = pair.plan()
    old, files = pair.state(), pair.files()
    with pytest.raises(ObjectNotFoundError, match=vectors.name):
        plan.apply()
    assert (pair.state(), pair.files(), pair.refs()) == (old, files, {"main"})
    vectors.write_bytes(kept)
    assert plan.apply().version == 2
    assert pair.ids() == LIVE


@pytest.mark.slow
def test_a_data_file_that_vacuum_removes_meanwhile_is_found_when_rows_are_verified(
    pair: Pair,
) -> None:
    data = pair.source.root / "part-1.parquet"
    kept = data.read_bytes()
    for is_new in (True, False):
        if not is_new:
            pair.convert(version=1)
        old = (None, ()) if is_new else pair.state()
        plan = pair.plan()
        data.unlink()
        with pytest.raises(StorageError, match=r"part-1\.parquet"):
            plan.apply(verify="rows")
        data.write_bytes(kept)
        assert pair.state() == old
    assert pair.refs() == {"main"}
    assert plan.apply(verify="rows").verified == "rows"
    assert pair.ids() == LIVE


def test_a_plan_is_carried_out_as_it_was_made_and_once(pair: Pair) -> None:
    first, live = pair.plan(), pair.live[0]
    pair.source.commit({"remove": removed(live)})
    pair.delete(1, range(10))
    assert first.apply().version == 2
    assert pair.ids() == LIVE
    with pytest.raises((ConflictError, PlanError)):
        first.apply()
    assert pair.ids() == LIVE
    second = pair.plan(version=3)
    pair.source.commit({"add": live})
    assert second.apply().version == 3
    old = pair.state()
    with pytest.raises((ConflictError, PlanError)):
        second.apply()
    assert pair.state() == old
    assert pair.ids() == [10, 11, 12, 15, 16, 17, 18, 19]
    assert pair.refs() == {"main"}


# Others change the target.
@pytest.mark.parametrize("format_version", BOTH)
def test_rows_that_others_changed_are_refused_or_taken_back(
    pair: Pair, format_version: int
) -> None:
    pair.convert(format_version=format_version)
    pair.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    for statement in ("INSERT INTO {t} VALUES (1000)", "DELETE FROM {t} WHERE id IN (1, 10)"):
        pair.sql(statement)
        changed = pair.state()
        with pytest.raises(PlanError, match="others have changed files") as refused:
            pair.convert()
        assert "foreign='overwrite'" in str(refused.value.hint)
        assert pair.state() == changed
        report = pair.convert(foreign="overwrite")
        assert report.mode == "full"
        assert "taken back" in report.notes[0]
        assert pair.ids() == LIVE
        assert len(pair.delete_paths()) == 2
    assert pair.convert().mode == "none"


@pytest.mark.slow
def test_commits_of_others_that_leave_the_rows_alone_are_in_nobodys_way(pair: Pair) -> None:
    pair.convert(version=1)
    statements = (
        "CALL lake.system.rewrite_manifests('{n}')",
        "ALTER TABLE {t} CREATE TAG theirs",
        "ALTER TABLE {t} SET TBLPROPERTIES ('theirs' = '1')",
        "ALTER TABLE {t} CREATE BRANCH aside",
    )
    for number, statement in enumerate(statements):
        pair.sql(statement)
        if number:
            pair.delete(0, [0, *range(9 - number, 10)])
        report = pair.convert()
        assert (report.mode, report.notes) == ("incremental", ())
    assert pair.ids() == [1, 2, 3, 4, 5, *LIVE[8:]]
    assert {"theirs", "aside"} <= pair.refs()
    assert pair.metadata().properties["theirs"] == "1"


@pytest.mark.slow
def test_a_target_that_was_rolled_back_is_noticed_and_goes_on_from_there(pair: Pair) -> None:
    old = pair.convert(version=1).snapshot_id
    pair.convert()
    pair.sql(f"CALL lake.system.rollback_to_snapshot('{{n}}', {old})")
    assert len(pair.ids()) == 20
    plan = pair.plan()
    assert plan.start_version == 1
    assert any("rolled back from version 2 to 1" in note for note in plan.notes)
    assert plan.apply("rows").mode == "incremental"
    assert pair.ids() == LIVE
    assert pair.convert().notes == ()
    # Back to an older version of the source on purpose is no rollback.
    assert pair.convert(version=1).version == 1
    assert len(pair.ids()) == 20
    assert pair.convert().notes == ()
    assert pair.ids() == LIVE


def test_a_commit_of_somebody_elses_in_the_middle_is_not_lost(pair: Pair) -> None:
    pair.convert(version=1)
    insert = before(lambda: pair.sql("INSERT INTO {t} VALUES (1000)"))
    with numbered({2: insert}), pytest.raises(PlanError, match="others have changed"):
        pair.convert()
    assert pair.ids() == [*range(20), 1000]
    assert pair.refs() == {"main"}
    pair.convert(version=1, foreign="overwrite")
    # One that changes no rows makes it begin again.
    with numbered({1: before(lambda: pair.sql("CALL lake.system.rewrite_manifests('{n}')"))}):
        assert pair.convert().version == 2
    assert pair.ids() == LIVE
    assert pair.refs() == {"main"}


@pytest.mark.parametrize("at", [1, 2, pytest.param(6, marks=pytest.mark.more)])
def test_two_first_conversions_at_once_leave_one_whole_table(pair: Pair, at: int) -> None:
    """The first stages by its second commit and publishes by the third.

    By the seventh the loser removes its branch, and others may go on committing.
    """
    acts = {min(at, 2): before(pair.convert)}
    if at == 6:
        properties = "ALTER TABLE {t} SET TBLPROPERTIES ('theirs' = '1')"
        acts[6] = before(lambda: pair.sql(properties))
    with numbered(acts) as calls:
        assert pair.convert().version == 2
    if at == 6:
        assert calls.names[6:8] == ["commit", "commit"]
    assert pair.ids() == LIVE
    assert pair.refs() == {"main"}


@pytest.mark.more
def test_a_new_target_that_another_conversion_publishes_is_kept_by_one_that_fails(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apply.verify_counts

    def fail(*_: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(apply, "verify_counts", real)
        raise VerificationError("some difference")

    monkeypatch.setattr(apply, "verify_counts", fail)
    with numbered({2: before(pair.convert)}) as calls, pytest.raises(VerificationError):
        pair.convert()
    assert "dropTable" not in calls.names
    assert pair.ids() == LIVE
    assert pair.refs() == {"main"}


@pytest.mark.more
def test_targets_that_do_not_fit_are_refused_as_they_are(pair: Pair) -> None:
    pair.sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    for _ in range(2):  # empty, and with rows
        with pytest.raises(PlanError, match="was not made by a conversion") as refused:
            pair.convert(foreign="overwrite")
        assert refused.value.hint
        pair.sql("INSERT INTO {t} VALUES (1)")
    assert pair.ids() == [1, 1]
    pair.sql("DROP TABLE {t}")
    pair.convert(format_version=2)
    with pytest.raises(PlanError, match="has format 2, not 3"):
        pair.convert(format_version=3)
    assert pair.convert().format_version == 2


@pytest.mark.more
def test_a_target_in_its_source_or_around_it_is_refused(pair: Pair) -> None:
    pair.spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.faults")
    pair = replace(pair, target=f"sqlite.faults.t_{uuid4().hex[:8]}")
    root = pair.source.root
    files = set(root.rglob("*"))
    for location in (root, root / "inside", f"file:{root}/inside", root.parent, f"file://{root}"):
        with pytest.raises(PlanError, match="overlaps with the source"):
            pair.convert(location=str(location))
        assert pair.table() is None
    assert set(root.rglob("*")) == files
    pair.convert(location=f"{root}-beside")
    assert pair.ids() == LIVE


# Damage.
def with_native_magic(data: bytes) -> bytes:
    """Say that the first vector is in Delta's native layout, checksum and all."""
    size = int.from_bytes(data[1:5], "big")
    payload = (1681511376).to_bytes(4, "little") + data[9 : 5 + size]
    return data[:5] + payload + zlib.crc32(payload).to_bytes(4, "big") + data[9 + size :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "cut": lambda data: data[:-5],
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
def test_a_damaged_vector_is_named_and_changes_nothing(
    pair: Pair, format_version: int, damage: str
) -> None:
    vectors = pair.source.vector_path()
    vectors.write_bytes(DAMAGES[damage](vectors.read_bytes()))
    with pytest.raises(FormatError) as wrong:
        pair.convert(format_version=format_version)
    assert vectors.name in str(wrong.value)
    assert ("part-1" if damage == "cut" else "part-0") in str(wrong.value)
    assert nothing_of(pair.spark, pair.target)
    pair.convert(version=1, format_version=format_version)
    is_refused_as_before(pair, FormatError)


@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("forged", slow_but({"long", "many rows", "one row more"}, FORGED))
def test_a_forged_descriptor_is_refused_before_anything_is_published(
    pair: Pair, format_version: int, forged: str
) -> None:
    pair.convert(version=1, format_version=format_version)
    path = pair.source.commit_path(2)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if action.get("add", {}).get("path") == "part-0.parquet":
            action["add"]["deletionVector"] |= FORGED[forged]
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    is_refused_as_before(pair, DelvecError, r"part-0\.parquet")


# What the last check is for.
def forgetful(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Describe all delete files but the first."""
    return file_json.delete_file_json(*arguments, **keywords)[1:]


@pytest.mark.parametrize("format_version", BOTH)
def test_a_vector_that_gets_lost_on_the_way_is_missed(
    pair: Pair, format_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.convert(version=1, format_version=format_version)
    old, new = pair.state(), replace(pair, target=f"{pair.target}_new")
    with monkeypatch.context() as patch:
        patch.setattr(step_writer, "delete_file_json", forgetful)
        with pytest.raises(VerificationError) as missed:
            pair.convert()
        assert [file.rpartition("/")[2] for file in missed.value.files] == ["part-0.parquet"]
        assert "part-0.parquet" in str(missed.value)
        patch.setattr(apply, "verify_counts", lambda *_: None)
        with pytest.raises(VerificationError, match=r"part-0\.parquet") as missed:
            pair.convert(verify="rows")
        assert len(missed.value.files) == 1
        assert "18 rows" in str(missed.value.found)
        assert (pair.state(), pair.refs()) == (old, {"main"})
        with pytest.raises(VerificationError):
            new.convert(verify="rows", format_version=format_version)
        assert (new.state(), new.refs()) == ((None, ()), set())
    pair.convert(verify="rows")
    assert pair.ids() == LIVE


def test_swapped_vectors_are_found_by_their_rows(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = repack.repack

    def confused(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        stored = real(*arguments, **keywords)
        assert stored.offsets is not None
        assert stored.lengths is not None
        return replace(stored, offsets=stored.offsets[::-1], lengths=stored.lengths[::-1])

    pair.convert(version=1)
    old = pair.state()
    monkeypatch.setattr(step_writer, "repack", confused)
    with pytest.raises(VerificationError) as wrong:
        pair.convert(verify="rows")
    names = sorted(file.rpartition("/")[2] for file in wrong.value.files)
    assert names == ["part-0.parquet", "part-1.parquet"]
    assert (pair.state(), pair.refs()) == (old, {"main"})


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
def test_tags_move_with_what_is_published(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    start = pair.convert(version=1, history="per-version")
    pair.convert(history="per-version")
    refs = {"main", *(f"delta-version-{version}" for version in range(3))}
    assert pair.refs() == refs
    pair.sql(f"CALL lake.system.rollback_to_snapshot('{{n}}', {start.snapshot_id})")
    seen: list[list[int]] = []
    looked = before(lambda: seen.append(pair.ids("'delta-version-2'")))
    with monkeypatch.context() as patch:
        patch.setattr(step_writer, "delete_file_json", forgetful)
        with numbered({2: looked}), pytest.raises(VerificationError):
            pair.convert(history="per-version")
    assert [*seen, pair.ids("'delta-version-2'")] == [LIVE, LIVE]
    assert pair.refs() == refs


# What cannot be converted.
@pytest.mark.more
def test_new_partition_columns_are_refused_and_the_target_is_as_before(pair: Pair) -> None:
    pair.convert()
    old, source = pair.state(), pair.source
    source.fields = {"id": "long", "p": "string"}
    source.partition_columns = ["p"]
    add = source.write_file("p=a/part-9.parquet", {"id": [1]}, {"p": "a"})
    gone = [{"remove": removed(each)} for each in pair.live]
    source.commit({"metaData": source.metadata()}, *gone, {"add": add})
    for foreign in ("refuse", "overwrite"):
        with pytest.raises((PlanError, UnsupportedFeatureError), match="partition") as refused:
            pair.convert(foreign=foreign)
        assert refused.value.hint
    assert pair.state() == old
    delvec.convert(pair.spark, source.root, f"{pair.target}_new", verify="rows")
    assert ids(pair.spark, f"{pair.target}_new") == [1]


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
