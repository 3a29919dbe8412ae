"""What to run next: each rule at its limit, just below and just above."""

from __future__ import annotations

import ast
import inspect
import shlex
from dataclasses import replace
from typing import Any

import click
import pytest

from delvec import DeltaTable, IcebergTable
from delvec.cli import main
from delvec.inspection import advice
from delvec.inspection.advice import FEWER_FILES, LONG_LOG, advice_for
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


LIMIT, FILE_LIMIT = int(1000 * advice.DELETED_SHARE), int(100 * advice.FILE_DELETED_SHARE)
WORTH, MANY = int(1000 * advice.FREED_SHARE), advice.MANY_POSITION_DELETES
ENOUGH = int(MANY / advice.POSITION_DELETE_SHARE)
FULL = one_file(FILE_LIMIT + 1)
OLD = LogFigures(oldest_ms=0, max_age_ms=99)
OF_DELTA: list[tuple[str, dict[str, Any], str]] = [
    ("nothing deleted", {}, ""),
    ("deleted rows at the limit", deleted(LIMIT), ""),
    ("deleted rows above it", deleted(LIMIT + 1), "purge"),
    ("a file at its limit", deleted(31, most_deleted=one_file(FILE_LIMIT)), ""),
    ("a file above it", deleted(31, most_deleted=FULL), "purge"),
    ("a file above it in a large table", deleted(31, most_deleted=FULL, rows=100_000), ""),
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


CASES = {name: (DELTA, *case) for name, *case in OF_DELTA}
CASES |= {f"{name} of iceberg": (ICEBERG, *case) for name, *case in OF_ICEBERG}


@pytest.mark.parametrize(("table", "changes", "action"), CASES.values(), ids=CASES)
def test_a_limit_is_passed_or_not(
    table: InspectReport, changes: dict[str, Any], action: str
) -> None:
    assert " ".join(actions(replace(table, **changes))) == action


OPTIONS = '{"delete-file-threshold": 1, "remove-dangling-deletes": True}'
REWRITE = shlex.join(
    word
    for each in ("delete-file-threshold=1", "remove-dangling-deletes=true")
    for word in ("--rewrite-option", each)
)
WAITING = EqualityFigures(files=1, keys=7, columns=(("id",),))
STAGED = EqualityFigures(staging=(StagingBranch("my changes", 3, 7),))
LOG = LogFigures(checkpoint=1, since_checkpoint=LONG_LOG * 10, interval=10)


@pytest.mark.parametrize(
    ("report", "arguments", "why"),
    [
        (
            replace(DELTA, log=LOG),
            "checkpoint /lake/orders",
            "30 commits are read to open the table",
        ),
        # Before anything is rewritten.
        (
            replace(ICEBERG, equality=WAITING, vectors=VectorFigures(count=1, rows=900)),
            *("resolve lake.db.orders", "1 equality delete with 7 keys"),
        ),
        (
            replace(ICEBERG, branch="audit", equality=WAITING),
            *("resolve lake.db.orders --target audit", "7 keys"),
        ),
        (
            replace(ICEBERG, branch="my changes", equality=replace(STAGED, files=1, keys=7)),
            *("resolve lake.db.orders --staging 'my changes'", ""),
        ),
        (
            replace(ICEBERG, equality=STAGED),
            *(
                "resolve lake.db.orders --staging 'my changes'",
                "the staging branch my changes has 3",
            ),
        ),
        (
            replace(ICEBERG, **positions(1, LIMIT + 1)),
            f"compact lake.db.orders {REWRITE}",
            "up to 5.1 % of the rows are deleted",
        ),
    ],
)
def test_what_waits_is_advised_with_its_reason(
    report: InspectReport, arguments: str, why: str
) -> None:
    [found] = advice_for(report)
    assert shlex.join(found.arguments) == arguments
    assert why in found.why
    calls = {
        "'my changes'": "t.resolve(staging='my changes')",
        "dangling": f"t.compact(options={OPTIONS})",
    }
    assert all(found.call == call for word, call in calls.items() if word in arguments)


def test_many_equality_deletes_are_consolidated_if_they_are_no_vectors_alone() -> None:
    many = replace(WAITING, files=advice.MANY_EQUALITY_DELETES - 1)
    assert actions(replace(ICEBERG, equality=many)) == ["resolve"]
    both = replace(many, vectors=1)
    assert actions(replace(ICEBERG, equality=both)) == ["resolve", "consolidate"]


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


def test_python_names_a_call_and_no_command() -> None:
    freed = Freed(vacuum=900, vacuum_files=3)
    report = replace(DELTA, freed=freed)
    report = replace(report, advice=advice_for(report))
    for text in (str(report), report.to_html(), report._repr_html_()):
        assert "t.vacuum()" in text
        assert "delvec vacuum" not in text
    assert not any(each.command for each in report.advice)
