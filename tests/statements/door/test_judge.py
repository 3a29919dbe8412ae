"""The door and delta-spark: the same statements, the same results, the same tables."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.statements.door.cases import Case, read_cases
from tests.statements.door.judge import Judge, open_judge
from tests.statements.door.scripts import script

pytestmark = pytest.mark.spark

CASES = list(read_cases())
SLOW_EXAMPLES = min(40, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 40))


@pytest.fixture(scope="module")
def judge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with open_judge(spark, tmp_path_factory.mktemp("judge")) as opened:
        yield opened


@pytest.mark.quick_cases(220)
@pytest.mark.first_cases(30)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_do_the_same(judge: Judge, case: Case) -> None:
    found = judge.differences(f"case{CASES.index(case)}", case)
    if case.differs:
        assert found, f"they do the same, in spite of: {case.differs}"
    else:
        assert not found, "\n".join(found)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(2))
def test_random_statements(judge: Judge, seed: int) -> None:
    found = judge.differences(f"seed{seed}", script(seed, 25))
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SLOW_EXAMPLES))
def test_many_random_statements(judge: Judge, seed: int) -> None:
    found = judge.differences(f"seed{seed}", script(seed, 40))
    assert not found, "\n".join(found)
