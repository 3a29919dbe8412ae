"""The calls that docs/migrating.md puts side by side exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import deltalake

import delvec
from delvec.delta.table.writes import MergeBuilder
from tests.repository import ROOT

PAGE: Final = (ROOT / "docs" / "migrating.md").read_text()


def rows() -> Iterator[list[str]]:
    for table in re.findall(
        r"^\| delta-spark \| deltalake \| delvec \|\n.*?\n\n", PAGE, re.MULTILINE | re.DOTALL
    ):
        for line in table.strip().splitlines()[2:]:
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def calls(column: int, start: str) -> set[str]:
    cells = [row[column] for row in rows()]
    return {name for cell in cells for name in re.findall(rf"{start}([a-z_.]+)", cell)}


def test_the_calls_of_all_tables_exist() -> None:
    found = list(rows())
    assert len(found) > 35
    assert {len(row) for row in found} == {3}
    ours = calls(2, r"\b(?:t|DeltaTable)\.")
    assert ours - {"schema", "protocol"} <= {*dir(delvec.DeltaTable)}
    assert calls(2, r"`\.") <= {*dir(MergeBuilder)}
    kinds = {"alter": deltalake.table.TableAlterer, "optimize": deltalake.table.TableOptimizer}
    for name in calls(1, r"\b(?:t|DeltaTable)\."):
        first, _, second = name.partition(".")
        assert hasattr(deltalake.DeltaTable, first)
        assert not second or hasattr(kinds[first], second)
