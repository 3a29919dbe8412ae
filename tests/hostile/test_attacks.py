"""What somebody hostile wrote into a table does not run, leak, come back or take the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attack import SECRET, Attack, Ground, launch
from tests.hostile.attacks import ATTACKS
from tests.hostile.confined import launch_confined
from tests.hostile.operations import OPERATIONS


def cases(*, spark: bool) -> list[Any]:
    return [
        pytest.param(attack, id=attack.name, marks=[pytest.mark.slow] if attack.slow else [])
        for attack in ATTACKS
        if OPERATIONS[attack.operation].spark == spark
    ]


def test_no_two_attacks_are_the_same() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(names) == len(set(names))


@pytest.mark.first_cases(200)
@pytest.mark.parametrize("attack", cases(spark=False))
def test_attacks_without_a_session(attack: Attack, tmp_path: Path) -> None:
    if attack.confined:
        launch_confined(attack, tmp_path)
    else:
        launch(attack, Ground(tmp_path), OPERATIONS[attack.operation].run)


@pytest.mark.first_cases(30)
@pytest.mark.spark
@pytest.mark.parametrize("attack", cases(spark=True))
def test_attacks_on_spark(attack: Attack, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    session = request.getfixturevalue("spark")
    session.conf.set("spark.hostile.secret", SECRET)
    launch(attack, Ground(tmp_path, session), OPERATIONS[attack.operation].run)
