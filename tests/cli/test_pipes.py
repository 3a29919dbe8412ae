"""Output in a pipe: quiet when nobody reads it, whole lines, no colours; errors beside it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest

from delvec.cli.exits import ExitCode
from tests.delta.builder import TableBuilder, small_table

pytestmark = pytest.mark.more

DELVEC = str(Path(sys.executable).with_name("delvec"))
LONG = "part-00000-fae5310a-a37d-4e51-827b-c3d5516560ca-c000.snappy.parquet"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of more files than fit the buffer of a pipe."""
    root = tmp_path_factory.mktemp("many") / "orders"
    table = TableBuilder(root)
    table.create()
    add = {"size": 1, "modificationTime": 0, "dataChange": True, "partitionValues": {}}
    table.commit(*({"add": add | {"path": f"{number}-{LONG}"}} for number in range(2000)))
    return root


def environment(**more: str) -> Mapping[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")
    }
    return {**kept, "PYTHONWARNINGS": "default", **more}


def test_a_closed_pipe_ends_the_command_quietly(table: Path) -> None:
    arguments = [DELVEC, "files", str(table), "--limit", "0", "--json"]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait() == ExitCode.NO_READER


def test_the_exit_code_is_that_of_other_tools(table: Path) -> None:
    script = f'set -o pipefail; "{DELVEC}" files "{table}" --limit 0 | head -1; echo $?'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith(str(table))
    assert done.stdout.splitlines()[-1] == "141"


def test_lines_in_a_pipe_are_whole_and_plain(table: Path) -> None:
    done = subprocess.run(
        [DELVEC, "files", str(table), "--limit", "0"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(TERM="xterm-256color"),
    )
    assert "\x1b" not in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [f"7-{LONG}", "1", "B"] in lines
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    assert done.stderr == ""


def test_help_and_history_import_neither_spark_nor_more_than_they_need(
    table: Path, tmp_path: Path
) -> None:
    small_table(tmp_path)
    absent = {"pyspark", "py4j", "pyarrow", "numpy", "rich", "delvec.delta"}
    code = f"""
import sys
from delvec.cli import main
def run(*arguments):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, arguments
run("--help")
assert not {absent!r} & set(sys.modules)
run("history", {str(table)!r})
assert "pandas" not in sys.modules
for name in ("history", "detail", "schema", "properties", "files"):
    run(name, {str(table)!r})
run("checkpoint", {str(table)!r}, "--dry-run")
run("check", {str(tmp_path)!r})
assert not {{"pyspark", "py4j"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_gets_colours_unless_it_wants_none(table: Path, *, plain: bool) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    more = {"NO_COLOR": "1"} if plain else {}
    arguments = [DELVEC, "history", str(table)]
    settings = environment(TERM="xterm-256color", **more)
    process = subprocess.Popen(arguments, stdout=theirs, stderr=subprocess.PIPE, env=settings)
    os.close(theirs)
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""  # progress is for terminals, and this is none
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert process.wait() == 0
    assert ("\x1b[36m" in shown) == (not plain)
    assert "operation" in shown


def test_progress_is_shown_on_standard_error_of_a_terminal(table: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = [DELVEC, "checkpoint", str(table), "--dry-run"]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=theirs, env=environment(TERM="xterm")
    )
    os.close(theirs)
    assert process.stdout is not None
    with process.stdout:
        shown = process.stdout.read().decode()
    told = os.read(ours, 10_000).decode()
    os.close(ours)
    assert process.wait() == 0
    assert " checkpoint " in told
    assert "━" in told
    assert "━" not in shown
    assert "\x1b" not in shown
