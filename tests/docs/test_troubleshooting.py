"""The messages that docs/troubleshooting.md explains are those that the code raises."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

import delvec
from tests.repository import ROOT

PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text()
OWN, OTHERS = PAGE.split("## Errors of other readers")
MESSAGE: Final = re.compile(r"^\| `([^`|]+)`", re.MULTILINE)


@cache
def texts() -> str:
    """All strings of the code, between control characters; values that are filled in are a NUL."""
    found = [
        text(node)
        for path in Path(delvec.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Constant, ast.JoinedStr))
    ]
    return "\1".join(each for each in found if " " in each)


def text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "\0"


def is_raised(message: str) -> bool:
    parts = [re.escape(part) for part in message.strip("… ").split("…")]
    return re.search("[^\1]*".join(parts), texts()) is not None


def test_the_messages_are_raised_by_the_code() -> None:
    assert [message for message in MESSAGE.findall(OWN) if not is_raised(message)] == []
    assert len(set(MESSAGE.findall(OWN))) > 60
    assert len(MESSAGE.findall(OTHERS)) > 3


def test_all_messages_of_constraints_are_explained() -> None:
    source = Path(delvec.__file__).parent / "spark/delta/write/constraints.py"
    strings = [node for node in ast.walk(ast.parse(source.read_text())) if is_message(node)]
    messages = {text(each).replace("\0", "…") for each in strings}
    assert {each for each in messages if f"`{each}`" not in OWN} == set()
    assert len(messages) == 6


def is_message(node: ast.AST) -> TypeGuard[ast.JoinedStr]:
    names = ("NOT NULL \0", "\0 \0")
    return isinstance(node, ast.JoinedStr) and " " in text(node) and text(node) not in names
