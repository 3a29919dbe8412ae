"""What became of an attack on another engine is told apart, and the page has a place for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attack import SECRET, Attack, Ground
from tests.hostile.attacks import ATTACKS
from tests.hostile.peers import PAGE, judged, shown, with_table


def _leak(ground: Ground) -> None:
    (ground.table / "a.parquet").write_text(f"PAR1 {SECRET}")


def _fail(_: Ground) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        (lambda _: [1], "harmless"),
        (lambda _: [1, 2], "wrong rows"),
        (lambda _: [SECRET], "leaks"),
        (_leak, "leaks"),
        (lambda ground: (ground.outside / "secret.txt").unlink(), "changes what is outside"),
        (lambda _: 1 / 0, "refuses"),
        (_fail, "takes the memory"),
    ],
)
def test_what_became_of_an_attack_is_told_apart(
    operation: Callable[[Ground], Any], outcome: str, tmp_path: Path
) -> None:
    def one_row(_: Ground, rows: list[int]) -> None:
        assert len(rows) == 1

    attack = Attack(
        "leaks", "a place", "read", "harmless", lambda ground: ground.table.mkdir(), then=one_row
    )
    assert judged(attack, Ground(tmp_path), operation)[0] == outcome


def test_the_page_has_all_attacks_of_its_run() -> None:
    outcomes = {attack.name: ("refuses", "") for attack in ATTACKS}
    page = with_table(
        PAGE.read_text(), shown({"deltalake": outcomes}, {"deltalake": "deltalake 1"}, "2026-01-01")
    )
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert f"{len(ATTACKS)} attacks, on 2026-01-01:" in page
    assert f"| refuses | {sum(each.expected == 'refused' for each in ATTACKS)} |" in page
    assert sum(len(line.split(" | ")[1].split(", ")) for line in lines if "| refuses |" in line) > 0
