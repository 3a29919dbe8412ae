"""What to run next: each rule at its limit, just below and just above."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import Any

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


DONE = StagingBranch("changes", 0, None)


def actions(report: InspectReport) -> list[str]:
    return [each.action for each in advice_for(report)]


def deleted(rows: int, /, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the changes of a report by deleted rows."""
    return {"vectors": VectorFigures(count=1, rows=rows), **more}


def small(before: int, after: int) -> dict[str, Any]:
    return {"small_files": SmallFiles(before, 100, before, after)}


def one_file(rows: int) -> Ranking:
    return Ranking((Share("a", 1, 100, rows, 10),))


def freed(vacuum: int | None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"freed": Freed(vacuum=vacuum, vacuum_files=1), **more}


def positions(count: int, rows: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"positions": PositionFigures(count, rows, 10), **more}


LIMIT, FILE_LIMIT = int(1000 * DELETED_SHARE), int(100 * FILE_DELETED_SHARE)
WORTH = int(1000 * FREED_SHARE)
MANY, ENOUGH = MANY_POSITION_DELETES, int(MANY_POSITION_DELETES / POSITION_DELETE_SHARE)
OLD = LogFigures(oldest_ms=0, max_age_ms=99)
OF_DELTA: list[tuple[str, dict[str, Any], str]] = [
    ("nothing deleted", {}, ""),
    ("deleted rows at the limit", deleted(LIMIT), ""),
    ("deleted rows above it", deleted(LIMIT + 1), "purge"),
    ("a file at its limit", deleted(31, most_deleted=one_file(FILE_LIMIT)), ""),
    ("a file above it", deleted(31, most_deleted=one_file(FILE_LIMIT + 1)), "purge"),
    (
        "a file above it in a large table",
        deleted(31, most_deleted=one_file(FILE_LIMIT + 1), rows=100_000),
        "",
    ),
    # Where counts are missing one file stands for all.
    ("no counts, a file at the limit", deleted(6, rows=None, most_deleted=one_file(5)), ""),
    ("no counts, a file above it", deleted(6, rows=None, most_deleted=one_file(6)), "purge"),
    ("few small files", small(FEWER_FILES, 1), ""),
    ("more small files", small(FEWER_FILES + 1, 1), "optimize"),
    ("small files, half are left", small(100, 50), ""),
    ("small files, fewer are left", small(100, 49), "optimize"),
    ("a vacuum that frees little", freed(WORTH), ""),
    ("a vacuum that frees enough", freed(WORTH + 1), "vacuum"),
    ("a vacuum of unknown worth", freed(None), ""),
    ("a vacuum of an empty table", freed(1, bytes=0), "vacuum"),
    ("a short log", {"log": LogFigures(1, since_checkpoint=LONG_LOG * 10 - 1, interval=10)}, ""),
]
OF_ICEBERG: list[tuple[str, dict[str, Any], str]] = [
    ("nothing deleted", {}, ""),
    ("deleted rows at the limit", deleted(LIMIT), ""),
    ("deleted rows above it", deleted(LIMIT + 1), "compact"),
    ("files of others", deleted(900, owns_files=False), ""),
    ("small files", small(FEWER_FILES + 1, 1), "compact"),
    ("old snapshots", freed(500, log=OLD), "expire"),
    ("young snapshots", freed(500, log=LogFigures(oldest_ms=0, max_age_ms=100)), ""),
    ("old snapshots of files of others", freed(500, log=OLD, owns_files=False), ""),
    ("a staging branch that is published", {"equality": EqualityFigures(staging=(DONE,))}, ""),
    ("positions at the limit", positions(1, LIMIT), ""),
    ("many files of positions", positions(MANY, MANY, files=ENOUGH - 1), "compact"),
    ("many files of positions and of data", positions(MANY, MANY, files=ENOUGH), ""),
    ("fewer files of positions", positions(MANY - 1, MANY - 1, files=1), ""),
]


@pytest.mark.parametrize(
    ("report", "action"),
    [
        *(pytest.param(replace(DELTA, **changes), a, id=name) for name, changes, a in OF_DELTA),
        *(
            pytest.param(replace(ICEBERG, **changes), a, id=f"{name} of iceberg")
            for name, changes, a in OF_ICEBERG
        ),
    ],
)
def test_a_limit_is_passed_or_not(report: InspectReport, action: str) -> None:
    assert " ".join(actions(report)) == action


def test_a_long_log_wants_a_checkpoint() -> None:
    log = LogFigures(checkpoint=1, since_checkpoint=LONG_LOG * 10, interval=10)
    [found] = advice_for(replace(DELTA, log=log))
    assert found.arguments == ("checkpoint", "/lake/orders")
    assert "30 commits are read to open the table" in found.why


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
    [found] = advice_for(replace(ICEBERG, **positions(1, LIMIT + 1)))
    assert found.why.startswith("up to 5.1 % of the rows are deleted")
    assert found.arguments == (
        *("compact", "lake.db.orders"),
        *("--rewrite-option", "delete-file-threshold=1"),
        *("--rewrite-option", "remove-dangling-deletes=true"),
    )
    options = '{"delete-file-threshold": 1, "remove-dangling-deletes": True}'
    assert found.call == f"t.compact(options={options})"


def test_python_names_a_call_and_no_command() -> None:
    freed = Freed(vacuum=900, vacuum_files=3)
    report = replace(DELTA, freed=freed)
    report = replace(report, advice=advice_for(report))
    for text in (str(report), report.to_html(), report._repr_html_()):
        assert "t.vacuum()" in text
        assert "delvec vacuum" not in text
    assert not any(each.command for each in report.advice)
