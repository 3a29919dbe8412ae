"""The calls that docs/migrating.md puts side by side exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import deltalake
import pytest

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


def test_the_tables_are_found() -> None:
    found = list(rows())
    assert len(found) > 35
    assert {len(row) for row in found} == {3}


@pytest.mark.parametrize("name", sorted(calls(2, r"\b(?:t|DeltaTable)\.")))
def test_a_call_of_delvec_exists(name: str) -> None:
    assert name in {"schema", "protocol"} or hasattr(delvec.DeltaTable, name)


@pytest.mark.parametrize("name", sorted(calls(2, r"`\.")))
def test_a_clause_of_delvec_exists(name: str) -> None:
    assert hasattr(MergeBuilder, name)


@pytest.mark.parametrize("name", sorted(calls(1, r"\b(?:t|DeltaTable)\.")))
def test_a_call_of_deltalake_exists(name: str) -> None:
    kinds = {"alter": deltalake.table.TableAlterer, "optimize": deltalake.table.TableOptimizer}
    first, _, second = name.partition(".")
    assert hasattr(deltalake.DeltaTable, first)
    assert not second or hasattr(kinds[first], second)
