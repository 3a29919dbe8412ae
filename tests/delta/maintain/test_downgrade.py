"""Downgrades: tables that readers without vectors open, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer

from delvec import DeltaTable
from delvec.delta.maintain.downgrade import DowngradeReport, drop_vectors
from delvec.delta.maintain.vector_versions import last_with_vectors, lowest_protocol
from delvec.delta.read.file_reader import read_files
from delvec.delta.read.scan import arrow_scan
from delvec.delta.schema.protocol import Protocol
from delvec.delta.write.change import Base, Change, Operation, VectorUpdate
from delvec.delta.write.commit import commit
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, Outcome, WriteOptions
from delvec.errors import ConflictError, FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap
from tests.delta.builder import TableBuilder, legacy, protocol_of, small_table
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import age, tombstone
from tests.delta.write.write_checks import ids

Prepare = Callable[[Attempt], Outcome]

ROWS = [*range(1, 9), *range(10, 13), *range(15, 20)]
SPARK = protocol_of("deletionVectors", writers=["invariants", "appendOnly"])


def purge(builder: TableBuilder) -> Prepare:
    """Rewrite files with vectors, as Spark does."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        chosen = np.flatnonzero(snapshot.files.has_vector)
        files = snapshot.files.data_files(chosen)
        rows = pa.Table.from_batches(read_files(snapshot.storage, files, arrow_scan(snapshot)))
        add = builder.write_file(f"part-{uuid4()}.parquet", rows) | {"dataChange": False}
        change = Change(
            Operation("REORG"),
            removed=tuple(snapshot.files.entries(chosen)),
            added=(add,),
            data_change=False,
        )
        return Outcome(change)

    return prepare


def dropped(
    builder: TableBuilder,
    run: Callable[..., WriteReport] | None = None,
    *,
    truncate_history: bool = False,
    **options: Any,  # noqa: ANN401
) -> DowngradeReport:
    table = builder.handle
    return drop_vectors(
        table.snapshot,
        run or table.run,
        purge(builder),
        options,  # type: ignore[arg-type]
        truncate_history=truncate_history,
    )


def operations(root: Path) -> list[str]:
    return [actions[0]["commitInfo"]["operation"] for actions in commits(root)]


def checkpoints(root: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (root / "_delta_log").glob("*.checkpoint*"))


def require_downgraded(root: Path, rows: list[int] | None = None) -> None:
    """Check the newest version by delvec, and by an engine that refuses vectors."""
    wanted = ROWS if rows is None else rows
    table = DeltaTable.for_path(None, root)
    assert "deletionVectors" not in table.protocol.features
    assert table.protocol.min_reader_version == 1
    assert "delta.enableDeletionVectors" not in table.properties
    assert not table.snapshot().files.has_vector.any()
    assert ids(root) == wanted
    peer = Peer(root)
    assert peer.protocol().reader_features is None
    assert sorted(peer.to_pyarrow_table()["id"].to_pylist()) == wanted


def test_a_table_with_the_feature_and_no_vectors_needs_no_session(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path, protocol=SPARK)
    builder.append("a.parquet", {"id": ROWS})
    report = DeltaTable.for_path(None, tmp_path).drop_deletion_vectors()
    require_downgraded(tmp_path)
    table = DeltaTable.for_path(None, tmp_path)
    assert table.protocol == Protocol(
        1, 7, frozenset(), frozenset({"appendOnly", "invariants", "checkpointProtection"})
    )
    assert table.properties == {"delta.requireCheckpointProtectionBeforeVersion": "6"}
    assert operations(tmp_path)[2:] == [
        "UNSET TBLPROPERTIES",
        *["Empty Commit"] * 3,
        "DROP FEATURE",
    ]
    assert (checkpoints(tmp_path), report.version) == ([3, 4, 5, 6], 6)
    assert "version 6, reader 1, writer 7" in str(report)
    assert json.loads(json.dumps(report.to_json()))["commits"][-1]["operation"] == "DROP FEATURE"
    assert ids(tmp_path, 1) == ROWS


def test_a_log_that_never_used_vectors_needs_no_protection(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path, protocol=SPARK, properties={})
    builder.append("a.parquet", {"id": ROWS})
    DeltaTable.for_path(None, tmp_path).drop_deletion_vectors()
    require_downgraded(tmp_path)
    assert DeltaTable.for_path(None, tmp_path).protocol == Protocol(1, 2)
    assert operations(tmp_path)[2:] == ["DROP FEATURE"]


def test_without_the_feature_there_is_nothing_to_do(tmp_path: Path) -> None:
    TableBuilder.made(tmp_path, protocol=legacy(1, 2), properties={})
    for truncate in (False, True):
        report = DeltaTable.for_path(None, tmp_path).drop_deletion_vectors(
            truncate_history=truncate
        )
        assert report.version is None
        assert "nothing to do" in str(report)
    assert len(commits(tmp_path)) == 1


def test_vectors_need_a_session_and_nothing_is_changed_without(tmp_path: Path) -> None:
    small_table(tmp_path)
    with pytest.raises(InvalidArgumentError, match="2 files with deletion vectors") as error:
        DeltaTable.for_path(None, tmp_path).drop_deletion_vectors()
    assert error.value.hint == "pass a session to for_path"
    assert DeltaTable.for_path(None, tmp_path).drop_deletion_vectors(dry_run=True).dry_run
    assert len(commits(tmp_path)) == 3


def test_vectors_are_purged_and_older_versions_stay(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    report = dropped(builder, commit_metadata="for old readers")
    require_downgraded(tmp_path)
    assert operations(tmp_path)[3:] == [
        "UNSET TBLPROPERTIES",
        "REORG",
        "Deletion Vector Tombstones",
        *["Empty Commit"] * 3,
        "DROP FEATURE",
    ]
    assert (report.files_with_vectors, report.vector_files) == (2, 1)
    assert ids(tmp_path, 2) == ROWS  # through its vectors
    assert ids(tmp_path, 1) == list(range(20))
    final = commits(tmp_path)[-1]
    assert final[0]["commitInfo"]["userMetadata"] == "for old readers"
    assert final[0]["commitInfo"]["operationParameters"] == {
        "featureName": "deletionVectors",
        "truncateHistory": "false",
    }
    # The log has been left as it is: a second call finds nothing to do.
    assert dropped(builder).version is None


def test_vector_files_of_older_versions_are_safe_from_older_engines(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    dropped(builder)
    name = builder.vector_path().name
    [marks] = [each for each in commits(tmp_path)[5] if "remove" in each]
    assert marks["remove"]["path"] == name
    assert marks["remove"]["dataChange"] is False
    age(tmp_path, days=10)
    assert name not in Peer(tmp_path).vacuum(full=True, dry_run=True)
    assert name not in Peer(tmp_path).vacuum(dry_run=True)
    assert ids(tmp_path, 2) == ROWS


def test_history_is_truncated_when_it_is_old_enough(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match=r"versions up to 4 .* after 20") as error:
        dropped(builder, truncate_history=True)
    assert "run it again after" in (error.value.hint or "")
    report = error.value.report
    assert isinstance(report, DowngradeReport)
    assert [version for version, _ in report.commits] == [3, 4, 5, 6][: len(report.commits)]
    assert report.files_with_vectors == 2
    assert f"(committed before: versions 3 {report.commits[0][1]}, " in str(error.value)
    assert copy(error.value).report == report, "as in a pickle"
    # The vectors are gone, the feature is not.
    assert not DeltaTable.for_path(None, tmp_path).snapshot().files.has_vector.any()
    assert "deletionVectors" in DeltaTable.for_path(None, tmp_path).protocol.features
    assert ids(tmp_path) == ROWS
    before = len(commits(tmp_path))
    with pytest.raises(UnsupportedFeatureError, match="after 20") as error:
        dropped(builder, truncate_history=True)
    assert error.value.report is None
    assert len(commits(tmp_path)) == before
    age(tmp_path, days=2, log=True)
    report = dropped(builder, truncate_history=True)
    require_downgraded(tmp_path)
    table = DeltaTable.for_path(None, tmp_path)
    assert (table.protocol, table.properties) == (Protocol(1, 1), {})
    assert report.log_files_deleted >= 5
    bodies = [body for each in commits(tmp_path) for action in each for body in action.values()]
    assert not any("deletionVector" in body for body in bodies)
    with pytest.raises(InvalidArgumentError, match="cannot be read any more"):
        ids(tmp_path, 2)


def test_protected_history_can_be_truncated_later(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    dropped(builder)
    with pytest.raises(UnsupportedFeatureError, match="versions up to 8"):
        dropped(builder, truncate_history=True)
    age(tmp_path, days=2, log=True)
    dropped(builder, truncate_history=True)
    require_downgraded(tmp_path)
    table = DeltaTable.for_path(None, tmp_path)
    assert (table.protocol, table.properties) == (Protocol(1, 1), {})


@pytest.mark.parametrize("truncate", [False, True])
def test_a_dry_run_tells_and_changes_nothing(tmp_path: Path, *, truncate: bool) -> None:
    builder, _ = small_table(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report = dropped(builder, dry_run=True, truncate_history=truncate)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert report.files_with_vectors == 2
    assert report.version is None
    assert "dry run" in str(report)
    assert ("checkpointProtection" in report.after) is not truncate
    assert bool(report.notes) is truncate


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("steps", range(7))
def test_a_call_that_dies_between_two_commits_is_continued(tmp_path: Path, steps: int) -> None:
    builder, _ = small_table(tmp_path)
    table = DeltaTable.for_path(None, tmp_path)
    left = [steps]

    def dying(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        if not left[0]:
            raise _KilledError
        left[0] -= 1
        return table.run(operation, prepare, options)

    with pytest.raises(_KilledError):
        dropped(builder, dying)
    assert (ids(tmp_path), ids(tmp_path, 2)) == (ROWS, ROWS)
    dropped(builder)
    require_downgraded(tmp_path)
    assert operations(tmp_path).count("Empty Commit") == 3
    assert operations(tmp_path).count("REORG") == 1


def test_a_death_before_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder, _ = small_table(tmp_path)

    def fails(_: object, **__: object) -> None:
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr("delvec.delta.maintain.downgrade.write_checkpoint", fails)
        with pytest.raises(_KilledError):
            dropped(builder)
    dropped(builder)
    require_downgraded(tmp_path)
    assert len([each for each in checkpoints(tmp_path) if each < 10]) >= 3


def competing(
    builder: TableBuilder, compete: Callable[[], None], *, at: str, late: bool
) -> Callable[..., WriteReport]:
    """Run operations; let somebody commit once before one of them, or while it commits."""
    table = builder.handle
    waiting = [compete]

    def run(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        def prepared(attempt: Attempt) -> Outcome:
            outcome = prepare(attempt)
            if operation == at and late and waiting:
                waiting.pop()()
            return outcome

        if operation == at and not late and waiting:
            waiting.pop()()
        return table.run(operation, prepared, options)

    return run


@pytest.mark.parametrize("late", [False, True])
def test_a_vector_that_comes_after_the_purge_is_purged(tmp_path: Path, *, late: bool) -> None:
    builder, _ = small_table(tmp_path)

    def delete() -> None:
        builder.version = len(commits(tmp_path)) - 1
        [entry] = DeltaTable.for_path(None, tmp_path).snapshot().files.entries()
        builder.delete_rows(dict(entry.add), [0])

    dropped(builder, competing(builder, delete, at="DROP FEATURE", late=late))
    require_downgraded(tmp_path, ROWS[1:])
    assert operations(tmp_path).count("REORG") == 2
    assert operations(tmp_path).count("DROP FEATURE") == 1


def test_a_file_that_comes_with_a_vector_while_the_protocol_is_committed(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)

    def add() -> None:
        builder.version = len(commits(tmp_path)) - 1
        entry = builder.write_file("new.parquet", {"id": [77, 78]})
        [vector] = builder.write_vectors([0])
        stats = '{"numRecords": 2, "tightBounds": false}'
        # A commit that changes no rows conflicts with no reader of rows.
        entry |= {"dataChange": False, "stats": stats, "deletionVector": vector}
        builder.add(entry)

    dropped(builder, competing(builder, add, at="DROP FEATURE", late=True))
    require_downgraded(tmp_path, [*ROWS, 78])


@pytest.mark.parametrize("late", [False, True])
def test_a_property_that_is_set_again_is_switched_off_again(tmp_path: Path, *, late: bool) -> None:
    builder, _ = small_table(tmp_path)

    def enable() -> None:
        DeltaTable.for_path(None, tmp_path).enable_deletion_vectors()

    dropped(builder, competing(builder, enable, at="DROP FEATURE", late=late))
    require_downgraded(tmp_path)
    assert operations(tmp_path).count("UNSET TBLPROPERTIES") == 2


@pytest.mark.parametrize("appends", [False, True])
def test_a_commit_meanwhile_stays_and_is_protected(tmp_path: Path, *, appends: bool) -> None:
    builder, _ = small_table(tmp_path)

    def compete() -> None:
        builder.version = len(commits(tmp_path)) - 1
        new = builder.write_file("new.parquet", {"id": [77]})
        builder.commit({"add": new} if appends else {"txn": {"appId": "a", "version": 1}})

    report = dropped(builder, competing(builder, compete, at="DROP FEATURE", late=True))
    require_downgraded(tmp_path, [*ROWS, 77] if appends else ROWS)
    table = DeltaTable.for_path(None, tmp_path)
    assert report.version == table.version
    protected = table.properties["delta.requireCheckpointProtectionBeforeVersion"]
    assert protected == str(report.version)


@pytest.mark.parametrize("dies", [False, True])
def test_a_restored_file_is_live_for_readers_of_paths(tmp_path: Path, *, dies: bool) -> None:
    builder = TableBuilder.made(tmp_path, protocol=SPARK)
    add = builder.append("a.parquet", {"id": ROWS})
    with_vector = builder.delete_rows(add, [0])
    builder.commit(tombstone(with_vector, 0), {"add": add})
    table = DeltaTable.for_path(None, tmp_path)

    def run(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        report = table.run(operation, prepare, options)
        if dies and operation == "DROP FEATURE":
            raise _KilledError  # then readers begin at the checkpoint before
        return report

    with suppress(_KilledError):
        dropped(builder, run)
    require_downgraded(tmp_path)
    newest = max((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    rows = pq.read_table(newest).to_pylist()
    assert [row["add"]["path"] for row in rows if row["add"]] == ["a.parquet"]
    # The tombstone of the vector's file alone is left.
    assert [row["remove"]["path"] for row in rows if row["remove"]] == [builder.vector_path().name]
    assert sorted(Peer(tmp_path).to_pyarrow_table()["id"].to_pylist()) == ROWS
    DeltaTable.for_path(None, tmp_path).checkpoint()
    assert ids(tmp_path, 2) == ROWS[1:]


def test_a_damaged_commit_is_named(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path, protocol=SPARK)
    builder.append("a.parquet", {"id": ROWS})
    DeltaTable.for_path(None, tmp_path).checkpoint()
    path = builder.commit_path(1)
    path.write_text(path.read_text() + '{"add": {"deletionVector": {\n')
    with pytest.raises(FormatError, match=path.name):
        last_with_vectors(DeltaTable.for_path(None, tmp_path).snapshot())


def test_a_delete_that_read_the_table_before_it_was_switched_off_conflicts(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    table = DeltaTable.for_path(None, tmp_path)
    snapshot = table.snapshot()
    entry = snapshot.files.entries()[0]
    change = Change(
        Operation("DELETE"), vector_updates=(VectorUpdate(entry, 10, Bitmap([0, 1, 9])),)
    )
    with pytest.raises(_KilledError):
        dropped(builder, competing(builder, _die, at="REORG", late=False))
    with UncommittedFiles(table.storage) as uncommitted, pytest.raises(ConflictError) as error:
        commit(Base.of(snapshot), change, uncommitted)
    assert "changed the metadata" in str(error.value)


def _die() -> None:
    raise _KilledError


def test_writers_that_never_stop_are_named(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    table = DeltaTable.for_path(None, tmp_path)

    def run(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        if operation == "DROP FEATURE":
            table.enable_deletion_vectors()
        return table.run(operation, prepare, options)

    with pytest.raises(ConflictError, match="brought deletion vectors back"):
        dropped(builder, run, max_retries=1)
    assert ids(tmp_path) == ROWS


def test_the_transaction_of_the_caller_is_that_of_the_last_commit(tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    dropped(builder, txn_app_id="job", txn_version=7)
    require_downgraded(tmp_path)
    assert [
        number
        for number, actions in enumerate(commits(tmp_path))
        if any("txn" in action for action in actions)
    ] == [len(commits(tmp_path)) - 1]


def test_other_features_stay(tmp_path: Path) -> None:
    features = ["deletionVectors", "v2Checkpoint", "columnMapping"]
    protocol = protocol_of(*features, writers=["domainMetadata"])
    builder = TableBuilder.made(tmp_path, protocol=protocol)
    builder.append("a.parquet", {"id": ROWS})
    table = DeltaTable.for_path(None, tmp_path)
    table.drop_deletion_vectors()
    assert table.protocol == Protocol(
        3,
        7,
        frozenset({"v2Checkpoint", "columnMapping"}),
        frozenset({"v2Checkpoint", "columnMapping", "domainMetadata", "checkpointProtection"}),
    )
    assert ids(tmp_path) == ROWS


@pytest.mark.parametrize(
    ("features", "versions"),
    [
        ([], (1, 1)),
        (["appendOnly", "invariants"], (1, 2)),
        (["appendOnly", "invariants", "checkConstraints"], (1, 3)),
        (["appendOnly"], (1, 7)),
        (["columnMapping"], (2, 7)),
        (["timestampNtz", "appendOnly"], (3, 7)),
        (["somethingNew"], (3, 7)),
        (
            [
                *("appendOnly", "invariants", "checkConstraints", "generatedColumns"),
                *("changeDataFeed", "columnMapping"),
            ],
            (2, 5),
        ),
    ],
)
def test_the_protocol_is_the_lowest(features: list[str], versions: tuple[int, int]) -> None:
    protocol = lowest_protocol(features)
    assert (protocol.min_reader_version, protocol.min_writer_version) == versions
    assert protocol.supported == frozenset(features)
    assert Protocol.from_json(protocol.to_json()) == protocol
