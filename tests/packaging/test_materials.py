"""What is installed for development, by hash, and the bill of materials of the wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import delvec
from delvec.spark.session import iceberg_runtime
from tests.repository import ROOT

LOCK = ROOT / "requirements.lock"
LINE = re.compile(r"([a-z0-9.-]+)==([\w.]+) --hash=sha256:[0-9a-f]{64} # ([a-z ]+)", re.ASCII)
SETS = ("base", "test", "dev", "docs")


def locked(name: str) -> dict[str, Version]:
    """The packages of a set."""
    lines = [LINE.fullmatch(line) for line in LOCK.read_text().splitlines() if line[0] != "#"]
    assert all(lines)
    return {line[1]: Version(line[2]) for line in lines if line and name in line[3].split()}


@pytest.fixture(scope="module")
def requirements(wheel: Path) -> list[Requirement]:
    """What the wheel asks for, with what extras mean by other extras."""
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    return [Requirement(each) for each in re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)]


def wanted(requirements: list[Requirement], extra: str) -> list[Requirement]:
    place = {"python_version": "3.11", "extra": extra}
    found = [each for each in requirements if each.marker is None or each.marker.evaluate(place)]
    inner = {name for each in found if each.name == "delvec" for name in each.extras}
    own = [each for each in found if each.name != "delvec"]
    return own + [each for name in inner for each in wanted(requirements, name)]


@pytest.mark.parametrize("name", SETS)
def test_the_lock_has_what_an_extra_asks_for(name: str, requirements: list[Requirement]) -> None:
    found = locked(name)
    asked = wanted(requirements, "" if name == "base" else name)
    assert {each.name for each in asked} <= found.keys()
    wrong = [str(each) for each in asked if found[each.name] not in each.specifier]
    assert wrong == [], "run `make lock`"
    constraint = (ROOT / "constraints.txt").read_text().splitlines()[-1]
    assert found["pyspark"] in Requirement(constraint).specifier


def test_the_lock_has_one_version_of_each_package() -> None:
    names = [name for name in LOCK.read_text().splitlines() if name[0] != "#"]
    names = [name.partition("==")[0] for name in names]
    assert len(names) == len(set(names))
    assert {"hatchling", "setuptools", "wheel", "editables"} <= locked("build").keys()
    assert locked("base").items() <= locked("test").items() <= locked("dev").items()


def test_the_wheel_has_a_bill_of_materials(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if "/sboms/" in name]
        document: dict[str, Any] = json.loads(archive.read(name))
    assert name == f"delvec-{delvec.__version__}.dist-info/sboms/delvec.cdx.json"
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/delvec@{delvec.__version__}"
    components = document["components"]
    references = [each["bom-ref"] for each in components]
    assert len(references) == len(set(references))
    packages = {each["name"]: each["version"] for each in components if "group" not in each}
    assert packages == {name: str(version) for name, version in locked("base").items()}
    asked = [each for each in components if each.get("properties")]
    assert {each["name"] for each in asked} == {
        *("pyspark", "pyarrow", "numpy", "pyroaring", "obstore", "click", "rich")
    }
    jars = {each["purl"]: each["hashes"] for each in components if "group" in each}
    assert len(jars) == len(iceberg_runtime._VERSIONS)
    for spark, digest in iceberg_runtime._CHECKSUMS.items():
        group, artifact, version = iceberg_runtime.iceberg_coordinate(spark).split(":")
        found = jars[f"pkg:maven/{group}/{artifact}@{version}"]
        assert found == [{"alg": "SHA-256", "content": digest}]


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_root_is_told_what_is_installed_before_it_is(tmp_path: Path) -> None:
    """With an `apt-get` that only writes down when it was called."""
    tools = tmp_path / "bin"
    tools.mkdir()
    programs = {"id": "echo 0", "apt-get": 'echo "apt-get $*" >&2', "dpkg": ""}
    programs |= dict.fromkeys(("apt-cache", "python3", "java"), "exit 1")
    programs["mkdir"] = '[[ "$*" == *man1* ]] || exec /bin/mkdir "$@"'
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    for name in ("scripts/setup.sh", "pyproject.toml", "constraints.txt", "requirements.lock"):
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    stub = checkout / "python"  # one that can make no environment
    scripts = {tools / name: script for name, script in programs.items()}
    scripts[stub] = 'case "$*" in *version_info*) exit 0 ;; *) exit 1 ;; esac'
    for tool, script in scripts.items():
        tool.write_text(f"#!/bin/bash\n{script}\n")
        tool.chmod(0o755)
    place = {"PATH": f"{tools}:/usr/bin:/bin", "PYTHON": str(stub), "HOME": str(tmp_path)}
    command = ["bash", "scripts/setup.sh"]
    told = {}
    for choice in ({}, {"DELVEC_NO_APT": "1"}):
        done = subprocess.run(
            command, cwd=checkout, env=place | choice, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        told[bool(choice)] = done.stderr
    log = checkout / ".cache" / "setup.log"
    assert "so these are installed now" in told[False]
    assert "apt-get install --no-install-recommends python3-venv" in told[False]
    assert "install -y --no-install-recommends python3-venv" in log.read_text()
    assert "so these are installed now" not in told[True]
    assert "Run this, then try again:" in told[True]
