"""ARCHITECTURE.md is the map: every module stands in the row of its room."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import delvec
from tests.repository import ROOT

SOURCE = Path(delvec.__file__).parent
ROW = re.compile(r"^\| `(?P<room>[\w/]+?)/?`.*\| (?P<modules>`[^|]+`) \|$", re.MULTILINE)


def mapped() -> dict[str, set[str]]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return {
        match["room"]: set(re.findall(r"`([\w.]+)`", match["modules"]))
        for match in ROW.finditer(text)
    }


def rooms() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.java")]:
        if file.name != "__init__.py":
            room = str(file.parent.relative_to(SOURCE)).replace(".", "delvec")
            found.setdefault(room, set()).add(file.name.removesuffix(".py"))
    return found


def test_every_module_is_named_in_the_map_by_its_room() -> None:
    assert mapped() == rooms()


def test_rooms_stay_small() -> None:
    sizes = {room: len(modules) for room, modules in rooms().items()}
    assert {room: size for room, size in sizes.items() if size > 20 and room != "cli"} == {}


def test_the_lives_name_modules_and_functions_that_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    lives = text[text.index("## Three lives") : text.index("## Where do I add")]
    named = re.findall(r"`((?:\w+/)+\w+)(?:\.(\w+)(?:\.(\w+))?)?`", lives)
    assert len(named) > 25
    for path, name, member in named:
        module = import_module(f"delvec.{path.replace('/', '.')}")
        found = getattr(module, name) if name else module
        assert not member or hasattr(found, member), f"{path}.{name}.{member}"
