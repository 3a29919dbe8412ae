"""VACUUM on tables written by hand and by deltalake: what goes, what stays, what the log tells."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import QueryBuilder, write_deltalake

from delvec import DeltaTable
from delvec.delta.vacuum import vacuum as deletion
from delvec.delta.vacuum.vacuum import VacuumOptions, VacuumReport, vacuum
from delvec.delta.write.change import Change
from delvec.delta.write.transaction import Outcome
from delvec.errors import FormatError, InvalidArgumentError, StorageError, UnsupportedFeatureError
from delvec.storage.disk import Disk
from delvec.vector import descriptor as z85
from tests.delta.builder import TableBuilder, removed, small_table, table_with
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import DAY, age, days_ago, files_of, tombstone
from tests.delta.write.write_checks import ids

Action = dict[str, Any]

# Row 3 is deleted, in the padding of delta-spark and in that of delta-rs.
INLINE = [
    {
        "storageType": "i",
        "pathOrInlineDv": f"^Bg9^0rr910000000000iXQKl0rr91000005c8Xg{tail}",
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    for tail in ("0@@r3", "##093")
]


def table_of(root: Path, files: int, **options: Any) -> tuple[TableBuilder, list[Action]]:  # noqa: ANN401
    """A table of files with ten rows each, all added in version 1."""
    ids_of_files = ({"id": range(10 * number, 10 * number + 10)} for number in range(files))
    return table_with(root, *ids_of_files, **options)


def expired_of(
    root: Path,
    files: int,
    gone: Sequence[int] = (1,),
    **options: Any,  # noqa: ANN401
) -> tuple[TableBuilder, list[Action]]:
    """Such a table of which some files were removed 30 days ago, as old as all the others are."""
    table, adds = table_of(root, files, **options)
    table.commit(*(tombstone(adds[number], 30) for number in gone))
    age(root, 30, log=True)
    return table, adds


def marked(add: Action, vector: Action) -> Action:
    stats = '{"numRecords": 10, "tightBounds": false}'
    return add | {"deletionVector": vector, "stats": stats}


def absolute(table: TableBuilder, vector: Action, spelling: str) -> Action:
    """A vector of the form `u` in the form `p`, in a file of another name inside the table."""
    number = len(list(table.root.rglob("own*.bin")))
    name = f"my vectors/own-{number}.bin"
    target = table.root / name
    target.parent.mkdir(exist_ok=True)
    path = z85.decode(vector["pathOrInlineDv"][-20:], 16)
    (table.root / f"deletion_vector_{UUID(bytes=path)}.bin").rename(target)
    text = spelling.format(quote(str(target)))
    return vector | {"storageType": "p", "pathOrInlineDv": text}


def all_forms(table: TableBuilder) -> list[Action]:
    """Vectors that delete row 3: relative, with a folder, absolute in three spellings, inline."""
    [plain] = table.write_vectors([3])
    [prefixed] = table.write_vectors([3], prefix="ab")
    own = [
        absolute(table, table.write_vectors([3])[0], spelling)
        for spelling in ("file://{}", "file:{}", "{}")
    ]
    return [plain, prefixed, *own, *INLINE]


def operations(root: Path) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Operation, parameters and metrics of the commits, but for those of the builder."""
    infos = [actions[0]["commitInfo"] for actions in commits(root)]
    return [
        (info["operation"], info["operationParameters"], info["operationMetrics"])
        for info in infos
        if info["operation"] != "TEST"
    ]


def test_live_vectors_of_every_form_stay(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 7)
    live = [marked(a, v) for a, v in zip(adds, all_forms(table), strict=True)]
    table.commit(*(tombstone(add, 30) for add in adds), *({"add": add} for add in live))
    age(table.root, 30, log=True)
    before, files = ids(table.root), files_of(table.root)
    assert len(before) == 63
    report = table.handle.vacuum()
    assert (report.files_deleted, report.files_kept) == (0, 7 + 5)
    assert (files_of(table.root), ids(table.root)) == (files, before)
    # Time travel to before the deletes works as well: the data files are live.
    assert ids(table.root, 1) == list(range(70))


def test_vectors_of_tombstones_stay_within_the_retention_and_go_after_it(tmp_path: Path) -> None:
    for name, days in (("young", 6), ("old", 8)):
        table, adds = table_of(tmp_path / name, 8)
        live = [marked(a, v) for a, v in zip(adds[:7], all_forms(table), strict=True)]
        table.commit(*(tombstone(add, 30) for add in adds[:7]), *({"add": add} for add in live))
        table.commit(*(tombstone(add, days) for add in live))
        age(table.root, 30, log=True)
        before, deleted = ids(table.root, 2), files_of(table.root)
        report = table.handle.vacuum()
        assert ids(table.root) == list(range(70, 80))
        if name == "young":
            assert (report.files_deleted, ids(table.root, 2)) == (0, before)
        else:
            assert deleted - files_of(table.root) == deleted - {"part-7.parquet"}
            assert report.files_deleted == 7 + 5
            assert report.kinds == {"data file": 7, "other file": 3, "vector file": 2}
            assert not (table.root / "my vectors").exists()
            assert report.folders_removed == 2


def test_a_shared_vector_file_stays_for_the_last_that_needs_it(tmp_path: Path) -> None:
    table, live = small_table(tmp_path / "t")
    name = table.vector_path().name
    handle = table.handle
    table.commit(tombstone(live[0], 30))
    age(table.root, 30, log=True)
    assert (handle.vacuum().files_deleted, files_of(table.root)) == (1, {"part-1.parquet", name})
    assert ids(table.root) == [10, 11, 12, 15, 16, 17, 18, 19]
    table.version = handle.version
    table.commit(tombstone(live[1], 6))
    assert handle.vacuum().files_deleted == 0
    table.commit({"add": live[1]}, tombstone(marked(live[1], INLINE[0]), None))
    table.version = handle.version
    table.commit(tombstone(live[1], 8))
    assert (handle.vacuum().files_deleted, files_of(table.root)) == (2, set())


def test_deltalakes_full_vacuum_destroys_live_vectors_and_ours_does_not(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path / "t")
    age(table.root, 30, log=True)
    before = ids(table.root)
    shutil.copytree(table.root, tmp_path / "copy")
    table.handle.vacuum()
    assert ids(table.root) == before
    found = QueryBuilder().register("t", Peer(str(table.root))).execute("select id from t")
    assert sorted(pa.table(found.read_all()).column("id").to_pylist()) == before
    # If this fails, deltalake has been mended.
    deleted = Peer(str(tmp_path / "copy")).vacuum(dry_run=True, full=True)
    assert [name for name in deleted if name.endswith(".bin")] == [table.vector_path().name]


def test_tombstones_of_a_checkpoint_count(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 3)
    [vector] = table.write_vectors([3])
    young = marked(adds[1], vector)
    table.commit({"remove": removed(adds[1])}, {"add": young}, tombstone(adds[2], None))
    table.commit(tombstone(young, 6))
    age(table.root, 30, log=True)
    handle = table.handle
    handle.checkpoint()
    assert handle.vacuum().files_deleted == 1
    assert files_of(table.root) == {"part-0.parquet", "part-1.parquet", table.vector_path().name}
    assert ids(table.root, 2) == [*range(13), *range(14, 20)]


def test_only_the_newest_word_on_a_file_counts(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    table.commit(*(tombstone(add, 30) for add in adds))
    table.add(adds[0])  # as a RESTORE
    age(table.root, 30, log=True)
    table.handle.vacuum()
    assert files_of(table.root) == {"part-0.parquet"}


def test_young_files_stay_whoever_wrote_them(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    table.commit(tombstone(adds[1], 30))
    (table.root / "uncommitted.parquet").write_bytes(b"x")
    report = table.handle.vacuum()
    assert (report.files_deleted, report.files_young, report.files_kept) == (0, 2, 1)


def test_hidden_names_stay_and_foreign_files_go(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    kept = [
        "_tmp/x.parquet",
        "a/_tmp/x.parquet",
        ".x/y/z.parquet",
        "a/.part-0.parquet.crc",
        "_SUCCESS",
        "_symlink_format_manifest/manifest",
        "_delta_index/x",
    ]
    foreign = ["a/x.parquet", "a/b/c/y.txt", "README.md", "a b/ü%20#1?.parquet", "metadata/x.avro"]
    for name in [*kept, *foreign]:
        (table.root / name).parent.mkdir(parents=True, exist_ok=True)
        (table.root / name).write_bytes(b"x")
    (table.root / "empty/er").mkdir(parents=True)
    (table.root / "_hidden/empty").mkdir(parents=True)
    age(table.root, 8)
    report = table.handle.vacuum()
    assert (files_of(table.root), report.files_deleted) == ({*kept, "part-0.parquet"}, len(foreign))
    assert sorted(report.files["path"].to_pylist()) == sorted(foreign)
    # `a` still has hidden files.
    left = {str(p.relative_to(table.root)) for p in table.root.iterdir() if p.is_dir()}
    folders = {"_delta_log", "_tmp", "a", ".x", "_hidden"}
    assert left == folders | {name.split("/")[0] for name in kept[5:]}
    assert (table.root / "_hidden/empty").is_dir()


def test_iceberg_metadata_of_the_table_itself_stays(tmp_path: Path) -> None:
    properties = {"delta.universalFormat.enabledFormats": "iceberg"}
    table, _ = table_of(tmp_path / "t", 1, properties=properties)
    (table.root / "metadata").mkdir()
    (table.root / "metadata/x.avro").write_bytes(b"x")
    age(table.root, 8)
    assert table.handle.vacuum(dry_run=True).files.num_rows == 0


@pytest.mark.parametrize("depth", ["", "deep/er/and/deeper/"])
def test_other_tables_inside_are_left_alone(tmp_path: Path, depth: str) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    small_table(table.root / f"{depth}inner")
    for name in (
        *("ice/metadata/v1.metadata.json", "ice/data/1.parquet"),
        *("gz/metadata/v1.metadata.json.gz", "gz/data/1.parquet"),
    ):
        path = table.root / depth / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"{}")
    (table.root / "orphan.parquet").write_bytes(b"x")
    age(table.root, 30, log=True)
    before = files_of(table.root)
    report = table.handle.vacuum()
    assert before - files_of(table.root) == {"orphan.parquet"}
    inner = ", ".join(f"{depth}{name}" for name in ("gz", "ice", "inner"))
    assert report.notes == (f"left alone, since it is of another table: {inner}",)


def test_partition_folders_of_any_name(tmp_path: Path) -> None:
    fields = {"id": "long", "_day": "string"}
    table = TableBuilder.made(tmp_path / "t", fields=fields, partition_columns=["_day"])
    values = ["a b", "a%20b", "é☃", "x:y", "a=b", "100%", "#?", "+&", "[x]", "'q'", "_x", ".y"]
    adds = []
    for number, value in enumerate(values):
        folder = f"_day={value}"
        add = table.write_file(f"{folder}/part.parquet", {"id": [number]}, {"_day": value})
        shutil.copy(table.root / add["path"], table.root / folder / "orphan.parquet")
        adds.append(add | {"path": quote(add["path"])})
    table.add(*adds)
    gone = tombstone(adds[0], 8)
    table.commit(gone)
    age(table.root, 30, log=True)
    handle = table.handle
    rows = handle.to_arrow()
    report = handle.vacuum()
    assert report.files_deleted == len(values) + 1
    assert files_of(table.root) == {f"_day={value}/part.parquet" for value in values[1:]}
    assert handle.to_arrow().sort_by("id") == rows.sort_by("id")
    assert not (table.root / "_day=a b").exists()


def test_files_outside_of_the_table_are_never_deleted(tmp_path: Path) -> None:
    source, live = small_table(tmp_path / "source")
    clone = TableBuilder.made(tmp_path / "clone")
    shared = [
        add
        | {
            "path": f"file://{source.root}/{add['path']}",
            "deletionVector": add["deletionVector"]
            | {"storageType": "p", "pathOrInlineDv": f"file://{source.vector_path()}"},
        }
        for add in live
    ]
    clone.add(*shared)
    clone.commit(*(tombstone(add, 30) for add in shared))
    climbing = {"path": "file:///etc/../etc/passwd", "dataChange": True}
    age(tmp_path, 30, log=True)
    before = files_of(source.root)
    for lite in (False, True):
        handle = clone.handle
        assert (handle.vacuum(lite=lite).files_deleted, files_of(source.root)) == (0, before)
    clone.version = handle.version
    clone.commit({"remove": climbing})
    age(tmp_path, 30, log=True)
    for lite in (False, True):
        with pytest.raises(FormatError, match="leads out of the table"):
            clone.handle.vacuum(lite=lite)


def test_links_are_not_followed(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.parquet").write_bytes(b"x")
    (table.root / "linked").symlink_to(outside)
    (table.root / "file.parquet").symlink_to(outside / "x.parquet")
    (table.root / "loop").symlink_to(table.root)
    (table.root / "dangling").symlink_to(tmp_path / "nothing")
    age(tmp_path, 30, log=True)
    table.handle.vacuum()
    assert (outside / "x.parquet").exists()
    assert files_of(table.root) == {"part-0.parquet", "linked", "loop", "dangling"}


def test_a_table_behind_a_link_is_vacuumed_by_either_name(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "real", 3)
    named = [add | {"path": f"file://{table.root}/{add['path']}"} for add in adds]
    table.commit(*(tombstone(add, 30) for add in adds), {"add": named[0]})
    table.add(adds[1])
    (tmp_path / "link").symlink_to(table.root)
    age(table.root, 30, log=True)
    DeltaTable.for_path(None, tmp_path / "link").vacuum()
    assert files_of(table.root) == {"part-0.parquet", "part-1.parquet"}


@pytest.mark.parametrize("lite", [False, True])
def test_files_behind_links_inside_the_table_stay(tmp_path: Path, *, lite: bool) -> None:
    root = tmp_path / "t"
    table, adds = table_of(root, 2, fields={"id": "long", "name": "string"})
    b = table.write_file("store/b.parquet", {"id": [20]})
    c = table.write_file("store/c.parquet", {"id": [21]})
    table.write_file("store/gone.parquet", {"id": [22]})
    (root / "name=Bob1").symlink_to(root / "store")
    (root / "d.parquet").symlink_to(root / "store/c.parquet")
    [vector] = table.write_vectors([3], prefix="vv")
    (root / "vv").rename(root / "vectors")
    (root / "vv").symlink_to(root / "vectors")
    table.commit(
        {"add": b | {"path": "name=Bob1/b.parquet"}},
        {"add": c | {"path": "d.parquet"}},
        tombstone(adds[0], 30),
        {"add": marked(adds[0], vector)},
    )
    # Both files are named otherwise by tombstones that have expired.
    table.commit(tombstone(b, 30), tombstone(c | {"path": "name=Bob1/c.parquet"}, 30))
    age(root, 30, log=True)
    DeltaTable.for_path(None, root).vacuum(lite=lite)
    left = {"store/gone.parquet"} if lite else set()
    links = {"name=Bob1", "d.parquet", "vv"}
    assert {name for name in files_of(root) if not name.endswith(".bin")} == left | links | {
        "part-0.parquet",
        "part-1.parquet",
        "store/b.parquet",
        "store/c.parquet",
    }
    assert ids(root) == [0, 1, 2, *range(4, 22)]


def test_names_in_another_case_stay_on_a_disk_that_does_not_tell_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    for name in ("PART-0.parquet", "orphan.parquet", "Ka\u0308se.parquet"):
        table.write_file(name, {"id": [1]})
    table.add({"path": "k\u00e4se.parquet", "size": 1, "partitionValues": {}})
    handle = table.handle
    age(table.root, 30, log=True)
    assert handle.vacuum(dry_run=True).files.num_rows == 3
    # What a disk that does not tell them apart shows by this name.
    (table.root / "_DELTA_LOG").mkdir()
    (table.root / "_DELTA_LOG/00000000000000000000.json").touch()
    monkeypatch.setattr("sys.platform", "linux")
    assert handle.vacuum(dry_run=True).files["path"].to_pylist() == ["orphan.parquet"]


def test_commits_that_are_recent_by_their_own_timestamps_are(tmp_path: Path) -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    table, _ = table_of(tmp_path / "t", 1, properties=on)
    for days, name in ((30, "old"), (1, "new")):
        table.write_file(f"_change_data/{name}.parquet", {"id": [1]})
        body = {"path": f"_change_data/{name}.parquet", "size": 1, "partitionValues": {}}
        table.commit({"cdc": body | {"dataChange": False}})
        dated(table, table.version, days)
    dated(table, 0, 32)
    dated(table, 1, 31)
    age(table.root, 30, log=True)
    handle = table.handle
    found = handle.vacuum(dry_run=True).files["path"].to_pylist()
    assert found == ["_change_data/old.parquet"]
    found = handle.vacuum(dry_run=True, lite=True).files["path"].to_pylist()
    assert found == ["_change_data/old.parquet"]


def dated(table: TableBuilder, version: int, days: float) -> None:
    """Give a commit an in-commit timestamp."""
    path = table.commit_path(version)
    moment = f'{{"commitInfo": {{"inCommitTimestamp": {days_ago(days)}, '
    path.write_text(path.read_text().replace('{"commitInfo": {', moment))


def test_names_that_no_key_can_have_are_left(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    odd = [os.fsencode(table.root) + name for name in (b"/back\\slash", b"/not-utf8-\xff", b"/ok")]
    for name in odd:
        with open(name, "wb"):  # noqa: PTH123 - a path of bytes
            pass
        os.utime(name, (1, 1))
    report = table.handle.vacuum()
    assert [os.path.exists(name) for name in odd] == [True, True, False]  # noqa: PTH110
    assert "2 files with names" in report.notes[0]


def test_change_files_stay_as_long_as_their_commits_are_recent(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    for name in ("old", "new"):
        add = table.write_file(f"_change_data/id=1/cdc-{name}.parquet", {"id": [1]})
        body = {"path": quote(add["path"]), "size": 1, "partitionValues": {}, "dataChange": False}
        table.commit({"cdc": body})
    age(table.root, 30, log=True)
    # The newest commit was put a moment ago, by a writer that took long.
    newest = table.commit_path(table.version)
    os.utime(newest)
    handle = table.handle
    assert handle.vacuum(dry_run=True).files["path"].to_pylist() == [
        "_change_data/id=1/cdc-old.parquet"
    ]
    assert handle.vacuum(lite=True).files_deleted == 1
    assert files_of(table.root) == {"part-0.parquet", "_change_data/id=1/cdc-new.parquet"}


def test_a_longer_retention_reaches_beyond_the_tombstones_of_checkpoints(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 3)
    table.commit(tombstone(adds[1], 20))
    table.commit(tombstone(adds[2], 10))
    age(table.root, 40, log=True)
    for version, days in ((2, 20), (3, 10)):
        moment = time.time() - days * DAY
        os.utime(table.commit_path(version), (moment, moment))
    handle = table.handle
    handle.checkpoint()  # without the tombstones: they have expired
    assert handle.vacuum(dry_run=True).files.num_rows == 2
    assert handle.vacuum(15 * 24, dry_run=True).files["path"].to_pylist() == ["part-1.parquet"]
    assert handle.vacuum(30 * 24).files_deleted == 0


def test_a_retention_below_the_tables_is_refused_unless_forced(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    table.commit(tombstone(adds[1], 1))
    age(table.root, 30)
    handle = table.handle
    for hours in (0, 167.9):
        with pytest.raises(
            InvalidArgumentError, match=r"keeps removed files for 168 hours"
        ) as found:
            handle.vacuum(hours)
        assert "force=True" in str(found.value)
    for hours in (-1, float("nan"), float("inf"), 1e20, 10**400, 10**5000):
        with pytest.raises(InvalidArgumentError, match="is a number from 0 to 8,784"):
            handle.vacuum(hours, force=True)
    assert (operations(table.root), handle.vacuum(168).files_deleted) == ([], 0)
    assert handle.vacuum(25, force=True).files_deleted == 0
    assert handle.vacuum(0, force=True).files_deleted == 1
    assert operations(table.root)[-2:] == [
        (
            "VACUUM START",
            {
                "retentionCheckEnabled": "false",
                "defaultRetentionMillis": "604800000",
                "specifiedRetentionMillis": "0",
            },
            {"numFilesToDelete": "1", "sizeOfDataToDelete": str(adds[1]["size"])},
        ),
        (
            "VACUUM END",
            {"status": "COMPLETED"},
            {"numDeletedFiles": "1", "numVacuumedDirectories": "1"},
        ),
    ]


@pytest.mark.parametrize(
    ("retention", "deleted"), [("interval 2 days", 2), ("interval 5 days", 1), ("60 days", 0)]
)
def test_tables_say_how_long_files_stay(tmp_path: Path, retention: str, deleted: int) -> None:
    properties = {"delta.deletedFileRetentionDuration": retention}
    table, adds = table_of(tmp_path / "t", 3, properties=properties)
    table.commit(tombstone(adds[1], 30), tombstone(adds[2], 3))
    age(table.root, 40)
    assert table.handle.vacuum().files_deleted == deleted


def test_a_retention_that_is_no_interval_is_refused(tmp_path: Path) -> None:
    properties = {"delta.deletedFileRetentionDuration": "a while"}
    table, _ = table_of(tmp_path / "t", 1, properties=properties)
    with pytest.raises(FormatError, match=r"deletedFileRetentionDuration is not an interval"):
        table.handle.vacuum()


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    table, _ = expired_of(tmp_path / "t", 3)
    (table.root / "empty").mkdir()

    def state() -> list[tuple[str, int, int]]:
        found = [(str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in tmp_path.rglob("*")]
        return sorted(found)

    before = state()
    for lite in (False, True):
        report = table.handle.vacuum(dry_run=True, lite=lite)
        assert report.files["path"].to_pylist() == ["part-1.parquet"]
        assert (report.files_deleted, report.version) == (0, None)
        assert "1 file" in str(report)
        assert "would be deleted" in str(report)
    assert state() == before


def test_a_table_with_an_unknown_writer_feature_is_refused(tmp_path: Path) -> None:
    features = ["deletionVectors", "vacuumProtocolCheck", "newThing"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features[:2],
        "writerFeatures": features,
    }
    table, _ = expired_of(tmp_path / "t", 2, protocol=protocol)
    for call in ({"dry_run": True}, {"lite": True}, {}):
        with pytest.raises(UnsupportedFeatureError, match="newThing"):
            table.handle.vacuum(**call)  # type: ignore[arg-type]
    assert len(files_of(table.root)) == 2


def test_a_damaged_log_deletes_nothing(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    bad = {"storageType": "u", "pathOrInlineDv": "?", "sizeInBytes": 1, "cardinality": 1}
    table.commit({"remove": removed(adds[0])}, {"add": marked(adds[0], bad)})
    (table.root / "orphan.parquet").write_bytes(b"x")
    age(table.root, 30, log=True)
    with pytest.raises(FormatError, match="too short for a UUID"):
        table.handle.vacuum()
    assert (len(files_of(table.root)), operations(table.root)) == (3, [])


def test_a_crash_is_made_good_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = expired_of(tmp_path / "t", 4, gone=(1, 2, 3))
    handle = table.handle
    with monkeypatch.context() as patched:
        patched.setattr(deletion, "_BATCH", 1)
        patched.setattr(deletion, "_WAVE", 1)
        refreshed, calls = deletion.LaterReferences.refreshed, [0]

        def dying(self: deletion.LaterReferences) -> set[str]:
            calls[0] += 1
            if calls[0] == 2:
                raise KeyboardInterrupt
            return refreshed(self)

        patched.setattr(deletion.LaterReferences, "refreshed", dying)
        with pytest.raises(KeyboardInterrupt):
            handle.vacuum()
    assert len(files_of(table.root)) == 3
    assert [(name, p.get("status")) for name, p, _ in operations(table.root)] == [
        ("VACUUM START", None),
        ("VACUUM END", "FAILED"),
    ]
    # A process that is killed commits no end at all.
    table.commit_path(handle.version).unlink()
    assert (handle.vacuum().files_deleted, files_of(table.root)) == (2, {"part-0.parquet"})
    assert ids(table.root) == list(range(10))


def test_a_failed_delete_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, adds = expired_of(tmp_path / "t", 4, gone=(1, 2, 3))
    delete = Disk.delete

    def failing(self: Disk, keys: Sequence[str]) -> None:
        if "part-2.parquet" in keys:
            raise StorageError("/t/part-2.parquet: the disk is tired")
        delete(self, keys)

    monkeypatch.setattr(Disk, "delete", failing)
    report = table.handle.vacuum()
    assert (report.files_deleted, report.files_failed) == (2, 1)
    assert report.bytes_deleted == adds[1]["size"] + adds[3]["size"]
    assert report.failures == ("/t/part-2.parquet: the disk is tired",)
    assert "1 NOT deleted" in str(report)
    assert files_of(table.root) == {"part-0.parquet", "part-2.parquet"}
    assert operations(table.root)[-1][1:] == (
        {"status": "FAILED"},
        {"numDeletedFiles": "2", "numVacuumedDirectories": "1"},
    )
    assert not (table.log / "_last_vacuum_info").exists()


def vacuumed_while(table: TableBuilder, *actions: Action) -> VacuumReport:
    """Vacuum a table, of which somebody commits right after the vacuum has begun."""
    handle = table.handle

    def put(change: Change) -> int:
        version = handle.run(change.operation.name, lambda _: Outcome(change), {}).version
        assert version is not None
        if change.operation.name == "VACUUM START":
            table.version = version
            table.commit(*actions)
        return version

    return vacuum(handle.snapshot, put, VacuumOptions())


def test_files_that_a_concurrent_commit_refers_to_again_are_spared(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 4)
    [vector] = table.write_vectors([3])
    with_vector = marked(adds[1], vector)
    table.commit({"remove": removed(adds[1])}, {"add": with_vector})
    table.commit(*(tombstone(add, 30) for add in (with_vector, *adds[2:])))
    age(table.root, 30, log=True)
    report = vacuumed_while(table, {"add": with_vector}, {"add": adds[2]})
    assert (report.files_deleted, report.files_spared) == (1, 3)
    assert ids(table.root) == [*range(13), *range(14, 30)]


def test_files_that_a_concurrent_commit_removes_again_are_spared(tmp_path: Path) -> None:
    table, adds = expired_of(tmp_path / "t", 3, gone=(1, 2))
    report = vacuumed_while(table, tombstone(adds[1], 0))
    assert (report.files_deleted, report.files_spared) == (1, 1)
    assert files_of(table.root) == {"part-0.parquet", "part-1.parquet"}


def test_a_table_that_changes_its_protocol_meanwhile_is_left(tmp_path: Path) -> None:
    table, _ = expired_of(tmp_path / "t", 2)
    handle = table.handle

    def put(change: Change) -> int:
        table.version += 1
        if change.operation.name == "VACUUM START":
            features = ["deletionVectors", "newThing"]
            table.commit({"protocol": table.protocol | {"writerFeatures": features}})
        return table.version

    with pytest.raises(UnsupportedFeatureError, match="newThing"):
        vacuum(handle.snapshot, lambda change: _committed(table, change, put), VacuumOptions())
    assert len(files_of(table.root)) == 2


def _committed(table: TableBuilder, change: Change, then: Any) -> int:  # noqa: ANN401
    """Commit without looking, as another engine would."""
    table.commit({"txn": {"appId": change.operation.name, "version": 1}})
    table.version -= 1
    found: int = then(change)
    return found


def test_tables_of_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "day": ["a b", "c/d"] * 50})
    for _ in range(3):
        write_deltalake(path, rows, partition_by=["day"], mode="overwrite")
    Peer(path).delete("id < 10")
    age(tmp_path / "t", 8)
    handle = DeltaTable.for_path(None, path)
    expected = Peer(path).to_pyarrow_table().sort_by("id")
    # All was removed just now.
    assert handle.vacuum().files_deleted == 0
    report = handle.vacuum(0, force=True)
    assert (report.files_deleted, Peer(path).to_pyarrow_table().sort_by("id")) == (6, expected)
    assert handle.to_arrow().sort_by("id").column("id").to_pylist() == list(range(10, 100))
    assert [each["operation"] for each in Peer(path).history(2)] == ["VACUUM END", "VACUUM START"]


class TestLite:
    def test_it_takes_the_files_from_the_commits_since_the_last_vacuum(
        self, tmp_path: Path
    ) -> None:
        table, adds = table_of(tmp_path / "t", 9)
        forms = all_forms(table)
        live = [marked(a, v) for a, v in zip(adds, forms, strict=False)]
        table.commit(*(tombstone(add, 30) for add in adds[:7]), *({"add": add} for add in live))
        table.commit(*(tombstone(add, 30) for add in live[:5]), tombstone(adds[7], None))
        (table.root / "orphan.parquet").write_bytes(b"x")
        before = files_of(table.root)
        age(table.root, 30, log=True)
        handle = table.handle
        report = handle.vacuum(lite=True)
        gone = before - files_of(table.root)
        assert gone == {f"part-{n}.parquet" for n in (0, 1, 2, 3, 4, 7)} | {
            name for name in before if name.endswith(".bin")
        }
        assert report.files_deleted == len(gone) == 6 + 5
        assert report.lite
        assert "VACUUM LITE" in str(report)
        assert json.loads((table.log / "_last_vacuum_info").read_text()) == {
            "latestCommitVersionOutsideOfRetentionWindow": 3
        }
        assert [name for name, *_ in operations(table.root)] == ["VACUUM START", "VACUUM END"]
        # What was looked at is not looked at again: the orphan is for a full one.
        assert handle.vacuum(lite=True).files.num_rows == 0
        assert ids(table.root) == [*range(50, 53), *range(54, 63), *range(64, 70), *range(80, 90)]
        assert handle.vacuum().files_deleted == 1

    def test_it_stays_within_the_retention(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 4)
        age(table.root, 30, log=True)
        table.commit(tombstone(adds[1], 30))
        age(table.root, 20, log=True)
        table.commit(tombstone(adds[2], 6))
        age(table.root, 6, log=True)
        table.commit(tombstone(adds[3], 0))
        for days, versions in ((20, (0, 1, 2)), (6, (3,))):
            moment = time.time() - days * DAY
            for version in versions:
                os.utime(table.commit_path(version), (moment, moment))
        age(table.root, 30)
        handle = table.handle
        assert handle.vacuum(lite=True).files["path"].to_pylist() == ["part-1.parquet"]
        assert handle.vacuum(5 * 24, lite=True, force=True).files_deleted == 1
        assert files_of(table.root) == {"part-0.parquet", "part-3.parquet"}
        assert ids(table.root, 3) == [*range(10), *range(30, 40)]

    def test_it_refuses_where_the_log_does_not_reach_back(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 2)
        table.commit(tombstone(adds[1], 30))
        table.commit()
        handle = table.handle
        handle.checkpoint()
        age(table.root, 30, log=True)
        table.drop_commits(0, 1)
        with pytest.raises(
            InvalidArgumentError, match=r"no record of a vacuum.*left is 2"
        ) as found:
            handle.vacuum(lite=True)
        assert "lite=False" in str(found.value)
        info = table.log / "_last_vacuum_info"
        info.write_text('{"latestCommitVersionOutsideOfRetentionWindow":0}')
        with pytest.raises(InvalidArgumentError, match="the last one ended at 0"):
            handle.vacuum(lite=True)
        info.write_text('{"latestCommitVersionOutsideOfRetentionWindow":1}')
        assert handle.vacuum(lite=True, dry_run=True).files.num_rows == 1
        # A full vacuum needs no commits, and a lite one goes on from there.
        info.unlink()
        assert (handle.vacuum().files_deleted, handle.vacuum(lite=True).files_deleted) == (1, 0)

    def test_paths_of_the_log_cannot_make_it_delete_the_log(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 1)
        (table.root / ".hidden").write_bytes(b"x")
        names = ["_delta_log/00000000000000000000.json", ".hidden", "a\\b", "a/", "gone.parquet"]
        table.commit(*(tombstone(adds[0] | {"path": quote(name)}, 30) for name in names))
        age(table.root, 30, log=True)
        report = table.handle.vacuum(lite=True)
        assert (report.files.num_rows, ids(table.root)) == (0, list(range(10)))

    def test_a_tombstone_from_the_future_is_looked_at_again(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 3)
        table.commit(tombstone(adds[1], 30))
        table.commit(tombstone(adds[2], -2))
        table.commit()
        age(table.root, 30, log=True)
        handle = table.handle
        assert handle.vacuum(lite=True).files_deleted == 1
        info = json.loads((table.log / "_last_vacuum_info").read_text())
        assert info == {"latestCommitVersionOutsideOfRetentionWindow": 2}

    def test_a_table_without_old_commits(self, tmp_path: Path) -> None:
        table, _ = table_of(tmp_path / "t", 1)
        assert table.handle.vacuum(lite=True).files_deleted == 0
        assert not (table.log / "_last_vacuum_info").exists()


@pytest.mark.more
def test_many_files_in_many_folders(tmp_path: Path) -> None:
    fields = {"id": "long", "day": "long"}
    table = TableBuilder.made(tmp_path / "t", fields=fields, partition_columns=["day"])
    template = table.write_file("day=0/keep-0.parquet", {"id": [1]}, {"day": "0"})
    data = (table.root / "day=0/keep-0.parquet").read_bytes()
    adds = []
    for number in range(2000):
        folder = table.root / f"day={number % 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"keep-{number}.parquet").write_bytes(data)
        (folder / f"drop-{number}.parquet").write_bytes(b"x")
        path = f"day={number % 100}/keep-{number}.parquet"
        adds.append(template | {"path": path, "partitionValues": {"day": str(number % 100)}})
    table.add(*adds)
    age(table.root, 30, log=True)
    told: list[tuple[str, int, int]] = []
    report = table.handle.vacuum(on_progress=lambda *progress: told.append(progress))
    assert (report.files_deleted, report.files_kept) == (2000, 2000)
    assert all("keep" in name for name in files_of(table.root))
    assert ("listing", 4000, 0) in told
    assert told[-1] == ("deleting", 2000, 2000)
    assert operations(table.root)[-1][2]["numVacuumedDirectories"] == "101"
