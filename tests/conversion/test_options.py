from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delvec.conversion.plan import ConversionPlan
from delvec.conversion.planning.options import ConversionOptions
from delvec.conversion.planning.planner import Planned
from delvec.delta.log.snapshot import open_snapshot
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.catalog import TableName
from delvec.storage import Storage
from tests.delta.builder import small_table

REFUSED: list[dict[str, Any]] = [
    {"format_version": 1},
    {"format_version": 4},
    {"format_version": "3"},
    {"vectors": "copy"},
    {"vectors": None},
    {"history": "all"},
    {"foreign": True},
    {"format_version": 2, "vectors": "reference"},
    {"start_version": 3},
    {"start_version": 3, "history": "latest"},
    {"folder": ""},
    {"folder": "/absolute"},
    {"folder": "a//b"},
    {"folder": "../outside"},
    {"folder": "a/./b"},
    {"folder": "a/"},
]


@pytest.mark.parametrize("choices", REFUSED, ids=str)
def test_wrong_choices_are_refused_with_what_was_chosen(choices: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ConversionOptions(**choices)
    assert any(name in str(refused.value) for name in [*choices, "format 2"])


def test_right_choices_are_taken() -> None:
    ConversionOptions(format_version=2, folder="a/b-c d")
    ConversionOptions(format_version=3, vectors="reference")
    ConversionOptions(history="per-version", start_version=0)


@pytest.mark.parametrize("verify", ["all", "", None, 2, "Rows"])
def test_an_unknown_way_to_verify_is_refused(tmp_path: Path, verify: Any) -> None:  # noqa: ANN401
    small_table(tmp_path)
    snapshot = open_snapshot(Storage.open(tmp_path))
    nobody: Any = None
    name = TableName("lake", ("db",), "t")
    plan = ConversionPlan(nobody, snapshot, name, None, ConversionOptions(), 3, Planned(None))
    with pytest.raises(InvalidArgumentError, match=r"'counts', 'rows' or 'none'"):
        plan.apply(verify)
    assert "version 2 is there already" in str(plan)
