"""Statements that are none of ours: an open door changes neither plan, nor rows, nor error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.statements.door.cases import Case, read_cases
from tests.statements.door.judge import Child, open_child

pytestmark = [pytest.mark.spark, pytest.mark.more]

CASES = list(read_cases(Path(__file__).with_name("untouched")))
# Numbers of expressions, plans and objects, times, stacks; the catalog in plans of its commands.
VARYING = re.compile(
    r"#\d+L?|\b(?:plan_)?id=#?\d+|#x\d+|\bo\d+\.|Lambda\$?\d*/0x[0-9a-f]+|\d\d:\d\d:\d\d"
    r"|(?:delvec\.sql\.DeltaCatalog@[0-9a-f]+|V2SessionCatalog\(spark_catalog\))|@[0-9a-f]+"
    r"|(?:spark|delvec)-warehouse|(?:\\n|\n)(?:\\t|\t).*"
)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Child]]]:
    folder = tmp_path_factory.mktemp("untouched")
    with (
        open_child("spark", folder / "spark-warehouse") as plain,
        open_child("delvec", folder / "delvec-warehouse") as opened,
    ):
        yield folder, [plain, opened]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_statement_is_not_touched(engines: tuple[Path, list[Child]], case: Case) -> None:
    folder, children = engines
    name = f"case{CASES.index(case)}"
    for number, child in enumerate(children):
        own = folder / str(number) / name
        own.mkdir(parents=True)
        child.begin(name=name, folder=str(own), steps=case.steps, plans=True)
    plain, opened = (
        [{key: same(str(value)) for key, value in each.items()} for each in child.ended()]
        for child in children
    )
    differences = [
        f"{step}\n  without: {a}\n  with:    {b}"
        for step, a, b in zip(case.steps, plain, opened, strict=True)
        if a != b
    ]
    assert not differences, "\n".join(differences)


def same(text: str) -> str:
    return VARYING.sub("#", text)
