"""delvec on a cluster of two executors, which get it with the application.

The Python of driver and executors has what delvec depends on, and not delvec itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

APP = ROOT / "tests" / "packaging" / "cluster_app.py"
MASTER = "local-cluster[2,1,1024]"
LIVE = sorted({n for n in range(1000) if n % 10 not in (3, 4)} | {*range(990, 1010)})


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages of this one, by links, except delvec."""
    environment = tmp_path_factory.mktemp("python") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = Path(sysconfig.get_path("purelib"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    target = environment / "lib" / version / "site-packages"
    spark = packages / "pyspark"
    (target / "pyspark").mkdir()  # executors run in `work` below it
    for path in (*packages.iterdir(), *spark.iterdir()):
        if "delvec" not in path.name and path != spark:
            (target / path.relative_to(packages)).symlink_to(path)
    python = environment / "bin" / "python"
    told = subprocess.run([python, "-c", "import delvec"], capture_output=True, check=False)
    assert b"No module named 'delvec'" in told.stderr
    return python


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/operating.md says: a zip of both packages."""
    file = tmp_path_factory.mktemp("archive") / "delvec.zip"
    with ZipFile(file, "w") as target:
        for package in ("delvec", "pyspark_delvec"):
            for path in sorted((ROOT / "src" / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    target.write(path, path.relative_to(ROOT / "src"))
    return file


def submitted(
    python: Path, folder: Path, *options: str, environment: dict[str, str]
) -> dict[str, object]:
    hidden = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME")
    kept = {key: value for key, value in os.environ.items() if key not in (*hidden, "PYTHONPATH")}
    pyspark = next(python.parents[1].glob("lib/*/site-packages")) / "pyspark"
    # Without PYSPARK_PYTHON, Spark runs the first `python3` of the path.
    path = f"{python.parent}{os.pathsep}{kept['PATH']}"
    done = subprocess.run(
        [
            *(str(pyspark / "bin" / "spark-submit"), "--master", MASTER),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR"),
            *(*options, str(APP), str(folder)),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, "PATH": path, **environment},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("result ")]
    told = [line for line in (done.stdout + done.stderr).splitlines() if "\tat " not in line]
    assert done.returncode == 0, "\n".join(told)[-8000:]
    found: dict[str, object] = json.loads(lines[-1].removeprefix("result "))
    return found


def require_right(found: dict[str, object]) -> None:
    assert found["master"] == MASTER
    assert (found["deleted"], found["merged"], found["pruned"]) == (200, [8, 12], 8)
    assert found["rows"] == found["source"] == found["sql"] == LIVE
    changed = {n for n in LIVE if n % 10 != 6 and n < 1005} | {*range(1010, 1020)}
    assert found["statements"] == [sorted(changed), LIVE]


@pytest.mark.parametrize("given", [True, False], ids=["PYSPARK_PYTHON", "PATH"])
def test_py_files(python: Path, archive: Path, tmp_path: Path, *, given: bool) -> None:
    environment = {"PYSPARK_PYTHON": str(python)} if given else {}
    found = submitted(python, tmp_path, "--py-files", str(archive), environment=environment)
    require_right(found)
    workers: list[list[str]] = found["workers"]  # type: ignore[assignment]
    assert {Path(place).parents[1].name for place, _ in workers} == {"delvec.zip"}
    assert "delvec.zip" in str(found["driver"])


def test_archives(python: Path, tmp_path: Path) -> None:
    """An environment with delvec is unpacked beside each executor, whose Python is in it."""
    packed = tmp_path / "environment.tar.gz"
    _pack(python.parents[1], packed)
    # Spark plans data sources of Python beside the driver, by the same PYSPARK_PYTHON.
    shutil.unpack_archive(packed, tmp_path / "environment", filter="fully_trusted")
    found = submitted(
        python,
        tmp_path,
        *("--archives", f"{packed}#environment"),
        environment={"PYSPARK_PYTHON": "./environment/bin/python"},
    )
    require_right(found)
    workers: list[list[str]] = found["workers"]  # type: ignore[assignment]
    assert all("environment/" in place for place, _ in workers), workers


def _pack(environment: Path, file: Path) -> None:
    """As `venv-pack` does: the environment, with the packages that delvec needs and delvec."""
    needed = (
        *("numpy", "pyarrow", "pyroaring", "obstore", "typing_extensions", "py4j"),
        # PySpark wants pandas for vectors that tasks write, and these are what pandas wants.
        *("pandas", "dateutil", "pytz", "tzdata", "six"),
    )
    site = next(environment.glob("lib/*/site-packages"))
    inside = site.relative_to(environment)
    with tarfile.open(file, "w:gz", compresslevel=1) as target:
        target.add(environment / "pyvenv.cfg", "pyvenv.cfg")
        target.add(environment / "bin", "bin")  # links to the Python that all machines have
        for path in site.iterdir():
            if path.name.startswith(needed):
                target.add(path.resolve(), inside / path.name)
        for package in ("delvec", "pyspark_delvec"):
            target.add(ROOT / "src" / package, inside / package)
