"""The lowest versions that pyproject.toml allows are those that `make test-lowest` installs."""

from __future__ import annotations

import re

from packaging.requirements import Requirement
from packaging.version import Version

from tests.repository import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text()
# Of which only the newest are used.
TOOLS = {"hatchling", "hatch-fancy-pypi-readme", "ruff", "mypy"}


def allowed() -> dict[str, Version]:
    """The minimum of each dependency, extras included."""
    found = [Requirement(text) for text in re.findall(r'"([\w.\[\],-]+>=[\d.]+)"', PROJECT)]
    return {each.name: Version(str(each.specifier).removeprefix(">=")) for each in found}


def installed() -> dict[str, Version]:
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name: Version(version) for name, version in pairs}


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    assert allowed().keys() >= {"pyspark", "pyarrow", "numpy", "deltalake", "pandas", "pytest"}
    assert {name: each for name, each in allowed().items() if name not in TOOLS} == installed()


def test_the_lowest_python_is_that_which_is_looked_for() -> None:
    lowest = re.search(r'^requires-python = ">=(.*)"', PROJECT, re.MULTILINE)
    assert lowest is not None
    script = (ROOT / "scripts" / "setup.sh").read_text()
    assert f'pythons="python{lowest[1]} ' in script
