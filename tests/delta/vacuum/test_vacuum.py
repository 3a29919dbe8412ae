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
from tests.delta import builder
from tests.delta.builder import TableBuilder, protocol_of, removed, small_table, table_with
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import DAY, age, days_ago, files_of, tombstone
from tests.delta.write.write_checks import ids

Action = dict[str, Any]

# Row 3 is deleted, in the padding of delta-spark and in that of delta-rs.
INLINE = [builder.INLINE, builder.PADDED]


def vacuumed(root: Path, **options: Any) -> VacuumReport:  # noqa: ANN401
    return DeltaTable.for_path(None, root).vacuum(**options)


def paths_of(report: VacuumReport) -> list[str]:
    return sorted(report.files["path"].to_pylist())


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
    target = table.root / f"my vectors/own-{len(list(table.root.rglob('own*.bin')))}.bin"
    target.parent.mkdir(exist_ok=True)
    path = z85.decode(vector["pathOrInlineDv"][-20:], 16)
    (table.root / f"deletion_vector_{UUID(bytes=path)}.bin").rename(target)
    return vector | {"storageType": "p", "pathOrInlineDv": spelling.format(quote(str(target)))}


def all_forms(table: TableBuilder) -> list[Action]:
    """Vectors that delete row 3: relative, with a folder, absolute in three spellings, inline."""
    plain, prefixed = (table.write_vectors([3], prefix=prefix)[0] for prefix in ("", "ab"))
    spellings = ("file://{}", "file:{}", "{}")
    own = [absolute(table, table.write_vectors([3])[0], spelling) for spelling in spellings]
    return [plain, prefixed, *own, *INLINE]


def operations(root: Path) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Operation, parameters and metrics of the commits, but for those of the builder."""
    infos = [actions[0]["commitInfo"] for actions in commits(root)]
    names = ("operation", "operationParameters", "operationMetrics")
    facts = [tuple(info.get(name) for name in names) for info in infos]
    return [each for each in facts if each[0] != "TEST"]


@pytest.mark.parametrize("days", [None, 6, 8])
def test_vectors_stay_while_they_live_or_are_retained(tmp_path: Path, days: int | None) -> None:
    table, adds = table_of(tmp_path / "t", 8)
    live = [marked(a, v) for a, v in zip(adds[:7], all_forms(table), strict=True)]
    table.commit(*(tombstone(add, 30) for add in adds[:7]), *({"add": add} for add in live))
    if days:
        table.commit(*(tombstone(add, days) for add in live))
    age(table.root, 30, log=True)
    before, newest, files = ids(table.root, 2), ids(table.root), files_of(table.root)
    assert (len(before), len(newest)) == (73, 10 if days else 73)
    report = vacuumed(table.root)
    assert ids(table.root) == newest
    if days == 8:
        assert files_of(table.root) == {"part-7.parquet"}
        assert report.kinds == {"data file": 7, "other file": 3, "vector file": 2}
        assert (report.files_deleted, report.folders_removed) == (7 + 5, 2)
        assert not (table.root / "my vectors").exists()
        return
    assert (report.files_deleted, files_of(table.root)) == (0, files)
    assert (report.files_kept, report.files_young) == (8 + 5, 0) or days
    # Time travel works as well, to before the deletes too: the data files are kept.
    assert (ids(table.root, 2), ids(table.root, 1)) == (before, list(range(80)))


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
    before, vectors = ids(table.root), table.vector_path().name
    vacuumed(table.root)
    assert ids(table.root) == before
    found = QueryBuilder().register("t", Peer(str(table.root))).execute("select id from t")
    assert sorted(pa.table(found.read_all()).column("id").to_pylist()) == before
    # If this fails, deltalake has been mended.
    deleted = Peer(str(table.root)).vacuum(dry_run=True, full=True)
    assert [name for name in deleted if name.endswith(".bin")] == [vectors]


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


def test_young_files_stay_whoever_wrote_them(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    table.commit(tombstone(adds[1], 30))
    (table.root / "uncommitted.parquet").write_bytes(b"x")
    report = vacuumed(table.root)
    assert (report.files_deleted, report.files_young, report.files_kept) == (0, 2, 1)


def put_files(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}")


def test_hidden_names_stay_and_foreign_files_go(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    kept = ["_tmp/x.parquet", "a/_tmp/x.parquet", ".x/y/z.parquet", "a/.part-0.parquet.crc"]
    beside = ["_SUCCESS", "_symlink_format_manifest/manifest", "_delta_index/x"]
    foreign = ["a/x.parquet", "a/b/c/y.txt", "README.md", "a b/ü%20#1?.parquet", "metadata/x.avro"]
    put_files(table.root, *kept, *beside, *foreign)
    (table.root / "empty/er").mkdir(parents=True)
    (table.root / "_hidden/empty").mkdir(parents=True)
    age(table.root, 8)
    report = vacuumed(table.root)
    assert files_of(table.root) == {*kept, *beside, "part-0.parquet"}
    assert (report.files_deleted, paths_of(report)) == (len(foreign), sorted(foreign))
    # `a` still has hidden files.
    left = {str(p.relative_to(table.root)) for p in table.root.iterdir() if p.is_dir()}
    folders = {"_delta_log", "_tmp", "a", ".x", "_hidden"}
    assert left == folders | {name.split("/")[0] for name in beside[1:]}
    assert (table.root / "_hidden/empty").is_dir()


def test_iceberg_metadata_of_the_table_itself_stays(tmp_path: Path) -> None:
    properties = {"delta.universalFormat.enabledFormats": "iceberg"}
    table, _ = table_of(tmp_path / "t", 1, properties=properties)
    put_files(table.root, "metadata/x.avro")
    age(table.root, 8)
    assert paths_of(vacuumed(table.root, dry_run=True)) == []


@pytest.mark.parametrize("depth", ["", "deep/er/and/deeper/"])
def test_other_tables_inside_are_left_alone(tmp_path: Path, depth: str) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    small_table(table.root / f"{depth}inner")
    for name, metadata in (("ice", "v1.metadata.json"), ("gz", "v1.metadata.json.gz")):
        put_files((table.root / depth / name), f"metadata/{metadata}", "data/1.parquet")
    put_files(table.root, "orphan.parquet")
    age(table.root, 30, log=True)
    before = files_of(table.root)
    report = vacuumed(table.root)
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
    table.commit(tombstone(adds[0], 8))
    age(table.root, 30, log=True)
    rows = table.handle.to_arrow()
    assert vacuumed(table.root).files_deleted == len(values) + 1
    assert files_of(table.root) == {f"_day={value}/part.parquet" for value in values[1:]}
    assert table.handle.to_arrow().sort_by("id") == rows.sort_by("id")
    assert not (table.root / "_day=a b").exists()


def test_files_outside_of_the_table_are_never_deleted(tmp_path: Path) -> None:
    source, live = small_table(tmp_path / "source")
    clone = TableBuilder.made(tmp_path / "clone")
    there = {"storageType": "p", "pathOrInlineDv": f"file://{source.vector_path()}"}
    shared = [
        add
        | {"path": f"file://{source.root}/{add['path']}"}
        | {"deletionVector": add["deletionVector"] | there}
        for add in live
    ]
    clone.add(*shared)
    clone.commit(*(tombstone(add, 30) for add in shared))
    age(tmp_path, 30, log=True)
    before = files_of(source.root)
    for lite in (False, True):
        assert (vacuumed(clone.root, lite=lite).files_deleted, files_of(source.root)) == (0, before)
    clone.version = clone.handle.version
    clone.commit({"remove": {"path": "file:///etc/../etc/passwd", "dataChange": True}})
    age(tmp_path, 30, log=True)
    for lite in (False, True):
        with pytest.raises(FormatError, match="leads out of the table"):
            vacuumed(clone.root, lite=lite)


def test_links_are_not_followed(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    outside = tmp_path / "outside"
    put_files(outside, "x.parquet")
    links = {"linked": outside, "file.parquet": outside / "x.parquet", "loop": table.root}
    for name, target in (links | {"dangling": tmp_path / "nothing"}).items():
        (table.root / name).symlink_to(target)
    age(tmp_path, 30, log=True)
    vacuumed(table.root)
    assert (outside / "x.parquet").exists()
    assert files_of(table.root) == {"part-0.parquet", "linked", "loop", "dangling"}


def test_a_table_behind_a_link_is_vacuumed_by_either_name(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "real", 3)
    named = adds[0] | {"path": f"file://{table.root}/{adds[0]['path']}"}
    table.commit(*(tombstone(add, 30) for add in adds), {"add": named})
    table.add(adds[1])  # as by a RESTORE: the newest word counts
    (tmp_path / "link").symlink_to(table.root)
    age(table.root, 30, log=True)
    vacuumed(tmp_path / "link")
    assert files_of(table.root) == {"part-0.parquet", "part-1.parquet"}


@pytest.mark.parametrize("lite", [False, True])
def test_files_behind_links_inside_the_table_stay(tmp_path: Path, *, lite: bool) -> None:
    root = tmp_path / "t"
    table, adds = table_of(root, 2, fields={"id": "long", "name": "string"})
    names = ("b", "c", "gone")
    b, c, _ = (
        table.write_file(f"store/{n}.parquet", {"id": [20 + k]}) for k, n in enumerate(names)
    )
    (root / "name=Bob1").symlink_to(root / "store")
    (root / "d.parquet").symlink_to(root / "store/c.parquet")
    [vector] = table.write_vectors([3], prefix="vv")
    (root / "vv").rename(root / "vectors")
    (root / "vv").symlink_to(root / "vectors")
    moved = b | {"path": "name=Bob1/b.parquet"}, c | {"path": "d.parquet"}
    new = *moved, marked(adds[0], vector)
    table.commit(tombstone(adds[0], 30), *({"add": add} for add in new))
    # Both files are named otherwise by tombstones that have expired.
    table.commit(tombstone(b, 30), tombstone(c | {"path": "name=Bob1/c.parquet"}, 30))
    age(root, 30, log=True)
    vacuumed(root, lite=lite)
    left = {"store/gone.parquet"} if lite else set()
    kept = {"part-0.parquet", "part-1.parquet", "store/b.parquet", "store/c.parquet"}
    links = {"name=Bob1", "d.parquet", "vv"}
    assert {name for name in files_of(root) if not name.endswith(".bin")} == left | links | kept
    assert ids(root) == [0, 1, 2, *range(4, 22)]


def test_names_in_another_case_stay_on_a_disk_that_does_not_tell_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    put_files(table.root, "PART-0.parquet", "orphan.parquet", "Ka\u0308se.parquet")
    table.add({"path": "k\u00e4se.parquet", "size": 1, "partitionValues": {}})
    age(table.root, 30, log=True)
    assert len(paths_of(vacuumed(table.root, dry_run=True))) == 3
    # What a disk that does not tell them apart shows by this name.
    put_files(table.root, "_DELTA_LOG/00000000000000000000.json")
    monkeypatch.setattr("sys.platform", "linux")
    assert paths_of(vacuumed(table.root, dry_run=True)) == ["orphan.parquet"]


def change_file(table: TableBuilder, name: str) -> str:
    """Commit a file of changes; give its path."""
    path = table.write_file(f"_change_data/id=1/{name}.parquet", {"id": [1]})["path"]
    body = {"path": quote(path), "size": 1, "partitionValues": {}, "dataChange": False}
    table.commit({"cdc": body})
    return str(path)


def test_commits_that_are_recent_by_their_own_timestamps_are(tmp_path: Path) -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    table, _ = table_of(tmp_path / "t", 1, properties=on)
    old, _ = change_file(table, "old"), change_file(table, "new")
    for version, days in enumerate((32, 31, 30, 1)):
        dated(table, version, days)
    age(table.root, 30, log=True)
    for lite in (False, True):
        assert paths_of(vacuumed(table.root, dry_run=True, lite=lite)) == [old]


def dated(table: TableBuilder, version: int, days: float) -> None:
    """Give a commit an in-commit timestamp."""
    path = table.commit_path(version)
    moment = f'{{"commitInfo": {{"inCommitTimestamp": {days_ago(days)}, '
    path.write_text(path.read_text().replace('{"commitInfo": {', moment))


def test_names_that_no_key_can_have_are_left(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    odd = [os.fsencode(table.root) + name for name in (b"/back\\slash", b"/not-utf8-\xff", b"/ok")]
    for name in odd:
        open(name, "wb").close()  # noqa: PTH123 - a path of bytes
        os.utime(name, (1, 1))
    report = vacuumed(table.root)
    assert [os.path.exists(name) for name in odd] == [True, True, False]  # noqa: PTH110
    assert "2 files with names" in report.notes[0]


def test_change_files_stay_as_long_as_their_commits_are_recent(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path / "t", 1)
    old, new = change_file(table, "old"), change_file(table, "new")
    age(table.root, 30, log=True)
    # The newest commit was put a moment ago, by a writer that took long.
    os.utime(table.commit_path(table.version))
    assert paths_of(vacuumed(table.root, dry_run=True)) == [old]
    assert vacuumed(table.root, lite=True).files_deleted == 1
    assert files_of(table.root) == {"part-0.parquet", new}


def put_days_ago(table: TableBuilder, days: float, *versions: int) -> None:
    moment = time.time() - days * DAY
    for version in versions:
        os.utime(table.commit_path(version), (moment, moment))


def test_a_longer_retention_reaches_beyond_the_tombstones_of_checkpoints(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 3)
    for add, days in ((adds[1], 20), (adds[2], 10)):
        table.commit(tombstone(add, days))
    age(table.root, 40, log=True)
    put_days_ago(table, 20, 2)
    put_days_ago(table, 10, 3)
    table.handle.checkpoint()  # without the tombstones: they have expired
    assert len(paths_of(vacuumed(table.root, dry_run=True))) == 2
    longer = vacuumed(table.root, retention_hours=15 * 24, dry_run=True)
    assert paths_of(longer) == ["part-1.parquet"]
    assert vacuumed(table.root, retention_hours=30 * 24).files_deleted == 0


def test_a_retention_below_the_tables_is_refused_unless_forced(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    table.commit(tombstone(adds[1], 1))
    age(table.root, 30)
    handle = table.handle
    for hours in (0, 167.9):
        match = r"(?s)keeps removed files for 168 hours.*force=True"
        with pytest.raises(InvalidArgumentError, match=match):
            handle.vacuum(hours)
    for hours in (-1, float("nan"), float("inf"), 1e20, 10**400, 10**5000):
        with pytest.raises(InvalidArgumentError, match="is a number from 0 to 8,784"):
            handle.vacuum(hours, force=True)
    assert (operations(table.root), handle.vacuum(168).files_deleted) == ([], 0)
    found = [handle.vacuum(hours, force=True).files_deleted for hours in (25, 0)]
    assert found == [0, 1]
    begun = {"retentionCheckEnabled": "false", "defaultRetentionMillis": "604800000"}
    wanted = {"numFilesToDelete": "1", "sizeOfDataToDelete": str(adds[1]["size"])}
    done = {"numDeletedFiles": "1", "numVacuumedDirectories": "1"}
    assert operations(table.root)[-2:] == [
        ("VACUUM START", begun | {"specifiedRetentionMillis": "0"}, wanted),
        ("VACUUM END", {"status": "COMPLETED"}, done),
    ]


@pytest.mark.parametrize(
    ("retention", "deleted"),
    [("interval 2 days", 2), ("interval 5 days", 1), ("60 days", 0), ("a while", None)],
)
def test_tables_say_what_is_kept(tmp_path: Path, retention: str, deleted: int | None) -> None:
    properties = {"delta.deletedFileRetentionDuration": retention}
    table, adds = table_of(tmp_path / "t", 3, properties=properties)
    table.commit(tombstone(adds[1], 30), tombstone(adds[2], 3))
    age(table.root, 40)
    if deleted is None:
        with pytest.raises(FormatError, match=r"deletedFileRetentionDuration is not an interval"):
            vacuumed(table.root)
    else:
        assert vacuumed(table.root).files_deleted == deleted


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    table, _ = expired_of(tmp_path / "t", 3)
    (table.root / "empty").mkdir()

    def state() -> list[tuple[str, int, int]]:
        found = [(str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in tmp_path.rglob("*")]
        return sorted(found)

    before = state()
    for lite in (False, True):
        report = vacuumed(table.root, dry_run=True, lite=lite)
        assert (paths_of(report), report.files_deleted) == (["part-1.parquet"], 0)
        assert report.version is None
        assert "1 file" in str(report)
        assert "would be deleted" in str(report)
    assert state() == before


def test_a_table_with_an_unknown_writer_feature_is_refused(tmp_path: Path) -> None:
    protocol = protocol_of("deletionVectors", "vacuumProtocolCheck", writers=["newThing"])
    table, _ = expired_of(tmp_path / "t", 2, protocol=protocol)
    for call in ({"dry_run": True}, {"lite": True}, {}):
        with pytest.raises(UnsupportedFeatureError, match="newThing"):
            vacuumed(table.root, **call)
    assert len(files_of(table.root)) == 2


def test_a_damaged_log_deletes_nothing(tmp_path: Path) -> None:
    table, adds = table_of(tmp_path / "t", 2)
    bad = INLINE[0] | {"storageType": "u", "pathOrInlineDv": "?"}
    table.commit({"remove": removed(adds[0])}, {"add": marked(adds[0], bad)})
    put_files(table.root, "orphan.parquet")
    age(table.root, 30, log=True)
    with pytest.raises(FormatError, match="too short for a UUID"):
        vacuumed(table.root)
    assert (len(files_of(table.root)), operations(table.root)) == (3, [])


def test_a_crash_is_made_good_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = expired_of(tmp_path / "t", 4, gone=(1, 2, 3))
    refreshed, calls = deletion.LaterReferences.refreshed, [0]

    def dying(self: deletion.LaterReferences) -> set[str]:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return refreshed(self)

    with monkeypatch.context() as patched:
        patched.setattr(deletion, "_BATCH", 1)
        patched.setattr(deletion, "_WAVE", 1)
        patched.setattr(deletion.LaterReferences, "refreshed", dying)
        with pytest.raises(KeyboardInterrupt):
            vacuumed(table.root)
    assert len(files_of(table.root)) == 3
    states = [(name, parameters.get("status")) for name, parameters, _ in operations(table.root)]
    assert states == [("VACUUM START", None), ("VACUUM END", "FAILED")]
    # A process that is killed commits no end at all.
    table.commit_path(table.handle.version).unlink()
    assert vacuumed(table.root).files_deleted == 2
    assert (files_of(table.root), ids(table.root)) == ({"part-0.parquet"}, list(range(10)))


def test_a_failed_delete_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, adds = expired_of(tmp_path / "t", 4, gone=(1, 2, 3))
    delete = Disk.delete

    def failing(self: Disk, keys: Sequence[str]) -> None:
        if "part-2.parquet" in keys:
            raise StorageError("/t/part-2.parquet: the disk is tired")
        delete(self, keys)

    monkeypatch.setattr(Disk, "delete", failing)
    report = vacuumed(table.root)
    assert (report.files_deleted, report.files_failed) == (2, 1)
    assert report.bytes_deleted == adds[1]["size"] + adds[3]["size"]
    assert report.failures == ("/t/part-2.parquet: the disk is tired",)
    assert "1 NOT deleted" in str(report)
    assert files_of(table.root) == {"part-0.parquet", "part-2.parquet"}
    metrics = {"numDeletedFiles": "2", "numVacuumedDirectories": "1"}
    assert operations(table.root)[-1][1:] == ({"status": "FAILED"}, metrics)
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
    table, adds = table_of(tmp_path / "t", 5)
    [vector] = table.write_vectors([3])
    with_vector = marked(adds[1], vector)
    table.commit({"remove": removed(adds[1])}, {"add": with_vector})
    table.commit(*(tombstone(add, 30) for add in (with_vector, *adds[2:])))
    age(table.root, 30, log=True)
    # Tombstones of now keep their files as well.
    again = {"add": with_vector}, {"add": adds[2]}, tombstone(adds[4], 0)
    report = vacuumed_while(table, *again)
    assert (report.files_deleted, report.files_spared) == (1, 4)
    assert ids(table.root) == [*range(13), *range(14, 30)]
    assert not (table.root / "part-3.parquet").exists()


def test_a_table_that_changes_its_protocol_meanwhile_is_left(tmp_path: Path) -> None:
    table, _ = expired_of(tmp_path / "t", 2)

    def put(change: Change) -> int:
        """Commit without looking, as another engine would."""
        table.commit({"txn": {"appId": change.operation.name, "version": 1}})
        if change.operation.name == "VACUUM START":
            features = ["deletionVectors", "newThing"]
            table.commit({"protocol": table.protocol | {"writerFeatures": features}})
        return table.version

    with pytest.raises(UnsupportedFeatureError, match="newThing"):
        vacuum(table.handle.snapshot, put, VacuumOptions())
    assert len(files_of(table.root)) == 2


def test_tables_of_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "day": ["a b", "c/d"] * 50})
    for _ in range(3):
        write_deltalake(path, rows, partition_by=["day"], mode="overwrite")
    Peer(path).delete("id < 10")
    age(tmp_path / "t", 8)
    expected = Peer(path).to_pyarrow_table().sort_by("id")
    # All was removed just now.
    assert vacuumed(tmp_path / "t").files_deleted == 0
    assert vacuumed(tmp_path / "t", retention_hours=0, force=True).files_deleted == 6
    assert Peer(path).to_pyarrow_table().sort_by("id") == expected
    assert ids(tmp_path / "t") == list(range(10, 100))
    assert [each["operation"] for each in Peer(path).history(2)] == ["VACUUM END", "VACUUM START"]


def last_info(table: TableBuilder) -> int:
    info = json.loads((table.log / "_last_vacuum_info").read_text())
    assert list(info) == ["latestCommitVersionOutsideOfRetentionWindow"]
    return int(info["latestCommitVersionOutsideOfRetentionWindow"])


class TestLite:
    def test_it_takes_files_from_the_commits_since_the_last_vacuum(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 9)
        live = [marked(a, v) for a, v in zip(adds, all_forms(table), strict=False)]
        table.commit(*(tombstone(add, 30) for add in adds[:7]), *({"add": add} for add in live))
        table.commit(*(tombstone(add, 30) for add in live[:5]), tombstone(adds[7], None))
        put_files(table.root, "orphan.parquet")
        before = files_of(table.root)
        age(table.root, 30, log=True)
        report = vacuumed(table.root, lite=True)
        gone = before - files_of(table.root)
        vectors = {name for name in before if name.endswith(".bin")}
        assert gone == {f"part-{n}.parquet" for n in (0, 1, 2, 3, 4, 7)} | vectors
        assert report.files_deleted == len(gone) == 6 + 5
        assert report.lite
        assert "VACUUM LITE" in str(report)
        assert last_info(table) == 3
        assert [name for name, *_ in operations(table.root)] == ["VACUUM START", "VACUUM END"]
        # What was looked at is not looked at again: the orphan is for a full one.
        assert paths_of(vacuumed(table.root, lite=True)) == []
        assert ids(table.root) == [*range(50, 53), *range(54, 63), *range(64, 70), *range(80, 90)]
        assert vacuumed(table.root).files_deleted == 1

    def test_it_stays_within_the_retention(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 4)
        for add, days in zip(adds[1:], (30, 6, 0), strict=True):
            table.commit(tombstone(add, days))
        put_days_ago(table, 20, 0, 1, 2)
        put_days_ago(table, 6, 3)
        age(table.root, 30)
        assert paths_of(vacuumed(table.root, lite=True)) == ["part-1.parquet"]
        shorter = vacuumed(table.root, retention_hours=5 * 24, lite=True, force=True)
        assert shorter.files_deleted == 1
        assert files_of(table.root) == {"part-0.parquet", "part-3.parquet"}
        assert ids(table.root, 3) == [*range(10), *range(30, 40)]

    def test_it_refuses_where_the_log_does_not_reach_back(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 2)
        table.commit(tombstone(adds[1], 30))
        table.commit()
        table.handle.checkpoint()
        age(table.root, 30, log=True)
        table.drop_commits(0, 1)
        match = r"(?s)no record of a vacuum.*left is 2.*lite=False"
        with pytest.raises(InvalidArgumentError, match=match):
            vacuumed(table.root, lite=True)
        info = table.log / "_last_vacuum_info"
        info.write_text('{"latestCommitVersionOutsideOfRetentionWindow":0}')
        with pytest.raises(InvalidArgumentError, match="the last one ended at 0"):
            vacuumed(table.root, lite=True)
        info.write_text('{"latestCommitVersionOutsideOfRetentionWindow":1}')
        assert len(paths_of(vacuumed(table.root, lite=True, dry_run=True))) == 1
        # A full vacuum needs no commits, and a lite one goes on from there.
        info.unlink()
        assert vacuumed(table.root).files_deleted == 1
        assert vacuumed(table.root, lite=True).files_deleted == 0

    def test_paths_of_the_log_cannot_make_it_delete_the_log(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 1)
        put_files(table.root, ".hidden")
        names = ["_delta_log/00000000000000000000.json", ".hidden", "a\\b", "a/", "gone.parquet"]
        table.commit(*(tombstone(adds[0] | {"path": quote(name)}, 30) for name in names))
        age(table.root, 30, log=True)
        assert (paths_of(vacuumed(table.root, lite=True)), ids(table.root)) == ([], list(range(10)))

    def test_a_tombstone_from_the_future_is_looked_at_again(self, tmp_path: Path) -> None:
        table, adds = table_of(tmp_path / "t", 3)
        assert vacuumed(table.root, lite=True).files_deleted == 0
        assert not (table.log / "_last_vacuum_info").exists(), "no commit is old"
        table.version = table.handle.version
        table.commit(tombstone(adds[1], 30))
        table.commit(tombstone(adds[2], -2))
        future = table.version
        table.commit()
        age(table.root, 30, log=True)
        assert (vacuumed(table.root, lite=True).files_deleted, last_info(table)) == (1, future - 1)


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
    report = vacuumed(table.root, on_progress=lambda *progress: told.append(progress))
    assert (report.files_deleted, report.files_kept) == (2000, 2000)
    assert all("keep" in name for name in files_of(table.root))
    assert ("listing", 4000, 0) in told
    assert told[-1] == ("deleting", 2000, 2000)
    assert operations(table.root)[-1][2]["numVacuumedDirectories"] == "101"
