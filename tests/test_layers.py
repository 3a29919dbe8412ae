"""The direction of the arrows: who may import what, and what an import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import delvec

SOURCE = Path(delvec.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# The rooms, lowest first: a module imports from its own room and from those above it in this list.
# The longest name that fits is a module's room.
ROOMS = (
    *("report", "errors", "documents", "_version", "identifiers", "frames", "calls"),
    *("inspection", "storage", "vector", "parquet"),
    *("delta.schema", "delta.skipping", "delta.log", "delta.read", "delta.write", "delta.alter"),
    *("delta.vacuum", "delta.maintain", "delta.check", "delta.traces"),
    *("spark", "spark.input", "datasource", "spark.session"),
    *("spark.delta.scan", "spark.delta.write", "spark.delta.maintain", "delta.table"),
    *("iceberg.client", "iceberg.commit", "iceberg.deletes", "iceberg.write", "iceberg.maintain"),
    *("iceberg.search", "iceberg.resolve", "iceberg.table"),
    *("conversion.schema", "conversion.files", "conversion.planning", "conversion"),
    *("statements", "door", "compat"),
    *("cli", "cli.commands", "cli.demo"),
)
# What a room imports of delvec at most, where the order alone allows more.
ONLY = {
    "identifiers": ("errors",),
    "frames": ("errors",),
    "calls": ("errors",),
    "report": (),
    "inspection": ("errors", "documents", "_version", "report"),
    "storage": ("errors", "documents", "_version", "report.hints"),
    "vector": ("errors", "documents", "_version"),
    "parquet": ("errors",),
    "datasource": (
        *("errors", "documents", "report", "_version", "storage", "vector", "delta"),
        "spark.types",
    ),
    "iceberg.client": (
        *("errors", "documents", "identifiers", "report", "storage", "vector", "spark"),
    ),
}
# Packages of others, and the only rooms that import them; the last two also inside functions.
FOREIGN = {
    "pyspark": ("spark", "datasource", "iceberg", "conversion", "statements", "door", "compat"),
    "py4j": ("spark", "iceberg", "conversion", "statements", "door"),
    "obstore": ("storage",),
    "click": ("cli",),
    "rich": ("cli",),
    "pandas": (),
    "polars": ("frames",),
    "typing_extensions": (),
}


def name_of(file: Path) -> str:
    """The module without `delvec.`; empty for the package itself."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


NAMES = {name_of(file) for file in MODULES}


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def room_of(name: str) -> str:
    return max((room for room in ROOMS if is_in(name, room)), key=len, default="")


@dataclass(frozen=True)
class Imported:
    name: str
    at_top: bool
    for_types: bool


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def imports_of(file: Path) -> set[Imported]:
    """All modules that a file imports; inside functions, and for types only, as well."""
    tree = tree_of(file)
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[Imported] = set()
    for node in ast.walk(tree):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if name.removeprefix("delvec.") in NAMES}
            names = modules | ({node.module} if len(modules) < len(inner) else set())
        found |= {
            Imported(name, not getattr(node, "col_offset", 0), node in for_types) for name in names
        }
    return found


def imported_names(file: Path, *packages: str) -> set[str]:
    return {each.name for each in imports_of(file) if is_in(each.name, *packages)}


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_modules_import_downwards_only(file: Path) -> None:
    name = name_of(file)
    if not name:
        return  # the package gathers the public names
    room = room_of(name)
    if not room:
        assert file.name == "__init__.py", f"{name} is in no room"
        assert not imported_names(file, "delvec")
        return
    ours = {
        each.removeprefix("delvec.")
        for each in imported_names(file, "delvec")
        if each not in ("delvec", "delvec.__version__")
    }
    upwards = {each for each in ours if ROOMS.index(room_of(each)) > ROOMS.index(room)}
    assert not upwards
    if room in ONLY:
        assert not {each for each in ours if not is_in(each, room, *ONLY[room])}


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_packages_of_others_stay_in_their_rooms(file: Path) -> None:
    name = name_of(file)
    for package, rooms in FOREIGN.items():
        if is_in(name, *rooms):
            continue
        for each in imports_of(file):
            if is_in(each.name, package) and not each.for_types:
                assert package == "pyspark", f"{name} imports {each.name}"
                assert not each.at_top, f"{name} imports {each.name} whoever calls it"
                assert not is_in(name, "vector", "storage", "report", "parquet")
                assert not is_in(name, "delta") or is_in(name, "delta.table")
    if is_in(name, "vector", "parquet"):
        assert not imported_names(file, "os", "io", "pathlib"), "bytes come as arguments"


def users_of(is_use: Callable[[ast.AST], bool]) -> set[str]:
    return {
        name_of(file) for file in MODULES if any(is_use(node) for node in ast.walk(tree_of(file)))
    }


def is_call(node: ast.AST, *methods: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
    )


def test_only_one_module_says_jvm() -> None:
    assert users_of(
        lambda node: (
            (isinstance(node, ast.Attribute) and node.attr == "_jvm")
            or (isinstance(node, ast.Constant) and node.value == "_jvm")
        )
    ) == {"spark.jvm"}


# They give it the words of the caller, numbers and names of delvec's own, or, in the last four, an
# expression that a table stores.
SPEAKERS = {
    *("compat.arguments", "compat.table_builder", "cli.commands.sql"),
    *("iceberg.write.key_predicates", "iceberg.write.upsert", "iceberg.maintain.check"),
    *("iceberg.maintain.procedures", "iceberg.search.key_index", "spark.engine"),
    *(f"spark.delta.maintain.{each}" for each in ("optimize", "rewrite_files", "traces")),
    *(f"spark.delta.write.{each}" for each in ("append", "clauses", "update")),
    *("spark.delta.scan.conditions", "spark.positions", "door.run"),
}


def test_only_these_modules_give_text_to_a_parser_that_replaces_variables() -> None:
    def is_composed(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not is_call(node, "expr", "selectExpr", "sql"):
            return False
        return not all(isinstance(each, ast.Constant) for each in node.args)

    speakers = {name for name in users_of(is_composed) if not is_in(name, "cli.demo")}
    assert speakers <= SPEAKERS, "SQL made of a table's words goes to spark.expressions"


def test_arrow_gets_no_name_that_it_could_take_for_a_path() -> None:
    def is_a_path(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not is_call(node, "struct_field"):
            return False
        return not isinstance(node.args[1], ast.List | ast.Constant)

    # There it is a list of names.
    assert users_of(is_a_path) == {"delta.maintain.recompute_statistics"}


def test_arrow_is_asked_for_pandas_where_rows_come_in_and_go_out() -> None:
    assert users_of(
        lambda node: is_call(node, "to_pandas", "to_pandas_dtype", "from_pandas", "toPandas")
    ) == {"frames", "spark.input.arrow"}


def test_only_one_module_puts_commits_of_delta() -> None:
    writes = ("write", "write_if_absent")
    assert users_of(lambda node: is_call(node, *writes) and "commit_key" in ast.unparse(node)) == {
        "delta.write.commit"
    }
    # Beside it only checkpoints are put where nothing may be: a commit could hide behind no other.
    puts = users_of(lambda node: is_call(node, "write_if_absent"))
    assert {name for name in puts if not is_in(name, "storage", "cli.demo")} == {
        "delta.write.commit",
        "delta.log.checkpoint_writer",
    }


def test_only_these_modules_commit_to_iceberg() -> None:
    assert users_of(lambda node: is_call(node, "commit", "commitTransaction")) == {
        "iceberg.commit.commit"
    }
    java = [file.read_text() for file in SOURCE.rglob("*.java")]
    assert not any(re.search(r"\.commit(?!StagedChanges)\w*\(", text) for text in java)


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


def test_all_public_names_exist_and_nothing_else_is_offered() -> None:
    assert dir(delvec) == sorted(delvec.__all__)
    for name in delvec.__all__:
        assert getattr(delvec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = delvec.nothing


TESTS = Path(__file__).parent
WITHOUT_JVM = ("vector", "storage", "parquet", "report", "inspection", "delta")
TESTS_WITHOUT_JVM = [file for name in WITHOUT_JVM for file in sorted((TESTS / name).rglob("*.py"))]


@pytest.mark.parametrize("file", TESTS_WITHOUT_JVM, ids=lambda file: str(file.relative_to(TESTS)))
def test_the_tests_of_these_folders_need_no_jvm(file: Path) -> None:
    asked = {
        name
        for node in ast.walk(tree_of(file))
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
    assert not imported_names(file, "tests.spark", "tests.interop", "tests.conversion")
