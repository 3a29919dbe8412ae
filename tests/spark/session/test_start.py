"""The quiet start, with plain processes in the place of the JVM."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from select import select

import pytest

from delvec.spark.session.start import QuietStart, download_alone, jar_name

pytestmark = pytest.mark.more

LINES = "import sys\nfor i in range(5): print('line', i, file=sys.stderr)\n"


def spawn(code: str, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=stderr)


def run(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program that uses a quiet start, and see what it writes."""
    prelude = (
        "import os, subprocess, sys, time\nfrom delvec.spark.session.start import QuietStart\n"
    )
    command = [sys.executable, "-c", prelude + code]
    return subprocess.run(command, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload, no-any-return]


PROGRAM = """
child = 'import sys; print("early", file=sys.stderr, flush=True); sys.stdin.readline();' \\
        'print("late", file=sys.stderr, flush=True); sys.stderr.write("x" * 300000)'
command = [sys.executable, "-c", child]
with QuietStart() as console:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=console.sink)
    while b"early\\n" not in console._held:
        time.sleep(0.01)
    {inside}
process.communicate(b"\\n")
console._reader.join()
"""


OWN_WORD = 'print("my own word", file=sys.stderr)'


def test_early_words_are_held_back_later_ones_pass_and_our_own_always_do() -> None:
    done = run(PROGRAM.format(inside=OWN_WORD), capture_output=True)
    assert done.returncode == 0
    assert done.stderr.startswith("my own word\nlate\n")
    assert done.stderr.count("x") == 300_000


def test_early_words_are_shown_when_the_block_fails() -> None:
    done = run(PROGRAM.format(inside=f"{OWN_WORD}; raise ValueError('no')"), capture_output=True)
    assert "my own word\nearly\n" in done.stderr
    assert "ValueError: no" in done.stderr


def test_a_process_does_not_stand_still_when_nobody_reads_its_words() -> None:
    """Standard error may be a pipe whose reader has gone: a JVM must not wait for it."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(PROGRAM.format(inside="pass"), stderr=writer)
    finally:
        os.close(writer)
    assert done.returncode == 0


def test_nothing_is_lost_on_a_pipe_that_does_not_block(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with (tmp_path / "log").open("wb") as log:
        slow = subprocess.Popen(
            [sys.executable, "-c", "import sys, time; time.sleep(2); print(sys.stdin.read())"],
            stdin=reader,
            stdout=log,
        )
        os.close(reader)
        run(PROGRAM.format(inside="pass"), stderr=writer)
        os.close(writer)
        slow.wait(timeout=30)
    assert (tmp_path / "log").read_text().count("x") == 300_000


def test_the_last_lines_of_a_process_that_failed_are_all_there() -> None:
    for _ in range(10):
        with QuietStart() as console:
            with spawn(LINES, console.sink) as process:
                process.wait()
            lines = console.last_lines()
        assert lines.splitlines() == [f"line {number}" for number in range(5)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
def test_no_file_stays_open_when_the_process_is_gone() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()  # what other tests left is not ours
    before = count()
    for _ in range(10):
        with QuietStart() as console, spawn(LINES, console.sink) as process:
            process.wait()
    deadline = time.monotonic() + 10  # the readers end in their own time
    while count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert count() <= before


PACKAGE = "org.example:thing:1.0"
DOWNLOAD = """
import sys
from delvec.spark.session.start import download_alone
with download_alone([sys.argv[1]], sys.argv[2]):
    print("in", flush=True)
    sys.stdin.readline()
"""


def downloading(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DOWNLOAD, PACKAGE, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def is_in(process: subprocess.Popen[str], seconds: float) -> bool:
    assert process.stdout is not None
    return bool(select([process.stdout], [], [], seconds)[0])


def test_a_second_process_waits_until_the_first_has_the_jars_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "a new folder"
    with downloading(folder) as first:
        assert is_in(first, 60)
        with downloading(folder) as second:
            assert not is_in(second, 3)
            (folder / "jars").mkdir()
            (folder / "jars" / jar_name(PACKAGE)).touch()
            first.communicate("\n")
            assert is_in(second, 60)
            with download_alone([PACKAGE], str(folder)):
                assert second.poll() is None
            second.communicate("\n")
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_process_that_is_killed_while_it_downloads_keeps_nobody_waiting(tmp_path: Path) -> None:
    with downloading(tmp_path) as first:
        assert is_in(first, 60)
        first.kill()
        first.wait()
        with downloading(tmp_path) as second:
            assert is_in(second, 60)
            second.communicate("\n")


def test_a_folder_without_room_for_a_lock_keeps_nobody_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with download_alone([PACKAGE], str(tmp_path / "file")):
        pass


def test_nothing_is_made_where_nothing_is_downloaded(tmp_path: Path) -> None:
    with download_alone([], str(tmp_path / "ivy")):
        pass
    assert not (tmp_path / "ivy").exists()
