"""Downgrades: tables that readers without vectors open, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer

from delvec import DeltaTable
from delvec.delta.alter.table_state import lowest_protocol
from delvec.delta.maintain.downgrade import DowngradeReport, drop_vectors, last_with_vectors
from delvec.delta.read.scan import arrow_scan, read_files
from delvec.delta.schema.protocol import Protocol
from delvec.delta.write.change import Change, Operation
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, Outcome, WriteOptions
from delvec.errors import ConflictError, FormatError, InvalidArgumentError, UnsupportedFeatureError
from tests.delta.builder import TableBuilder, legacy, protocol_of, small_table
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import age, tombstone
from tests.delta.write.write_checks import deletion, files_below, ids, put

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
        gone = tuple(snapshot.files.entries(chosen))
        change = Change(Operation("REORG"), removed=gone, added=(add,), data_change=False)
        return Outcome(change)

    return prepare


def dropped(
    builder: TableBuilder,
    run: Callable[..., WriteReport] | None = None,
    *,
    truncate_history: bool = False,
    **options: Any,  # noqa: ANN401
) -> DowngradeReport:
    given: Any = options
    run, purged = run or builder.handle.run, purge(builder)
    found = builder.handle.snapshot
    return drop_vectors(found, run, purged, given, truncate_history=truncate_history)


@pytest.fixture
def small(tmp_path: Path) -> TableBuilder:
    return small_table(tmp_path)[0]


def operations(root: Path) -> list[str]:
    return [actions[0]["commitInfo"]["operation"] for actions in commits(root)]


def checkpoints(root: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (root / "_delta_log").glob("*.checkpoint*"))


def require_downgraded(root: Path, rows: list[int] | None = None) -> DeltaTable:
    """Check the newest version by delvec, and by an engine that refuses vectors."""
    wanted = ROWS if rows is None else rows
    table = DeltaTable.for_path(None, root)
    assert "deletionVectors" not in table.protocol.features
    assert "delta.enableDeletionVectors" not in table.properties
    assert not table.snapshot().files.has_vector.any()
    assert (table.protocol.min_reader_version, ids(root)) == (1, wanted)
    peer = Peer(root)
    assert peer.protocol().reader_features is None
    assert sorted(peer.to_pyarrow_table()["id"].to_pylist()) == wanted
    return table


def plain_table(root: Path, **options: Any) -> DeltaTable:  # noqa: ANN401
    """A table of one file, with the feature and without a vector."""
    builder = TableBuilder.made(root, **({"protocol": SPARK} | options))
    builder.append("a.parquet", {"id": ROWS})
    return builder.handle


def test_a_table_with_the_feature_and_no_vectors_needs_no_session(tmp_path: Path) -> None:
    report = plain_table(tmp_path).drop_deletion_vectors()
    table = require_downgraded(tmp_path)
    kept = frozenset({"appendOnly", "invariants", "checkpointProtection"})
    assert table.protocol == Protocol(1, 7, frozenset(), kept)
    assert table.properties == {"delta.requireCheckpointProtectionBeforeVersion": "6"}
    steps = ["UNSET TBLPROPERTIES", *["Empty Commit"] * 3, "DROP FEATURE"]
    assert (operations(tmp_path)[2:], checkpoints(tmp_path)) == (steps, [3, 4, 5, 6])
    assert report.version == 6
    assert "version 6, reader 1, writer 7" in str(report)
    assert json.loads(json.dumps(report.to_json()))["commits"][-1]["operation"] == "DROP FEATURE"
    assert ids(tmp_path, 1) == ROWS


def test_a_log_that_never_used_vectors_needs_no_protection(tmp_path: Path) -> None:
    plain_table(tmp_path, properties={}).drop_deletion_vectors()
    assert require_downgraded(tmp_path).protocol == Protocol(1, 2)
    assert operations(tmp_path)[2:] == ["DROP FEATURE"]


def test_without_the_feature_there_is_nothing_to_do(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path, protocol=legacy(1, 2), properties={}).handle
    for truncate in (False, True):
        report = table.drop_deletion_vectors(truncate_history=truncate)
        assert report.version is None
        assert "nothing to do" in str(report)
    assert len(commits(tmp_path)) == 1


def test_vectors_need_a_session_and_nothing_is_changed_without(small: TableBuilder) -> None:
    with pytest.raises(InvalidArgumentError, match="2 files with deletion vectors") as error:
        small.handle.drop_deletion_vectors()
    assert error.value.hint == "pass a session to for_path"
    assert small.handle.drop_deletion_vectors(dry_run=True).dry_run
    assert len(commits(small.root)) == 3


def test_vectors_are_purged_and_older_versions_stay(small: TableBuilder, tmp_path: Path) -> None:
    report = dropped(small, commit_metadata="for old readers")
    require_downgraded(tmp_path)
    assert operations(tmp_path)[3:] == [
        *("UNSET TBLPROPERTIES", "REORG", "Deletion Vector Tombstones"),
        *("Empty Commit", "Empty Commit", "Empty Commit", "DROP FEATURE"),
    ]
    assert (report.files_with_vectors, report.vector_files) == (2, 1)
    assert ids(tmp_path, 2) == ROWS  # through its vectors
    assert ids(tmp_path, 1) == list(range(20))
    final = commits(tmp_path)[-1][0]["commitInfo"]
    assert final["userMetadata"] == "for old readers"
    parameters = {"featureName": "deletionVectors", "truncateHistory": "false"}
    assert final["operationParameters"] == parameters
    # The log has been left as it is: a second call finds nothing to do.
    assert dropped(small).version is None
    # Engines that do not know files of vectors know this one by its tombstone.
    name = small.vector_path().name
    [marks] = [each["remove"] for each in commits(tmp_path)[5] if "remove" in each]
    assert (marks["path"], marks["dataChange"]) == (name, False)
    age(tmp_path, days=10)
    assert name not in Peer(tmp_path).vacuum(full=True, dry_run=True)
    assert name not in Peer(tmp_path).vacuum(dry_run=True)
    assert ids(tmp_path, 2) == ROWS


def test_history_is_truncated_when_it_is_old_enough(small: TableBuilder, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"versions up to 4 .* after 20") as error:
        dropped(small, truncate_history=True)
    assert "run it again after" in (error.value.hint or "")
    report = error.value.report
    assert isinstance(report, DowngradeReport)
    assert [version for version, _ in report.commits] == [3, 4, 5, 6][: len(report.commits)]
    assert report.files_with_vectors == 2
    assert f"(committed before: versions 3 {report.commits[0][1]}, " in str(error.value)
    assert copy(error.value).report == report, "as in a pickle"
    # The vectors are gone, the feature is not.
    assert not small.handle.snapshot().files.has_vector.any()
    assert "deletionVectors" in small.handle.protocol.features
    assert ids(tmp_path) == ROWS
    before = len(commits(tmp_path))
    with pytest.raises(UnsupportedFeatureError, match="after 20") as error:
        dropped(small, truncate_history=True)
    assert (error.value.report, len(commits(tmp_path))) == (None, before)
    age(tmp_path, days=2, log=True)
    report = dropped(small, truncate_history=True)
    table = require_downgraded(tmp_path)
    assert (table.protocol, table.properties) == (Protocol(1, 1), {})
    assert report.log_files_deleted >= 5
    bodies = [body for each in commits(tmp_path) for action in each for body in action.values()]
    assert not any("deletionVector" in body for body in bodies)
    with pytest.raises(InvalidArgumentError, match="cannot be read any more"):
        ids(tmp_path, 2)


def test_protected_history_can_be_truncated_later(small: TableBuilder, tmp_path: Path) -> None:
    dropped(small)
    with pytest.raises(UnsupportedFeatureError, match="versions up to 8"):
        dropped(small, truncate_history=True)
    age(tmp_path, days=2, log=True)
    dropped(small, truncate_history=True)
    table = require_downgraded(tmp_path)
    assert (table.protocol, table.properties) == (Protocol(1, 1), {})


@pytest.mark.parametrize("truncate", [False, True])
def test_a_dry_run_tells_and_changes_nothing(small: TableBuilder, *, truncate: bool) -> None:
    before = files_below(small.root)
    report = dropped(small, dry_run=True, truncate_history=truncate)
    assert files_below(small.root) == before
    assert (report.files_with_vectors, report.version) == (2, None)
    assert "dry run" in str(report)
    assert ("checkpointProtection" in report.after) is not truncate
    assert bool(report.notes) is truncate


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("steps", range(7))
def test_a_call_that_dies_between_two_commits_is_continued(small: TableBuilder, steps: int) -> None:
    left = [steps]

    def dying(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        if not left[0]:
            raise _KilledError
        left[0] -= 1
        return small.handle.run(operation, prepare, options)

    with pytest.raises(_KilledError):
        dropped(small, dying)
    assert (ids(small.root), ids(small.root, 2)) == (ROWS, ROWS)
    dropped(small)
    require_downgraded(small.root)
    done = operations(small.root)
    assert (done.count("Empty Commit"), done.count("REORG")) == (3, 1)


def test_a_call_that_dies_before_a_checkpoint_is_continued(small: TableBuilder) -> None:
    killed = patch("delvec.delta.maintain.downgrade.write_checkpoint", side_effect=_KilledError)
    with killed, pytest.raises(_KilledError):
        dropped(small)
    dropped(small)
    require_downgraded(small.root)
    assert len([each for each in checkpoints(small.root) if each < 10]) >= 3


def competing(
    builder: TableBuilder, compete: Callable[[], object], *, late: bool, at: str = "DROP FEATURE"
) -> Callable[..., WriteReport]:
    """Run operations; let somebody commit once before one of them, or while it commits."""
    waiting = [compete]

    def met(operation: str, moment: bool) -> None:  # noqa: FBT001
        if operation == at and late == moment and waiting:
            builder.version = len(commits(builder.root)) - 1
            waiting.pop()()

    def run(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        def prepared(attempt: Attempt) -> Outcome:
            outcome = prepare(attempt)
            met(operation, True)
            return outcome

        met(operation, False)
        return builder.handle.run(operation, prepared, options)

    return run


@pytest.mark.parametrize("late", [False, True])
def test_a_vector_that_comes_after_the_purge_is_purged(small: TableBuilder, *, late: bool) -> None:
    def delete() -> None:
        [entry] = small.handle.snapshot().files.entries()
        small.delete_rows(dict(entry.add), [0])  # the row with id 1

    dropped(small, competing(small, delete, late=late))
    require_downgraded(small.root, ROWS[1:])
    assert operations(small.root).count("REORG") == 2
    assert operations(small.root).count("DROP FEATURE") == 1


def test_a_file_that_comes_with_a_vector_while_the_protocol_changes(small: TableBuilder) -> None:
    entry = small.write_file("new.parquet", {"id": [77, 78]})
    [vector] = small.write_vectors([0])
    stats = '{"numRecords": 2, "tightBounds": false}'
    # A commit that changes no rows conflicts with no reader of rows.
    entry |= {"dataChange": False, "stats": stats, "deletionVector": vector}
    dropped(small, competing(small, lambda: small.add(entry), late=True))
    require_downgraded(small.root, [*ROWS, 78])


@pytest.mark.parametrize("late", [False, True])
def test_a_property_that_is_set_again_is_unset_again(small: TableBuilder, *, late: bool) -> None:
    dropped(small, competing(small, small.handle.enable_deletion_vectors, late=late))
    require_downgraded(small.root)
    assert operations(small.root).count("UNSET TBLPROPERTIES") == 2


@pytest.mark.parametrize("appends", [False, True])
def test_a_commit_meanwhile_stays_and_is_protected(small: TableBuilder, *, appends: bool) -> None:
    new = small.write_file("new.parquet", {"id": [77]})
    action = {"add": new} if appends else {"txn": {"appId": "a", "version": 1}}
    report = dropped(small, competing(small, lambda: small.commit(action), late=True))
    table = require_downgraded(small.root, [*ROWS, 77] if appends else ROWS)
    protected = table.properties["delta.requireCheckpointProtectionBeforeVersion"]
    assert (table.version, protected) == (report.version, str(report.version))


@pytest.mark.parametrize("dies", [False, True])
def test_a_restored_file_is_live_for_readers_of_paths(tmp_path: Path, *, dies: bool) -> None:
    builder = TableBuilder.made(tmp_path, protocol=SPARK)
    add = builder.append("a.parquet", {"id": ROWS})
    builder.commit(tombstone(builder.delete_rows(add, [0]), 0), {"add": add})

    def run(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        report = builder.handle.run(operation, prepare, options)
        if dies and operation == "DROP FEATURE":
            raise _KilledError  # then readers begin at the checkpoint before
        return report

    with suppress(_KilledError):
        dropped(builder, run)
    table = require_downgraded(tmp_path)
    newest = max((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    rows = pq.read_table(newest).to_pylist()
    assert [row["add"]["path"] for row in rows if row["add"]] == ["a.parquet"]
    # The tombstone of the vector's file alone is left.
    assert [row["remove"]["path"] for row in rows if row["remove"]] == [builder.vector_path().name]
    table.checkpoint()
    assert ids(tmp_path, 2) == ROWS[1:]


def test_a_damaged_commit_is_named(tmp_path: Path) -> None:
    table = plain_table(tmp_path)
    table.checkpoint()
    path = tmp_path / "_delta_log" / f"{1:020}.json"
    path.write_text(path.read_text() + '{"add": {"deletionVector": {\n')
    with pytest.raises(FormatError, match=path.name):
        last_with_vectors(table.snapshot())


def test_a_delete_that_read_the_table_before_all_this_conflicts(small: TableBuilder) -> None:
    snapshot = small.handle.snapshot()
    killed = competing(small, Mock(side_effect=_KilledError), at="REORG", late=False)
    with pytest.raises(_KilledError):
        dropped(small, killed)
    with pytest.raises(ConflictError, match="changed the metadata"):
        put(snapshot, deletion(snapshot, {"part-0.parquet": [1]}))


def test_writers_that_never_stop_are_named(small: TableBuilder) -> None:
    def run(operation: str, prepare: Prepare, options: WriteOptions) -> WriteReport:
        if operation == "DROP FEATURE":
            small.handle.enable_deletion_vectors()
        return small.handle.run(operation, prepare, options)

    with pytest.raises(ConflictError, match="brought deletion vectors back"):
        dropped(small, run, max_retries=1)
    assert ids(small.root) == ROWS


def test_the_transaction_of_the_caller_is_that_of_the_last_commit(small: TableBuilder) -> None:
    dropped(small, txn_app_id="job", txn_version=7)
    require_downgraded(small.root)
    made = [any("txn" in action for action in actions) for actions in commits(small.root)]
    assert [number for number, each in enumerate(made) if each] == [len(made) - 1]


def test_other_features_stay(tmp_path: Path) -> None:
    others = ["v2Checkpoint", "columnMapping"]
    protocol = protocol_of("deletionVectors", *others, writers=["domainMetadata"])
    table = plain_table(tmp_path, protocol=protocol)
    table.drop_deletion_vectors()
    writers = frozenset({*others, "domainMetadata", "checkpointProtection"})
    assert (table.protocol, ids(tmp_path)) == (Protocol(3, 7, frozenset(others), writers), ROWS)


WRITER_2 = ["appendOnly", "invariants"]
WRITER_5 = [*WRITER_2, "checkConstraints", "generatedColumns", "changeDataFeed", "columnMapping"]


@pytest.mark.parametrize(
    ("features", "versions"),
    [
        ([], (1, 1)),
        (WRITER_2, (1, 2)),
        ([*WRITER_2, "checkConstraints"], (1, 3)),
        (["appendOnly"], (1, 7)),
        (["columnMapping"], (2, 7)),
        (["timestampNtz", "appendOnly"], (3, 7)),
        (["somethingNew"], (3, 7)),
        (WRITER_5, (2, 5)),
    ],
)
def test_the_protocol_is_the_lowest(features: list[str], versions: tuple[int, int]) -> None:
    protocol = lowest_protocol(features)
    assert (protocol.min_reader_version, protocol.min_writer_version) == versions
    assert protocol.supported == frozenset(features)
    assert Protocol.from_json(protocol.to_json()) == protocol
