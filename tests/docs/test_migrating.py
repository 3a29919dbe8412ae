"""The calls that docs/migrating.md puts side by side exist, and are those that `delvec` knows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import deltalake
import pytest

import delvec
from delvec.cli.exits import ExitCode
from delvec.delta.table.writes import MergeBuilder
from delvec.peers import CALLS, RULES
from tests.cli.runner import run
from tests.repository import ROOT

JOB: Final = """\
from delta.tables import DeltaTable
from deltalake import write_deltalake

write_deltalake("/lake/new", rows)
orders = DeltaTable.forPath(spark, "/lake/orders")
orders.delete("day < '2026-01-01'")
spark.sql("OPTIMIZE delta.`/lake/orders`")
spark.sql("CREATE TABLE copied DEEP CLONE orders")
"""
PAGE: Final = ROOT / "docs" / "migrating.md"
_PLACE: Final = re.compile(r"(<!-- calls: begin[^\n]*-->\n).*(<!-- calls: end -->)", re.DOTALL)


def tables() -> str:
    """The list as Markdown: a table for each theme, then what is to be written anew."""
    lines: list[str] = []
    for theme, calls_of in CALLS.items():
        lines += [f"### {theme}", "", "| delta-spark | deltalake | delvec |", "|---|---|---|"]
        lines += [_row(each.delta_spark, each.deltalake, each.delvec) for each in calls_of]
        lines.append("")
    lines += ["### What neither the door nor the compat class takes", ""]
    lines += ["| delta-spark | write |", "|---|---|"]
    lines += [_row(each.what, each.instead) for each in RULES]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return re.sub(
        " +", " ", f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"
    )


def test_the_tables_are_those_of_the_list() -> None:
    page = PAGE.read_text()
    assert _PLACE.search(page)
    wanted = _PLACE.sub(lambda match: f"{match[1]}\n{tables()}\n{match[2]}", page)
    if os.environ.get("DELVEC_MIGRATING_TABLES") == "write":
        PAGE.write_text(wanted)
    else:
        assert page == wanted, "`make migrating-tables` writes them again"


def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB)
    printed = run("migrate", "job.py", columns=80, code=ExitCode.TO_REWRITE).output
    assert re.sub(" +$", "", printed, flags=re.MULTILINE).strip("\n") in PAGE.read_text()


def calls(column: str, start: str) -> set[str]:
    cells = [getattr(each, column) for of in CALLS.values() for each in of]
    return {name for cell in cells for name in re.findall(rf"{start}([a-z_.]+)", cell)}


def test_the_calls_of_all_tables_exist() -> None:
    found = [each for of in CALLS.values() for each in of]
    assert len(found) > 50
    ours = {name.split(".")[0] for name in calls("delvec", r"\b(?:t|DeltaTable)\.")}
    assert ours - {"schema", "protocol", "storage"} <= {*dir(delvec.DeltaTable)}
    assert calls("delvec", r"`\.") <= {*dir(MergeBuilder)}


@pytest.mark.more  # older versions of deltalake lack some
def test_the_calls_of_deltalake_exist() -> None:
    kinds = {"alter": deltalake.table.TableAlterer, "optimize": deltalake.table.TableOptimizer}
    names = calls("deltalake", r"\b(?:t|DeltaTable)\.")
    assert names
    for name in names:
        first, _, second = name.partition(".")
        assert hasattr(deltalake.DeltaTable, first)
        assert not second or hasattr(kinds[first], second)
