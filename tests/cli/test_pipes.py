"""Output in a pipe: quiet when nobody reads it, whole lines, no colours; errors beside it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
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


def output(command: Sequence[str], **more: str) -> str:
    """What a command that succeeds prints into a pipe; it says nothing on standard error."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment(**more)
    )
    assert done.stderr == ""
    return done.stdout


def in_terminal(command: Sequence[str], *ends: str, **more: str) -> tuple[str, str]:
    """What a command shows in a terminal, to which these ends lead, and in a pipe."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    out, err = (theirs if end in ends else subprocess.PIPE for end in ("stdout", "stderr"))
    process = subprocess.Popen(command, env=environment(**more), stdout=out, stderr=err)
    os.close(theirs)
    piped = b"".join(each for each in process.communicate() if each)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert process.returncode == 0
    return shown.decode(), piped.decode()


def test_a_closed_pipe_ends_the_command_quietly(table: Path) -> None:
    with subprocess.Popen(
        [DELVEC, "files", str(table), "--limit", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == ExitCode.NO_READER
    script = f'set -o pipefail; "{DELVEC}" files "{table}" --limit 0 | head -1; echo $?'
    lines = output(["bash", "-c", script]).splitlines()
    assert lines[0].startswith(str(table))
    assert lines[-1] == "141"  # as of other tools


def test_lines_in_a_pipe_are_whole_and_plain(table: Path) -> None:
    shown = output([DELVEC, "files", str(table), "--limit", "0"], TERM="xterm-256color")
    assert "\x1b" not in shown
    assert [f"7-{LONG}", "1", "B"] in [line.split() for line in shown.splitlines()]
    assert not any(line.endswith(" ") for line in shown.splitlines())


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
run("demo", "--json", "--no-spark")
assert not {{"pyspark", "py4j"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_gets_colours_unless_it_wants_none(table: Path, *, plain: bool) -> None:
    more = {"TERM": "xterm-256color", **({"NO_COLOR": "1"} if plain else {})}
    shown, errors = in_terminal([DELVEC, "history", str(table)], "stdout", **more)
    assert errors == ""  # progress is for terminals, and this is none
    assert ("\x1b[36m" in shown) == (not plain)
    assert "operation" in shown


def test_progress_is_shown_on_standard_error_of_a_terminal(table: Path) -> None:
    command = [DELVEC, "checkpoint", str(table), "--dry-run"]
    told, shown = in_terminal(command, "stderr", TERM="xterm")
    assert " checkpoint " in told
    assert "━" in told
    assert "━" not in shown
    assert "\x1b" not in shown


def test_what_is_printed_while_progress_is_shown_has_a_line_of_its_own() -> None:
    code = """
from delvec.cli.output import Output
output = Output()
with output.progress() as show:
    show("at work", 0, 0)
    output.note("a sentence")
"""
    shown, _ = in_terminal([sys.executable, "-c", code], "stdout", "stderr", TERM="xterm")
    before, sentence, _ = shown.partition("a sentence")
    assert sentence
    assert before.endswith("\r\x1b[2K")
