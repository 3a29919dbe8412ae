"""Cleaning the log: which versions stay readable, whenever it is killed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from delvec import DeltaTable
from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.segment import list_log
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.vacuum import log_cleanup
from delvec.delta.vacuum.log_cleanup import LogReport, clean_log, log_cutoff
from delvec.errors import DelvecError, FormatError
from delvec.storage import Storage
from delvec.storage.disk import Disk
from tests.delta.builder import TableBuilder, protocol_of
from tests.delta.vacuum.aging import DAY, tombstone

V2: dict[str, Any] = {
    "protocol": protocol_of("deletionVectors", "v2Checkpoint"),
    "properties": {"delta.checkpointPolicy": "v2"},
}


def cleaned(table: TableBuilder, **options: Any) -> LogReport:  # noqa: ANN401
    return table.handle.clean_log(**options)


def since(states: dict[int, list[str]], oldest: int) -> dict[int, list[str]]:
    return {version: files for version, files in states.items() if version >= oldest}


def dated(path: Path, days: float) -> None:
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))


def aged_table(
    root: Path,
    versions: int = 14,
    checkpoints: Sequence[int] = (2, 5, 8, 10),
    **options: Any,  # noqa: ANN401
) -> TableBuilder:
    """A table with a commit every five days, the newest today.

    Each adds a file, some remove the one before. There are none: only the log is looked at.
    """
    table = TableBuilder.made(root, **options)
    adds: list[dict[str, Any]] = []
    for version in range(1, versions):
        path, stats = f"{version}.parquet", '{"numRecords":1}'
        adds.append({"path": path, "size": 1, "partitionValues": {}, "stats": stats})
        adds[-1] |= {"modificationTime": 1, "dataChange": True}
        gone = [tombstone(adds[-2], 0)] if version % 3 == 0 else []
        table.commit({"add": adds[-1]}, *gone)
        (table.log / f"{version:020d}.crc").write_text("{}")
    storage = Storage.open(root)
    for version in checkpoints:
        write_checkpoint(open_snapshot(storage, version))
    redate(table)
    return table


def redate(table: TableBuilder) -> None:
    """Date each file of the log by its version, some minutes after midnight UTC."""
    midnight = time.time() // DAY * DAY
    for path in table.log.rglob("*"):
        if path.name[:20].isdecimal():
            moment = midnight - (table.version - int(path.name[:20])) * 5 * DAY + 600
            os.utime(path, (moment, moment))
        elif path.parent.name == "_sidecars":
            dated(path, 5 * table.version)


def state(root: Path, version: int) -> list[str]:
    """The live files of a version."""
    return sorted(open_snapshot(Storage.open(root), version).files.paths.to_pylist())


def readable(root: Path) -> dict[int, list[str]]:
    """The versions that can be read, with their files."""
    found = {}
    for version in range(DeltaTable.for_path(None, root).version + 1):
        with suppress(DelvecError):
            found[version] = state(root, version)
    return found


def log_names(table: TableBuilder) -> set[str]:
    return {str(path.relative_to(table.log)) for path in table.log.rglob("*") if path.is_file()}


def test_versions_since_the_cutoff_stay_readable_and_older_ones_go(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t")
    before = readable(table.root)
    assert list(before) == list(range(14))
    # The newest version, 13, is of today; 6 was current at midnight 30 days ago.
    report = cleaned(table, dry_run=True)
    assert (report.oldest, report.files) == (5, {"commit": 5, "checksum": 4, "checkpoint": 1})
    assert (readable(table.root), cleaned(table).files_deleted) == (before, 10)
    assert readable(table.root) == since(before, 5)
    left = list_log(table.handle.storage)
    assert (min(left.commits), sorted(each.version for each in left.checkpoints)) == (5, [5, 8, 10])
    assert [(table.log / f"{v:020d}.crc").exists() for v in (4, 5)] == [False, True]
    assert Peer(str(table.root)).version() == 13
    assert (cleaned(table).files, "nothing to delete" in str(cleaned(table))) == ({}, True)


def test_a_whole_day_expires_at_midnight(tmp_path: Path) -> None:
    snapshot = aged_table(tmp_path / "t", checkpoints=(5, 6, 7, 10)).handle.snapshot()
    cutoff = log_cutoff(snapshot)
    assert cutoff % (DAY * 1000) == 0
    assert 30 <= (time.time() * 1000 - cutoff) / DAY / 1000 < 31
    # Version 7 is of ten minutes after that midnight.
    assert clean_log(snapshot, dry_run=True).oldest == 6
    assert clean_log(snapshot, before_ms=cutoff + 600_000, dry_run=True).oldest == 7
    assert clean_log(snapshot, before_ms=cutoff + 599_999, dry_run=True).oldest == 6


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("retention", "oldest"), [("interval 1 day", 10), ("interval 45 days", 2), ("100 days", None)]
)
def test_the_table_says_what_is_kept(tmp_path: Path, retention: str, oldest: int | None) -> None:
    properties = {
        "delta.logRetentionDuration": retention,
        "delta.enableExpiredLogCleanup": "false",  # says that nobody cleans unasked
    }
    table = aged_table(tmp_path / "t", properties=properties)
    before = readable(table.root)
    assert (cleaned(table).oldest, readable(table.root)) == (oldest, since(before, oldest or 0))


def test_without_an_old_checkpoint_nothing_goes(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t", checkpoints=(10,))
    names = log_names(table)
    report = cleaned(table)
    assert (report.files, report.oldest, log_names(table)) == ({}, None, names)
    assert "no checkpoint is as old as the retention" in report.notes[0]


def test_an_incomplete_checkpoint_is_none_and_goes_with_the_others(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t", checkpoints=(3,))
    for version in (2, 5):
        lone = table.log / f"{version:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
        shutil.copy(table.log / f"{3:020d}.checkpoint.parquet", lone)
    (table.log / f"{6:020d}.checkpoint.parquet").write_bytes(b"")
    redate(table)
    before = readable(table.root)
    report = cleaned(table)
    assert (report.oldest, report.files) == (3, {"commit": 3, "checksum": 2, "checkpoint": 1})
    assert readable(table.root) == since(before, 3)


@pytest.mark.parametrize("damaged", [True, False], ids=["checkpoint", "commits"])
def test_a_log_without_a_sound_base_is_not_cleaned(tmp_path: Path, *, damaged: bool) -> None:
    table = aged_table(tmp_path / "t")
    if damaged:
        message = "a checkpoint cannot be read"
        (table.log / f"{5:020d}.checkpoint.parquet").write_bytes(b"PAR1 damaged")
        redate(table)
    else:
        message = "lacks commits between versions 5 and 13"
        table.drop_commits(6)
    names = log_names(table)
    with pytest.raises(FormatError, match=message):
        cleaned(table)
    assert log_names(table) == names


def test_what_the_hint_points_to_or_a_wrong_clock_made_recent_stays(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t")
    (table.log / "_last_checkpoint").write_text('{"version":2,"size":1}')
    assert cleaned(table, dry_run=True).oldest == 2
    (table.log / "_last_checkpoint").unlink()
    assert cleaned(table, dry_run=True).oldest == 5
    dated(table.commit_path(4), 3)  # this one and all after it count as recent
    assert cleaned(table, dry_run=True).oldest == 2


def test_compacted_commits_that_nobody_can_use_go(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t")
    for first, last in ((1, 3), (3, 7), (5, 6), (6, 7)):
        lines = "".join(table.commit_path(v).read_text() for v in range(first, last + 1))
        (table.log / f"{first:020d}.{last:020d}.compacted.json").write_text(lines)
    redate(table)
    assert cleaned(table).files["compacted"] == 3
    left = [name for name in log_names(table) if "compacted" in name]
    assert left == [f"{6:020d}.{7:020d}.compacted.json"]
    assert state(table.root, 7)


def test_in_commit_timestamps_that_are_later_than_files_keep_more(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t", properties={"delta.enableInCommitTimestamps": "true"})
    for version in range(table.version + 1):
        path = table.commit_path(version)
        later = int(path.stat().st_mtime * 1000) + (15 * DAY * 1000 if version >= 5 else 0)
        moment = f'{{"commitInfo": {{"inCommitTimestamp": {later}, '
        path.write_text(path.read_text().replace('{"commitInfo": {', moment))
    redate(table)
    assert table.handle.clean_log(dry_run=True).oldest == 2


@pytest.mark.parametrize(("protected", "oldest"), [("6", None), ("5", 5), ("3", 5), ("x", None)])
def test_protected_ones_go_together(tmp_path: Path, protected: str, oldest: int | None) -> None:
    name = "delta.requireCheckpointProtectionBeforeVersion"
    protocol = protocol_of("deletionVectors", writers=["checkpointProtection"])
    table = aged_table(tmp_path / "t", protocol=protocol, properties={name: protected})
    report = cleaned(table)
    assert (report.oldest, bool(report.files)) == (oldest, oldest is not None)
    assert any(name.removeprefix("delta.") in note for note in report.notes) == (oldest is None)


def test_sidecars_go_after_the_checkpoints_that_name_them(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t", **V2)
    folder = table.log / "_sidecars"
    assert len(list(folder.iterdir())) == 4
    for name, days in (("orphan.parquet", 40), ("in-progress.parquet", 0.5)):
        (folder / name).write_bytes(b"x")
        dated(folder / name, days)
    before = readable(table.root)
    gone = {"commit": 5, "checksum": 4, "checkpoint": 1, "sidecar": 2}
    assert (cleaned(table).files, len(list(folder.iterdir()))) == (gone, 4)
    assert (folder / "in-progress.parquet").exists()
    assert readable(table.root) == since(before, 5)


def test_sidecars_stay_if_a_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    table = aged_table(tmp_path / "t", **V2)
    [newest] = table.log.glob(f"{10:020d}.checkpoint.*")
    newest.write_bytes(b"PAR1 damaged")
    opened = open_snapshot(Storage.open(table.root), 9)
    redate(table)
    report = clean_log(opened)
    assert "sidecar" not in report.files
    assert "a checkpoint cannot be read" in report.notes[0]
    assert len(list((table.log / "_sidecars").iterdir())) == 4


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("options", [{}, V2], ids=["classic", "v2"])
def test_killed_at_any_point_it_leaves_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    table = aged_table(tmp_path / "t", 9, checkpoints=(2, 4), **options)
    cutoff = int((time.time() // DAY * DAY - 15 * DAY) * 1000)  # version 4 was current then
    states = readable(table.root)
    expected = since(states, 4)
    monkeypatch.setattr(log_cleanup, "_BATCH", 1)
    delete, left = Disk.delete, [0]

    def mortal(self: Disk, keys: Sequence[str]) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        delete(self, keys)

    monkeypatch.setattr(Disk, "delete", mortal)
    total = clean_log(table.handle.snapshot(), before_ms=cutoff, dry_run=True).files_deleted
    assert total >= 8
    for deaths in range(total):
        copy = tmp_path / f"copy-{deaths}"
        shutil.copytree(table.root, copy)  # with the times of the files
        left[0] = deaths
        opened = DeltaTable.for_path(None, copy).snapshot()
        with pytest.raises(KeyboardInterrupt):
            clean_log(opened, before_ms=cutoff)
        found = readable(copy)
        assert (since(found, 4), Peer(str(copy)).version()) == (expected, 8)
        left_over = list_log(opened.storage)
        checkpoints = {each.version for each in left_over.checkpoints}
        # Each has its sidecars, and stays until the commits before the base are gone.
        assert all(found[each] == states[each] for each in checkpoints)
        assert 2 in checkpoints or min(left_over.commits) == 4
        left[0] = total
        assert clean_log(opened, before_ms=cutoff).files_deleted == total - deaths
        assert readable(copy) == expected
        shutil.rmtree(copy)
