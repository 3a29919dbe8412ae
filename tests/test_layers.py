"""The direction of the arrows: who may import what, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import delvec

SOURCE = Path(delvec.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# An engine holds a session: modules that name its type, and do not import it when they run.
TYPES_ONLY = {
    name: {"pyspark.sql", "pyspark.sql.SparkSession"}
    for name in ("delvec.delta.write.engine", "delvec.delta.write.transaction")
}


def name_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(file: Path) -> set[str]:
    """All modules that a file imports, inside functions too; type-checking imports included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def imports_any(file: Path, *names: str) -> set[str]:
    return {
        imported
        for imported in imports_of(file)
        if any(imported == name or imported.startswith(f"{name}.") for name in names)
    }


def at_top_level(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.startswith(("import", "from"))]


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_modules_import_downwards_only(file: Path) -> None:
    name = name_of(file)
    if not name.startswith("delvec.cli"):
        assert not imports_any(file, "delvec.cli", "click", "rich"), "nobody imports the command"
    if name.startswith("delvec.vector"):
        others = {
            other for other in imports_any(file, "delvec") if not other.startswith("delvec.vector")
        }
        allowed = ("delvec.errors", "delvec._version")
        assert all(other.startswith(allowed) for other in others - {"delvec"}), others
        assert not imports_any(file, "obstore", "pyspark", "os", "io", "pathlib")
    if name.startswith("delvec.storage"):
        assert not imports_any(file, "pyspark", "delvec.vector", "delvec.spark")
    if name.startswith("delvec.delta"):
        above = imports_any(file, "pyspark", "delvec.spark", "delvec.datasource")
        if name.startswith("delvec.delta.table"):  # calls them, inside functions
            above = {line for line in at_top_level(file) if "spark" in line}
        assert not above - TYPES_ONLY.get(name, set())
    if not name.startswith("delvec.storage"):
        assert not imports_any(file, "obstore"), "only the storage package talks to stores"
    on_spark = (
        "delvec.spark",
        "delvec.iceberg",
        "delvec.datasource",
        "delvec.conversion.apply.verify",
    )
    if not name.startswith(on_spark):
        assert not any("pyspark" in line for line in at_top_level(file))
    if name.startswith(("delvec.spark", "delvec.delta", "delvec.iceberg")):
        assert not imports_any(file, "delvec.conversion"), "conversion is above both formats"
    if name.startswith("delvec.iceberg"):
        assert not imports_any(file, "delvec.delta"), "Iceberg knows nothing of Delta"


def test_only_one_module_says_jvm() -> None:
    users = {
        name_of(file)
        for file in MODULES
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr == "_jvm")
        or (isinstance(node, ast.Constant) and node.value == "_jvm")
    }
    assert users == {"delvec.spark.jvm"}


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_core_imports_neither_spark_nor_stores() -> None:
    loaded = modules_after("import delvec.vector")
    assert "pyroaring" in loaded
    assert not loaded & {"pyspark", "py4j", "obstore", "pyarrow", "rich", "click"}


def test_importing_delvec_is_light_and_starts_no_jvm() -> None:
    loaded = modules_after("import delvec")
    assert not loaded & {"pyspark", "py4j", "obstore", "pyarrow", "numpy", "rich", "click"}
    code = """
import subprocess, sys
started = []
subprocess.Popen.__init__ = lambda self, *args, **kwargs: started.append(args)
import delvec
from delvec import Bitmap, errors, vector
assert 'pyspark' not in sys.modules
delvec.session, delvec.configure
assert 'pyspark' in sys.modules
from pyspark import SparkContext
assert SparkContext._gateway is None and not started
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_does_not_import_spark() -> None:
    code = """
import sys
from click.testing import CliRunner
from delvec.cli import main
for arguments in (["--help"], ["--version"], ["demo", "--json", "--no-spark"]):
    assert CliRunner().invoke(main, arguments).exit_code == 0
assert 'pyspark' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_public_names_exist_and_nothing_else_is_offered() -> None:
    assert dir(delvec) == sorted(delvec.__all__)
    for name in delvec.__all__:
        assert getattr(delvec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = delvec.nothing


TESTS = Path(__file__).parent
WITHOUT_JVM = ("vector", "storage", "parquet", "report", "delta")
TESTS_WITHOUT_JVM = [file for name in WITHOUT_JVM for file in sorted((TESTS / name).rglob("*.py"))]


@pytest.mark.parametrize("file", TESTS_WITHOUT_JVM, ids=lambda file: str(file.relative_to(TESTS)))
def test_the_tests_of_these_folders_need_no_jvm(file: Path) -> None:
    asked = {
        name
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]
            if isinstance(node, ast.FunctionDef)
            else [node.attr]
            if isinstance(node, ast.Attribute)
            else [node.value]
            if isinstance(node, ast.Constant) and node.value == "spark"
            else []
        )
    }
    assert "spark" not in asked, "the fixture or the mark: it belongs under tests/spark"
    assert not imports_any(file, "tests.spark", "tests.interop", "tests.conversion")
