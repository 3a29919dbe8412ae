"""The inspection of Delta tables: what it says is what the log and the folder say."""

from __future__ import annotations

import os
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delvec import DeltaTable
from delvec.cli.exits import ExitCode
from delvec.delta.maintain.inspect import inspect as inspect_snapshot
from delvec.errors import InvalidArgumentError
from delvec.inspection.report import InspectReport
from delvec.vector import Descriptor
from tests.cli import runner
from tests.cli.runner import run_json
from tests.delta.builder import TableBuilder, removed
from tests.inspection.tables import partitioned_table

run = partial(runner.run, columns=80)


def inspect(root: Path, **arguments: Any) -> InspectReport:  # noqa: ANN401
    return DeltaTable.for_path(None, root).inspect(**arguments)


def test_figures_are_those_of_the_table(tmp_path: Path) -> None:
    _, adds = partitioned_table(tmp_path, days=("null", None, "x"))
    report = inspect(tmp_path)
    detail = DeltaTable.for_path(None, tmp_path).detail()
    assert (report.files, report.bytes, report.rows) == (detail.files, detail.bytes, 1200)
    assert (report.live_rows, report.vectors.rows) == (detail.rows, detail.deleted_rows)
    assert report.vectors.count == report.vectors.stored_in == detail.files_with_vectors == 6
    assert report.vectors.kinds == {"u": 6}
    vectors = [each["deletionVector"] for each in adds if "deletionVector" in each]
    assert report.vectors.bytes == sum(each["sizeInBytes"] for each in vectors)
    assert [(each.label, each.vectors) for each in report.vectors.ages] == [("under a day", 6)]
    assert report.version == detail.version
    assert (report.log.checkpoint, report.log.since_checkpoint) == (None, detail.version + 1)
    assert sum(each.files for each in report.sizes) == report.files
    assert not report.notes
    ranking = report.most_deleted
    assert [each.deleted for each in ranking.shown] == [30] * 3 + [10] * 3 + [0] * 6
    most = {each.name for each in ranking.shown[:3]}
    assert most == {f"day={place}/part-{place}-3.parquet" for place in range(3)}
    assert (ranking.rest, ranking.others) == (None, 0)
    shown = {(each.name, each.files, each.rows, each.deleted) for each in report.partitions.shown}
    assert shown == {(name, 4, 400, 40) for name in ("day='null'", "day=NULL", "day=x")}


def test_more_files_than_are_shown_are_summed_up(tmp_path: Path) -> None:
    partitioned_table(tmp_path, days=("a", "b", "c"), files=8)
    report = inspect(tmp_path)
    ranking = report.most_deleted
    assert ranking.rest is not None
    assert len(ranking.shown) + ranking.rest.files == report.files == 24
    all_of = [*ranking.shown, ranking.rest]
    assert sum(each.deleted for each in all_of) == 3 * 160
    assert sum(each.rows or 0 for each in all_of) == report.rows


def test_each_version_has_the_vectors_that_its_snapshot_has(tmp_path: Path) -> None:
    table, adds = partitioned_table(tmp_path)
    table.commit({"remove": removed(adds[1])})  # with its vector
    again = adds[3] | {"dataChange": False, "tags": {"a": "b"}}
    table.commit({"add": again})  # live already, as a recomputation of statistics leaves it
    table.checkpoint([each for each in adds if each is not adds[1]])
    table.commit({"add": adds[1]})  # back again, as a restore brings it
    target = DeltaTable.for_path(None, tmp_path)
    for limit in (100, 4, 2, 1):
        moments = target.inspect(history=limit).moments
        assert [each.at for each in moments] == list(range(table.version + 1))[-limit:]
        for each in moments:
            files = target.snapshot(each.at).files
            expected = (len(files), files.has_vector.sum(), files.deleted_rows.sum())
            assert (each.files, each.vectors, each.deleted) == expected


def test_a_vector_is_as_old_as_the_commit_that_brought_it(tmp_path: Path) -> None:
    partitioned_table(tmp_path)
    report = inspect(tmp_path, history=2)
    ages = {each.label: each.vectors for each in report.vectors.ages}
    assert ages == {"under a day": 2, "before the history that was read": 4}
    assert report.vectors.oldest_ms is None
    assert report.vectors.newest_ms == report.moments[-1].time_ms
    none = inspect(tmp_path, history=0)
    assert not none.moments
    assert none.vectors.newest_ms is None


def test_commits_that_are_there_are_counted(tmp_path: Path) -> None:
    table, adds = partitioned_table(tmp_path)
    log = inspect(tmp_path).log
    assert (log.versions, log.oldest) == (10, 0)
    assert (inspect(tmp_path, version=3).log.versions) == 4
    table.checkpoint(adds)
    table.drop_commits(0, 1, 2, 3)
    report = inspect(tmp_path)
    assert (report.log.versions, report.log.oldest) == (6, 4)
    assert [each.at for each in report.moments] == [4, 5, 6, 7, 8, 9]
    assert "6 commits from version 4 on, 0 since the checkpoint of version 9" in str(report)


def test_what_a_vacuum_would_free_now_and_later_is_there(tmp_path: Path) -> None:
    """Neither files that are gone already count, nor those of writers that have not committed."""
    table, adds = partitioned_table(tmp_path)
    plan = DeltaTable.for_path(None, tmp_path).vacuum(dry_run=True)
    assert (plan.bytes, plan.files.num_rows) == (1000, 1)
    for add in adds[:3]:
        table.commit({"remove": removed(add) | {"deletionTimestamp": 4_000_000_000_000}})
    (tmp_path / adds[1]["path"]).unlink()
    (tmp_path / "new.parquet").write_bytes(bytes(5000))
    vectors = Descriptor.from_json(adds[1]["deletionVector"]).file_path
    names: list[str] = [adds[0]["path"], adds[2]["path"], str(vectors)]
    expected = sum((tmp_path / name).stat().st_size for name in names)
    freed = inspect(tmp_path).freed
    assert (freed.later, freed.retention_hours) == (expected, 168)
    assert (freed.vacuum, freed.vacuum_files) == (plan.bytes, plan.files.num_rows)
    unlisted = inspect(tmp_path, listing=False)
    assert unlisted.freed.vacuum is None
    assert unlisted.freed.why_unknown == "the folder was not to be listed"
    assert f"{expected:,}" not in str(unlisted)


def test_a_vacuum_keeps_the_version_that_was_current_when_the_retention_began(
    tmp_path: Path,
) -> None:
    partitioned_table(tmp_path)
    now, commits = time.time(), sorted((tmp_path / "_delta_log").iterdir())
    old = tmp_path / "old.parquet"
    old.write_bytes(bytes(50_000))
    ages = {commit: 30 - 3 * version for version, commit in enumerate(commits)}
    for path, days in {**ages, old: 8}.items():  # the retention is 7 days
        os.utime(path, (now - days * 86_400,) * 2)
    freed = inspect(tmp_path).freed
    assert freed.first_kept == 7
    assert freed.first_kept_ms == pytest.approx((now - 9 * 86_400) * 1000, abs=2)
    [vacuum] = [each for each in inspect(tmp_path).advice if each.action == "vacuum"]
    assert "ends time travel to versions before 7" in vacuum.why


def test_a_purge_first_writes_and_a_vacuum_then_frees(tmp_path: Path) -> None:
    _, adds = partitioned_table(tmp_path)
    rewrite = inspect(tmp_path, listing=False).freed.rewrite
    with_vector = [each for each in adds if "deletionVector" in each]
    assert (rewrite.files, rewrite.replaced) == (6, sum(each["size"] for each in with_vector))
    kept = {each["path"]: 100 - each["deletionVector"]["cardinality"] for each in with_vector}
    live = sum(each["size"] * kept[each["path"]] // 100 for each in with_vector)
    assert rewrite.written == pytest.approx(live, abs=6)
    assert rewrite.freed == rewrite.replaced - rewrite.written


def test_no_object_is_made_for_a_file_that_is_not_named(tmp_path: Path) -> None:
    """Strings and numbers of Python for each file would take twice as much."""
    count = 20_000
    fields = {"id": "long", "day": "string"}
    table = TableBuilder(tmp_path, fields=fields, partition_columns=["day"])
    table.create()
    table.commit(*({"add": _add_without_file(place)} for place in range(count)))
    snapshot = DeltaTable.for_path(None, tmp_path).snapshot()
    inspect_snapshot(snapshot, listing=False, history=0)  # what the snapshot itself keeps
    tracemalloc.start()
    report = inspect_snapshot(snapshot, listing=False, history=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak / count < 110
    small = report.small_files
    assert (report.files, small.before, small.after) == (count, count, 2000)
    assert (len(report.partitions.shown), report.partitions.others) == (20, 1980)


def _add_without_file(place: int) -> dict[str, Any]:
    return {
        "path": f"part-{place:08}-2bc940f0-dd3c-461d-8869-a8d7c3ab4a3b.parquet",
        "partitionValues": {"day": f"day {place % 2000}"},
        "size": 1_000_000,
        "modificationTime": 1_700_000_000_000 + place,
        "dataChange": True,
        "stats": '{"numRecords": 1000}',
    }


def test_why_nothing_is_known_of_a_vacuum_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, properties={"delta.deletedFileRetentionDuration": "soon"})
    table.create()
    report = inspect(tmp_path)
    assert report.freed.vacuum is None
    assert report.freed.why_unknown == "delta.deletedFileRetentionDuration is not an interval"
    table.protocol["writerFeatures"] = ["deletionVectors", "featureOfTheFuture"]
    table.properties = {}
    table.commit({"protocol": table.protocol}, {"metaData": table.metadata()})
    report = inspect(tmp_path)
    assert report.freed.vacuum is None
    assert "featureOfTheFuture" in (report.freed.why_unknown or "")
    assert "0 live, 0 deleted (0.0 %)" in str(report)
    assert "nothing: no limit is passed" in str(report)
    with pytest.raises(InvalidArgumentError, match="history is a number of commits"):
        inspect(tmp_path, history=-1)


def test_a_table_that_delvec_does_not_write_gets_a_note_in_place_of_advice(tmp_path: Path) -> None:
    table, _ = partitioned_table(tmp_path)
    assert [each.action for each in inspect(tmp_path).advice] == ["purge"]
    table.protocol["writerFeatures"] = ["deletionVectors", "featureOfTheFuture"]
    table.commit({"protocol": table.protocol})
    report = inspect(tmp_path)
    assert report.advice == ()
    [note] = report.notes
    assert note.startswith("purge would be next, but is refused:")
    assert "featureOfTheFuture" in note


def test_files_without_statistics_are_not_guessed(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    table.create()
    add = table.write_file("a.parquet", {"id": [1, 2, 3]})
    del add["stats"]
    [vector] = table.write_vectors([0])
    table.commit({"add": add | {"deletionVector": vector}})
    report = inspect(tmp_path)
    assert (report.rows, report.live_rows, report.vectors.rows) == (None, None, 1)
    assert "no row count of 1 file" in report.notes[0]
    assert "1 of an unknown number" in str(report)
    assert "of a number that is not known" in report.to_html()


def test_an_older_version_is_described_and_gets_no_advice(tmp_path: Path) -> None:
    partitioned_table(tmp_path)
    report = inspect(tmp_path, version=3)
    assert (report.version, report.is_newest, report.vectors.count) == (3, False, 0)
    assert not report.advice
    assert "What to run next" not in str(report) + report.to_html()
    newest = inspect(tmp_path, version=9)
    assert newest.is_newest
    assert newest.advice


def test_the_command_shows_a_page_of_text(tmp_path: Path) -> None:
    root, page = tmp_path / "orders", tmp_path / "page.html"
    partitioned_table(root)
    output = run("inspect", root, "--html", page, code=0).output
    for text in (
        *("1,080 live, 120 deleted (10.0 %)", "12 data files"),
        *("6 by relative path (u) in 6 files", "part-0-3.parquet  ████▊             30.0 %  30"),
        *("… and 6 files without deleted rows", "1. purge: 10.0 % of the rows are deleted, more"),
    ):
        assert text in output
    assert f"delvec purge {root}" in " ".join(output.replace("\\\n", "").split())
    assert "page.html" in output.replace("\n", "")
    assert page.read_text().startswith("<!doctype html>")
    assert max(len(each.replace(str(tmp_path), "")) for each in output.splitlines()) <= 80
    document = run_json("inspect", root, "--version", "3", "--no-listing", "--history", "2")
    assert (document["version"], document["freed"]["vacuum"]) == (3, None)
    assert [each["at"] for each in document["moments"]] == [2, 3]
    assert "html" not in document


def test_the_command_refuses_what_does_not_go_together(tmp_path: Path) -> None:
    partitioned_table(tmp_path)
    vector = next(tmp_path.glob("*.bin"))
    for arguments, told in (
        ((tmp_path, "--snapshot-id", "5"), "--snapshot-id is for an Iceberg table"),
        ((vector, "--html", "x.html"), "--html is for a table, and this is a file"),
        ((tmp_path, "--html", tmp_path / "none" / "page.html"), "cannot be written"),
    ):
        assert told in run("inspect", *arguments, code=ExitCode.USAGE).output
