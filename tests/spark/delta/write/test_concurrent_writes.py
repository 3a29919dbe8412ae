"""Writers at the same time: who loses a race unites, begins again or gives up; no row is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, local
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

import delvec.delta.write.transaction as running
from delvec import DeltaTable
from delvec.delta.skipping.predicate import Always
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.commit import commit
from delvec.delta.write.report import WriteReport
from delvec.errors import ConflictError
from tests.delta.builder import TableBuilder
from tests.delta.log_files import newest_version
from tests.delta.write.write_checks import (
    deletion,
    files_below,
    ids,
    live,
    positions,
    put_next,
    unnamed_files,
)
from tests.spark.delta.spark_tables import as_delta_spark_reads
from tests.spark.delta.write.crash_child import race
from tests.spark.delta.write.judge import Meanwhile

WRITERS = 8
Row = tuple[int, int]


def add_rows(builder: TableBuilder, name: str, rows: list[Row]) -> dict[str, Any]:
    """Write a file of rows with its statistics."""
    columns = {"id": [row[0] for row in rows], "n": [row[1] for row in rows]}
    entry = builder.write_file(name, columns)
    bounds = {
        name: {key: bound(values) for key, values in columns.items()}
        for name, bound in (("minValues", min), ("maxValues", max))
    }
    nulls = {"nullCount": dict.fromkeys(columns, 0)}
    return entry | {"stats": json.dumps({"numRecords": len(rows)} | bounds | nulls)}


def make(path: Path, files: int, rows: int, level: str = "Serializable") -> TableBuilder:
    """Make a table of files of rows with ids from 0 on; `n` is the same."""
    builder = TableBuilder(
        path,
        fields={"id": "long", "n": "long"},
        properties={"delta.enableDeletionVectors": "true", "delta.isolationLevel": level},
    )
    builder.create()
    starts = range(0, files * rows, rows)
    adds = [
        add_rows(builder, f"part-{start:04}", [(id_, id_) for id_ in range(start, start + rows)])
        for start in starts
    ]
    builder.commit(*({"add": add} for add in adds))
    return builder


def shares(count: int, rows: int, digits: int = 1) -> list[dict[str, Any]]:
    """The ids that each of some writers deletes, by their last digits."""
    wanted = [range(first, first + digits) for first in range(count)]
    return [{"gone": [id_ for id_ in range(rows) if id_ % 10 in each]} for each in wanted]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("act", ["delete", "delete on Spark"])
def test_processes_that_delete_other_rows_of_the_same_files_all_succeed(
    spark: SparkSession, tmp_path: Path, act: str
) -> None:
    path = make(tmp_path / "t", 2, 80).root
    told = race(path, act, shares(WRITERS, 160))
    left = [id_ for id_ in range(160) if id_ % 10 >= WRITERS]
    assert ids(path) == left
    assert rows_in_delta_spark(spark, path) == [(id_, id_) for id_ in left]
    assert [each["rows"] for each in told] == [16] * WRITERS
    assert sum(each["reconciled"] for each in told) > 0
    assert sum(each.get("conflicts", 0) for each in told) == 0
    assert {each.get("scans", 1) for each in told} == {1}
    assert newest_version(path) == 1 + WRITERS
    assert not unnamed_files(path)


@pytest.mark.slow
def test_processes_that_delete_the_same_rows_count_each_once(tmp_path: Path) -> None:
    path = make(tmp_path / "t", 2, 40).root
    told = race(path, "delete", shares(4, 80, digits=3))
    assert ids(path) == [id_ for id_ in range(80) if id_ % 10 > 5]
    assert sum(each["rows"] for each in told) == 48
    assert not unnamed_files(path)


# Threads of one session.
def at_once(monkeypatch: pytest.MonkeyPatch, writers: int) -> None:
    """Let threads wait for each other before the first commit of each."""
    barrier, seen = Barrier(writers, timeout=120), local()

    def together(*arguments: Any) -> Any:  # noqa: ANN401
        if not hasattr(seen, "waited"):
            seen.waited = True
            barrier.wait()
        return commit(*arguments)

    monkeypatch.setattr(running, "commit", together)


def rows_in_delta_spark(spark: SparkSession, path: Path) -> list[Row]:
    found = as_delta_spark_reads(spark, path).toArrow()
    return sorted(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.spark
def test_threads_that_delete_other_rows_of_the_same_files_scan_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "t", 2, 80).root
    at_once(monkeypatch, WRITERS)

    def write(writer: int) -> WriteReport:
        return DeltaTable.for_path(spark, path).delete(f"id % 10 = {writer}")

    with ThreadPoolExecutor(WRITERS) as pool:
        reports = list(pool.map(write, range(WRITERS)))
    left = [id_ for id_ in range(160) if id_ % 10 >= WRITERS]
    assert ids(path) == left
    assert rows_in_delta_spark(spark, path) == [(id_, id_) for id_ in left]
    assert [report.rows_deleted for report in reports] == [16] * WRITERS
    assert [report.scans for report in reports] == [1] * WRITERS
    assert sorted(report.version or 0 for report in reports) == list(range(2, 2 + WRITERS))
    assert sum(report.reconciled for report in reports) >= 2 * (WRITERS - 1)
    assert not unnamed_files(path)


@pytest.mark.spark
def test_threads_that_delete_the_same_rows_begin_again_or_give_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "t", 2, 40).root
    at_once(monkeypatch, 4)

    def write(writer: int) -> WriteReport | ConflictError:
        wanted = f"id % 10 IN ({writer}, {writer + 1})"
        try:
            return DeltaTable.for_path(spark, path).delete(wanted, max_retries=writer % 2 * 10)
        except ConflictError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(write, range(4)))
    reports = {
        writer: outcome
        for writer, outcome in enumerate(outcomes)
        if not isinstance(outcome, ConflictError)
    }
    assert {1, 3} <= reports.keys(), "who may begin again succeeds"
    gone = {digit for writer in reports for digit in (writer, writer + 1)}
    assert ids(path) == [id_ for id_ in range(80) if id_ % 10 not in gone]
    assert sum(report.rows_deleted for report in reports.values()) == 8 * len(gone)
    assert not unnamed_files(path)


# Every kind of winner against every operation.
class Winner(NamedTuple):
    """What another writer commits between our work and our commit, and what it does to rows."""

    act: Callable[[SparkSession, Path], object]
    rows: Callable[[list[Row]], list[Row]]


def appending(*rows: Row) -> Winner:
    def act(_: SparkSession, path: Path) -> None:
        entry = add_rows(TableBuilder(path), f"new-{rows[0][0]}", list(rows))
        put_next(path, lambda _: Change(Operation("WRITE"), added=(entry,)))

    return Winner(act, lambda before: [*before, *rows])


def deleting(*gone: int) -> Winner:
    return Winner(
        lambda _, path: put_next(path, lambda it: deletion(it, positions(path, gone))),
        lambda before: [row for row in before if row[0] not in gone],
    )


def updating(id_: int, n: int) -> Winner:
    """Update a row to one that our operations look for."""

    def act(_: SparkSession, path: Path) -> None:
        entry = add_rows(TableBuilder(path), f"updated-{id_}", [(id_, n)])
        rows = positions(path, [id_])
        put_next(path, lambda it: deletion(it, rows, Operation("UPDATE"), added=(entry,)))

    return Winner(act, lambda before: [row for row in before if row[0] != id_] + [(id_, n)])


def removing(name: str, gone: range) -> Winner:
    def change(snapshot: Any) -> Change:  # noqa: ANN401
        operation = Operation("DELETE", reads=ReadSet(Always()))
        return Change(operation, removed=(live(snapshot)[name],))

    return Winner(
        lambda _, path: put_next(path, change),
        lambda before: [row for row in before if row[0] not in gone],
    )


def statement(text: str, rows: Callable[[list[Row]], list[Row]]) -> Winner:
    """Let delta-spark do it."""
    return Winner(lambda spark, path: spark.sql(text.replace("{T}", f"delta.`{path}`")), rows)


def same(before: list[Row]) -> list[Row]:
    return before


WINNERS = {
    "append of rows that match": appending((5, 3), (5, 4)),
    "append of other rows": appending((100, 3)),
    "delete of other rows": deleting(4, 14),
    "delete of the same rows": deleting(3),
    "delete of a whole file": removing("part-0010", range(10, 20)),
    "update to rows that match": updating(4, 3),
    "restore": statement(
        "RESTORE TABLE {T} TO VERSION AS OF 1", lambda before: sorted({*before, (9, 9)})
    ),
    "optimize": statement("OPTIMIZE {T}", same),
    "metadata": Winner(
        lambda _, path: DeltaTable.for_path(None, path).set_properties({"user.key": "1"}), same
    ),
}


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(list(rows), "id long, n long")


MATCH = "id < 20 AND n % 10 = 3"
OPERATIONS: dict[str, Callable[[SparkSession, DeltaTable], WriteReport]] = {
    "DELETE": lambda _, table: table.delete(MATCH),
    "UPDATE": lambda _, table: table.update({"n": "-1"}, MATCH),
    "MERGE": lambda spark, table: (
        table.merge(frame(spark, (3, 0), (13, 0), (25, 25)), "t.id = s.id")
        .when_matched_update({"n": "-1"}, "t.n % 10 = 3")
        .when_not_matched_insert_all()
        .execute()
    ),
    "append": lambda spark, table: table.append(frame(spark, (30, 30))),
    "overwrite": lambda spark, table: table.overwrite(frame(spark, (30, 30))),
}


def _merged(rows: list[Row]) -> list[Row]:
    new = [(id_, -1 if id_ in (3, 13) and n % 10 == 3 else n) for id_, n in rows]
    return new + [
        (id_, n) for id_, n in ((3, 0), (13, 0), (25, 25)) if id_ not in {r[0] for r in rows}
    ]


def _matches(row: Row) -> bool:
    return row[0] < 20 and row[1] % 10 == 3


MODELS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "DELETE": lambda rows: [row for row in rows if not _matches(row)],
    "UPDATE": lambda rows: [(row[0], -1) if _matches(row) else row for row in rows],
    "MERGE": _merged,
    "append": lambda rows: [*rows, (30, 30)],
    "overwrite": lambda _: [(30, 30)],
}


def outcome_of(winner: str, operation: str, level: str) -> str:
    """Say what becomes of a commit that finds such a winner."""
    if winner in ("metadata", "restore"):  # delta-spark's RESTORE writes the metadata, too
        return "retry"
    if operation == "append":
        return "stands"
    if winner.startswith("append"):
        if level == "WriteSerializable":
            return "stands"
        is_looked_for = winner == "append of rows that match" or operation == "overwrite"
        return "retry" if is_looked_for else "stands"
    if winner == "delete of other rows" and operation in ("DELETE", "UPDATE"):
        return "united"
    return "retry"


QUICK = {
    ("DELETE", "append of rows that match", "Serializable"),
    ("DELETE", "append of rows that match", "WriteSerializable"),
    ("DELETE", "delete of the same rows", "Serializable"),
    ("DELETE", "optimize", "Serializable"),
    ("UPDATE", "delete of other rows", "Serializable"),
    ("append", "metadata", "Serializable"),
}
CASES = [
    pytest.param(
        operation,
        winner,
        level,
        marks=() if (operation, winner, level) in QUICK else pytest.mark.slow,
        id=f"{operation}-{winner}-{level}",
    )
    for operation in OPERATIONS
    for winner in WINNERS
    for level in ("Serializable", "WriteSerializable")
    # delta-spark refuses to write to tables of the other level.
    if level == "Serializable" or winner not in ("restore", "optimize")
]
START = [(id_, id_) for id_ in range(20) if id_ != 9]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table of each isolation level: two files of ten rows, of which one is deleted."""
    found = {}
    for level in ("Serializable", "WriteSerializable"):
        path = make(tmp_path_factory.mktemp("base") / "t", 2, 10, level).root
        put_next(path, lambda it, path=path: deletion(it, positions(path, [9])))  # type: ignore[misc]
        found[level] = path
    return found


@pytest.mark.quick_cases(2)
@pytest.mark.spark
@pytest.mark.parametrize(("operation", "winner", "level"), CASES)
def test_what_becomes_of_a_commit_that_comes_second(
    spark: SparkSession,
    tmp_path: Path,
    meanwhile: Meanwhile,
    bases: dict[str, Path],
    operation: str,
    winner: str,
    level: str,
) -> None:
    path = shutil.copytree(bases[level], tmp_path / "t")
    first = WINNERS[winner]
    tried = meanwhile(lambda: first.act(spark, path))
    report = OPERATIONS[operation](spark, DeltaTable.for_path(spark, path))
    outcome = outcome_of(winner, operation, level)
    assert (report.version, report.attempts) == (4, 2)
    assert len(tried) == (2 if outcome == "retry" else 1)
    scanned = operation in ("DELETE", "UPDATE", "MERGE")
    assert report.scans == scanned * len(tried)
    assert (report.reconciled > 0) == (outcome == "united")
    ours = MODELS[operation]
    if outcome == "stands" and operation != "append":
        expected = first.rows(ours(START))
    else:
        expected = ours(first.rows(START))
    table = DeltaTable.for_path(None, path).to_arrow()
    found = sorted(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert found == sorted(expected)
    assert rows_in_delta_spark(spark, path) == sorted(expected)
    assert not unnamed_files(path)
    if operation == "DELETE":
        assert report.rows_deleted == len(first.rows(START)) - len(expected)


@pytest.mark.quick_cases(1)
@pytest.mark.spark
@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_a_conflict_without_retries_leaves_what_the_winner_made(
    spark: SparkSession,
    tmp_path: Path,
    meanwhile: Meanwhile,
    bases: dict[str, Path],
    operation: str,
) -> None:
    path = shutil.copytree(bases["Serializable"], tmp_path / "t")
    seen: list[dict[str, bytes]] = []

    def first() -> None:
        ours = unnamed_files(path)
        WINNERS["optimize"].act(spark, path)
        theirs = files_below(path)
        seen.append({name: theirs[name] for name in theirs if not _is_of(name, ours)})

    meanwhile(first)
    table = DeltaTable.for_path(spark, path)
    act = table.delete if operation == "DELETE" else partial(table.update, {"n": "-1"})
    with pytest.raises(ConflictError, match=r"version 3 .*OPTIMIZE.* removed or rewrote") as caught:
        act(MATCH, max_retries=0)
    assert caught.value.version == 3
    assert caught.value.hint
    assert files_below(path) == seen[0]
    assert ids(path) == [row[0] for row in START]


def _is_of(name: str, files: set[str]) -> bool:
    """Tell whether it is one of the files, or holds Hadoop's checksum of one."""
    path = Path(name)
    return name in files or str(path.parent / path.name[1:-4]) in files


@pytest.mark.spark
def test_a_transaction_that_won_elsewhere_is_not_done_twice(
    spark: SparkSession, tmp_path: Path, meanwhile: Meanwhile, bases: dict[str, Path]
) -> None:
    path = shutil.copytree(bases["Serializable"], tmp_path / "t")
    rows, table = frame(spark, (30, 30)), DeltaTable.for_path(spark, path)

    def twin() -> None:
        DeltaTable.for_path(spark, path).append(rows, txn_app_id="job", txn_version=7)

    meanwhile(twin)
    report = table.append(rows, txn_app_id="job", txn_version=7)
    assert report.version is None
    assert "transaction 7 of job is in already" in report.notes[0]
    assert ids(path) == [*(row[0] for row in START), 30]
    assert not unnamed_files(path)
