"""What to run next: each rule at its limit, just below and just above."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace

import click
import pytest

from delvec import DeltaTable, IcebergTable
from delvec.cli import main
from delvec.inspection.advice import (
    DELETED_SHARE,
    FEWER_FILES,
    FILE_DELETED_SHARE,
    FREED_SHARE,
    LONG_LOG,
    MANY_EQUALITY_DELETES,
    MANY_POSITION_DELETES,
    POSITION_DELETE_SHARE,
    advice_for,
)
from delvec.inspection.figures import (
    EqualityFigures,
    Freed,
    LogFigures,
    PositionFigures,
    Ranking,
    Rewritten,
    Share,
    SmallFiles,
    StagingBranch,
    VectorFigures,
)
from delvec.inspection.report import InspectReport

DELTA = InspectReport(
    table="/lake/orders", format="delta", location="/lake/orders", version=3, rows=1000, bytes=1000
)
ICEBERG = replace(DELTA, table="lake.db.orders", format="iceberg", branch="main", inspected_ms=100)


def actions(report: InspectReport) -> list[str]:
    return [each.action for each in advice_for(report)]


def test_a_table_without_deletes_needs_nothing() -> None:
    assert not advice_for(DELTA)
    assert not advice_for(ICEBERG)


@pytest.mark.parametrize(("table", "action"), [(DELTA, "purge"), (ICEBERG, "compact")])
def test_many_deleted_rows_are_rewritten(table: InspectReport, action: str) -> None:
    limit = int(1000 * DELETED_SHARE)
    assert not actions(replace(table, vectors=VectorFigures(count=1, rows=limit)))
    assert actions(replace(table, vectors=VectorFigures(count=1, rows=limit + 1))) == [action]


def test_a_file_with_many_deleted_rows_is_rewritten_if_the_table_has_some() -> None:
    over = Share("a", 1, 100, int(100 * FILE_DELETED_SHARE) + 1, 10)
    report = replace(DELTA, vectors=VectorFigures(count=1, rows=31), most_deleted=Ranking((over,)))
    assert actions(report) == ["purge"]
    assert not actions(replace(report, rows=100_000))
    at_limit = replace(over, deleted=int(100 * FILE_DELETED_SHARE))
    assert not actions(replace(report, most_deleted=Ranking((at_limit,))))


def test_where_counts_are_missing_one_file_stands_for_all() -> None:
    share = Share("a", 1, 100, int(100 * DELETED_SHARE) + 1, 10)
    report = replace(
        DELTA, rows=None, vectors=VectorFigures(count=1, rows=6), most_deleted=Ranking((share,))
    )
    assert actions(report) == ["purge"]
    less = Ranking((replace(share, deleted=int(100 * DELETED_SHARE)),))
    assert not actions(replace(report, most_deleted=less))


@pytest.mark.parametrize(("table", "action"), [(DELTA, "optimize"), (ICEBERG, "compact")])
def test_small_files_are_put_together_if_much_fewer_are_left(
    table: InspectReport, action: str
) -> None:
    def small(before: int, after: int) -> InspectReport:
        return replace(table, small_files=SmallFiles(before, 100, before, after))

    assert actions(small(FEWER_FILES + 1, 1)) == [action]
    assert not actions(small(FEWER_FILES, 1))
    assert not actions(small(100, 50))
    assert actions(small(100, 49)) == [action]


def test_a_long_log_wants_a_checkpoint() -> None:
    log = LogFigures(checkpoint=1, since_checkpoint=LONG_LOG * 10, interval=10)
    [found] = advice_for(replace(DELTA, log=log))
    assert found.arguments == ("checkpoint", "/lake/orders")
    assert "30 commits are read to open the table" in found.why
    assert not actions(replace(DELTA, log=replace(log, since_checkpoint=LONG_LOG * 10 - 1)))


def test_a_vacuum_is_worth_it_if_it_frees_enough() -> None:
    limit = int(1000 * FREED_SHARE)
    assert actions(replace(DELTA, freed=Freed(vacuum=limit + 1, vacuum_files=1))) == ["vacuum"]
    assert not actions(replace(DELTA, freed=Freed(vacuum=limit)))
    assert not actions(replace(DELTA, freed=Freed(vacuum=None)))
    empty = replace(DELTA, bytes=0, freed=Freed(vacuum=1, vacuum_files=1))
    assert actions(empty) == ["vacuum"]


def test_snapshots_expire_if_they_keep_much_and_are_old() -> None:
    freed = Freed(vacuum=500, vacuum_files=2)
    old = replace(ICEBERG, freed=freed, log=LogFigures(oldest_ms=0, max_age_ms=99))
    assert actions(old) == ["expire"]
    assert not actions(replace(old, log=LogFigures(oldest_ms=0, max_age_ms=100)))
    assert not actions(replace(old, owns_files=False))


def test_equality_deletes_are_resolved_before_anything_is_rewritten() -> None:
    waiting = EqualityFigures(files=1, keys=7, columns=(("id",),))
    report = replace(ICEBERG, equality=waiting, vectors=VectorFigures(count=1, rows=900))
    [found] = advice_for(report)
    assert found.arguments == ("resolve", "lake.db.orders")
    assert "1 equality delete with 7 keys" in found.why
    many = replace(waiting, files=MANY_EQUALITY_DELETES - 1)
    assert actions(replace(report, equality=many)) == ["resolve"]
    both = replace(many, vectors=1)
    assert actions(replace(report, equality=both)) == ["resolve", "consolidate"]


def test_deletes_of_a_branch_are_resolved_there() -> None:
    waiting = EqualityFigures(files=1, keys=7)
    [found] = advice_for(replace(ICEBERG, branch="audit", equality=waiting))
    assert found.arguments == ("resolve", "lake.db.orders", "--target", "audit")
    staging = replace(waiting, staging=(StagingBranch("my changes", 3, 7),))
    [found] = advice_for(replace(ICEBERG, branch="my changes", equality=staging))
    assert found.arguments == ("resolve", "lake.db.orders", "--staging", "my changes")
    assert found.call == "t.resolve(staging='my changes')"


def test_a_staging_branch_that_main_has_not_taken_over_is_named() -> None:
    waiting = EqualityFigures(staging=(StagingBranch("changes", 3, 7),))
    [found] = advice_for(replace(ICEBERG, equality=waiting))
    assert found.why.startswith("the staging branch changes has 3 snapshots")
    assert not advice_for(
        replace(ICEBERG, equality=EqualityFigures(staging=(StagingBranch("changes", 0, None),)))
    )


def test_files_of_others_are_not_rewritten() -> None:
    report = replace(ICEBERG, vectors=VectorFigures(count=1, rows=900), owns_files=False)
    assert not advice_for(report)


def test_every_command_that_is_advised_exists() -> None:
    waiting = EqualityFigures(files=200, keys=7, staging=(StagingBranch("changes", 3, 7),))
    dead, small = VectorFigures(count=1, rows=900), SmallFiles(100, 100, 100, 1)
    freed, log = Freed(vacuum=900, vacuum_files=1), LogFigures(since_checkpoint=99, interval=10)
    reports = [
        replace(DELTA, vectors=dead, freed=freed, log=log),
        replace(DELTA, vectors=dead, small_files=small),
        replace(DELTA, small_files=small),
        replace(ICEBERG, equality=waiting),
        *(replace(ICEBERG, equality=waiting, branch=name) for name in ("changes", "audit")),
        replace(ICEBERG, vectors=dead),
        replace(ICEBERG, positions=PositionFigures(1, 900, 10)),
        replace(ICEBERG, small_files=small),
        replace(ICEBERG, freed=freed, log=LogFigures(oldest_ms=0, max_age_ms=1)),
    ]
    found = [each for report in reports for each in advice_for(report)]
    assert {each.action for each in found} == {
        *("purge", "optimize", "checkpoint", "vacuum"),
        *("resolve", "consolidate", "compact", "expire"),
    }
    for each in found:
        name, *arguments = each.arguments
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_context(name, arguments)
        table: type = DeltaTable if "/lake" in each.arguments[1] else IcebergTable
        called = ast.parse(each.call, mode="eval").body
        assert isinstance(called, ast.Call)
        method = getattr(table, ast.unparse(called.func).removeprefix("t."))
        keywords = {str(one.arg): ast.literal_eval(one.value) for one in called.keywords}
        positional = [ast.literal_eval(one) for one in called.args]
        inspect.signature(method).bind(None, *positional, **keywords)


def test_one_rewrite_is_advised_where_it_does_what_two_would() -> None:
    dead = VectorFigures(count=1, rows=900)
    freed = Freed(Rewritten(1, 1000, 100), retention_hours=168)
    small = SmallFiles(100, 100, 100, 1, Rewritten(100, 500, 500), Rewritten(101, 1500, 600))
    [purge] = advice_for(replace(DELTA, vectors=dead, freed=freed))
    assert purge.arguments == ("purge", "/lake/orders")
    steps = "it writes about 100 B, and after 168 hours a vacuum frees the 1000 B that it replaces"
    assert purge.why.endswith(steps)
    [both] = advice_for(replace(DELTA, vectors=dead, freed=freed, small_files=small))
    assert both.arguments == ("optimize", "/lake/orders", "--max-deleted-ratio", "0")
    assert "it writes about 600 B, and after 168 hours a vacuum frees the 1.5 KiB" in both.why
    [alone] = advice_for(replace(DELTA, freed=freed, small_files=small))
    assert alone.call == "t.optimize()"
    assert "it writes about 500 B" in alone.why


def test_a_vacuum_says_which_versions_it_takes() -> None:
    freed = Freed(vacuum=900, vacuum_files=3, retention_hours=168)
    [found] = advice_for(replace(DELTA, freed=freed))
    assert found.why.endswith("no version of the log is older, so that time travel loses none")
    older = replace(freed, first_kept=41, first_kept_ms=1_700_000_000_000)
    [found] = advice_for(replace(DELTA, freed=older))
    lost = "it ends time travel to versions before 41, which is of 2023-11-14 22:13 UTC"
    assert found.why.endswith(lost)


def test_position_deletes_are_rewritten_by_their_rows() -> None:
    limit = int(1000 * DELETED_SHARE)
    assert not advice_for(replace(ICEBERG, positions=PositionFigures(1, limit, 10)))
    [found] = advice_for(replace(ICEBERG, positions=PositionFigures(1, limit + 1, 10)))
    assert found.why.startswith("up to 5.1 % of the rows are deleted")
    assert found.arguments == (
        *("compact", "lake.db.orders"),
        *("--rewrite-option", "delete-file-threshold=1"),
        *("--rewrite-option", "remove-dangling-deletes=true"),
    )
    options = '{"delete-file-threshold": 1, "remove-dangling-deletes": True}'
    assert found.call == f"t.compact(options={options})"


def test_many_position_delete_files_are_rewritten_whatever_they_delete() -> None:
    def with_files(count: int, data_files: int) -> InspectReport:
        return replace(ICEBERG, files=data_files, positions=PositionFigures(count, count, 10))

    enough = int(MANY_POSITION_DELETES / POSITION_DELETE_SHARE)
    assert actions(with_files(MANY_POSITION_DELETES, enough - 1)) == ["compact"]
    assert not actions(with_files(MANY_POSITION_DELETES, enough))
    assert not actions(with_files(MANY_POSITION_DELETES - 1, 1))


def test_python_names_a_call_and_no_command() -> None:
    freed = Freed(vacuum=900, vacuum_files=3)
    report = replace(DELTA, freed=freed)
    report = replace(report, advice=advice_for(report))
    for text in (str(report), report.to_html(), report._repr_html_()):
        assert "t.vacuum()" in text
        assert "delvec vacuum" not in text
    assert not any(each.command for each in report.advice)
