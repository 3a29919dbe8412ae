"""The wheel and the sdist: what is in them, and what a package index shows of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata
from packaging.version import Version

import delvec
from tests.packaging.conftest import built
from tests.repository import ROOT

pytestmark = pytest.mark.more

SOURCE = ROOT / "src"
PACKAGES = ("delvec", "pyspark_delvec")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Metadata:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Metadata.from_email(archive.read(name), validate=True)


def content(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, without those that tell about it."""
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        return {name: archive.read(name) for name in names}


def test_the_wheel_has_all_modules_and_java_sources_and_nothing_else(wheel: Path) -> None:
    files = [path for package in PACKAGES for path in (SOURCE / package).rglob("*.*")]
    expected = {str(path.relative_to(SOURCE)) for path in files if path.suffix not in ("", ".pyc")}
    assert set(content(wheel)) == expected
    assert "delvec/py.typed" in expected
    assert sum(name.endswith(".java") for name in expected) >= 5
    kinds = {name.rpartition(".")[2] for name in expected}
    assert kinds <= {"py", "java", "typed", "css", "js", "html", "svg"}
    with ZipFile(wheel) as archive:
        told = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        assert "licenses/LICENSE" in told
        points = archive.read(told["entry_points.txt"]).decode()
    assert "[console_scripts]\ndelvec = delvec.cli:main" in points


@pytest.mark.skipif(shutil.which("zip") is None, reason="there is no zip here")
def test_the_zip_for_clusters_has_what_the_wheel_has(wheel: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "operating.md").read_text()
    [command] = re.findall(r"^\(cd .*?> delvec\.zip$", text, re.MULTILINE | re.DOTALL)
    place = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=place, check=True)
    with ZipFile(tmp_path / "delvec.zip") as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert names == set(content(wheel))


def test_the_sdist_has_what_makes_the_wheel(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    names = {path.name for path in folder.iterdir()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "src", "tests"} <= names
    assert not {".venv", ".cache", "dist", "warehouse", "spark-warehouse"} & names
    expected = {
        str(path.relative_to(folder / "src")): path.read_bytes()
        for path in (folder / "src").rglob("*")
        if path.is_file()
    }
    assert content(built("wheel", tmp_path / "wheel", folder)) == expected
    assert "delvec/py.typed" in expected


def test_the_metadata_says_what_is_needed(metadata: Metadata) -> None:
    assert (metadata.name, metadata.version) == ("delvec", Version(delvec.__version__))
    assert metadata.license_expression == "Apache-2.0"
    assert str(metadata.requires_python) == ">=3.10"
    needed = [each for each in metadata.requires_dist or [] if each.marker is None]
    assert {each.name for each in needed} == {
        *("pyspark", "pyarrow", "numpy", "pyroaring", "obstore", "click", "rich")
    }
    [pinned] = [
        str(each.specifier)
        for each in metadata.requires_dist or []
        if each.name == "pyspark" and each.marker and each.marker.evaluate({"extra": "spark"})
    ]
    assert pinned == "~=4.1.0"
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(metadata.project_urls or {})


def test_links_of_the_readme_work_on_the_page_of_the_package(metadata: Metadata) -> None:
    """Relative links lead into the repository there, to files that exist."""
    assert metadata.description_content_type == "text/markdown"
    page = metadata.description or ""
    assert "Apache Iceberg" in page
    found = re.findall(r'\]\(([^)\s]+)|(?:href|src)="([^"]+)', page)
    links = [first or second for first, second in found if not first.startswith("#")]
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    home = (metadata.project_urls or {})["Homepage"]
    own = [link.removeprefix(f"{home}/blob/main/") for link in links if link.startswith(home)]
    assert own
    assert [path for path in own if not (ROOT / urlsplit(path).path).exists()] == []
