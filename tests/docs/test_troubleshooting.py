"""The messages that docs/troubleshooting.md explains are those that the code raises."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import delvec
from tests.repository import ROOT

PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text()
OWN, OTHERS = PAGE.split("## Errors of other readers")
MESSAGE: Final = re.compile(r"^\| `([^`|]+)`", re.MULTILINE)


@cache
def texts() -> list[str]:
    """All strings of the code; values that are filled in are a NUL."""
    trees = [ast.parse(path.read_text()) for path in Path(delvec.__file__).parent.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    found = [text(node) for node in nodes if isinstance(node, (ast.Constant, ast.JoinedStr))]
    return [each for each in found if " " in each]


def text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "\0"


def is_raised(message: str) -> bool:
    parts = [re.escape(part) for part in message.strip("… ").split("…")]
    pattern = re.compile(".*".join(parts), re.DOTALL)
    return any(pattern.search(each) for each in texts())


def test_the_messages_are_raised_by_the_code() -> None:
    assert [message for message in MESSAGE.findall(OWN) if not is_raised(message)] == []


def test_the_page_explains_what_users_meet() -> None:
    assert len(set(MESSAGE.findall(OWN))) > 60
    assert len(MESSAGE.findall(OTHERS)) > 3
