"""Snapshots of what commands print: one file for each command, in `tests/cli/snapshots`.

    make snapshots        # writes them again; look at the difference before you commit it

What varies from run to run is replaced: times, sizes, ids, durations, and the folder.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from delvec.cli import main
from tests.cli.runner import separate
from tests.repository import ROOT

PINNED = pytest.mark.skipif(
    tuple(map(int, version("click").split(".")[:2])) < (8, 2),
    reason="snapshots are those of newer versions of click and rich",
)
FOLDER = ROOT / "tests/cli/snapshots"
REWRITE = "DELVEC_WRITE_SNAPSHOTS"
WIDTH = 80

# In this order; each matches what an earlier one left.
TEXTS = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?", "<time>"),
    (r"\b\d{13,19}\b", "<id>"),
    (r"\b\d+(\.\d)? ([KMG]i)?B\b", "<size>"),
    (r"\b\d+\.\d\d s\b( +\d+ %)?", "<seconds>"),
    (r"\bowner +\w+$", "owner  <user>"),
    (r"[\w.<>-]*<uuid>[\w.<>-]*", "<file>"),
    (r"[\w.<>-]*…[\w.<>-]*", "<file>"),
    (r"(delvec|Delta-Lake|Apache-Spark)/[\d.]+[\w.]*", r"\1/<version>"),
    (r"─+", "───"),
    (r"[ \t]+$", ""),
    (r"(?<=\S) {2,}", "  "),
)
# Values of these keys vary in JSON; their kind stays.
VARYING = re.compile(
    r"(?i)bytes|size|timestamp|pathOrInlineDv|(_ms|modified|seconds|uuid|^id|_id|time|snapshot"
    r"|sequence)$|^(phases|requests|owner|host|delvec|app-id|engine-version|iceberg-version)$"
)


@dataclass
class Recorder:
    """Runs commands, and keeps what they print."""

    folder: Path
    printed: dict[str, list[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def run(self, *arguments: str, width: int = WIDTH, **more: Any) -> str:  # noqa: ANN401
        """Run a command, and keep its output under its name."""
        environment = {"COLUMNS": str(width), "NO_COLOR": "1"}
        done = separate().invoke(main, list(arguments), env=environment, **more)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            self.failed.append(f"{' '.join(arguments)}: {done.exception!r}")
        is_json = "--json" in arguments
        shown = self.json(done.stdout) if is_json else self.text(done.stdout)
        parts = [f"$ delvec {self.text(' '.join(map(quoted, arguments)))}", shown]
        if done.stderr:
            parts.append(f"--- standard error\n{self.text(done.stderr)}")
        if done.exit_code:
            parts.append(f"--- exit code {done.exit_code}")
        self.printed.setdefault(arguments[0], []).append("\n".join(parts).rstrip() + "\n")
        return done.stdout

    def both(self, *arguments: str) -> None:
        """Run a command that changes nothing, as text and as JSON."""
        self.run(*arguments)
        self.run(*arguments, "--json")

    def tried(self, *arguments: str) -> None:
        """Run a command without effect, as text; then for real, as JSON."""
        self.run(*arguments, "--dry-run")
        self.run(*arguments, "--json")

    def text(self, text: str) -> str:
        text = text.replace(str(self.folder), "/lake")
        for pattern, shown in TEXTS:
            text = re.sub(pattern, shown, text, flags=re.MULTILINE)
        return text.strip("\n")

    def json(self, text: str) -> str:
        return json.dumps(self.steady(json.loads(text)), indent=2) if text else ""

    def steady(self, value: Any, key: str = "") -> Any:  # noqa: ANN401
        """The value with all that varies replaced by its kind."""
        if isinstance(value, dict) and key not in ("phases", "requests"):
            return {self.text(name): self.steady(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.steady(each, key) for each in value]
        if value is None or isinstance(value, bool):
            return value
        if VARYING.search(key):
            return f"<{type(value).__name__}>"
        return self.text(value) if isinstance(value, str) else value

    def of(self, name: str) -> str:
        """All that a command printed."""
        return "\n".join(self.printed[name])


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short and always as long: lines break in the same places."""
    with tempfile.TemporaryDirectory(prefix="lake-", dir="/tmp") as made:
        yield Path(made)


def too_long(recorder: Recorder) -> list[str]:
    """The lines that do not fit the terminal; those of errors are folded by it, to be copied."""
    found = [printed.partition("\n") for all_of in recorder.printed.values() for printed in all_of]
    shown = [text for command, _, text in found if "--json" not in command]
    lines = [line for text in shown for line in text.splitlines() if "_COMPLETE" not in line]
    folded = ("Error: ", "Hint: ")
    return [line for line in lines if len(line) > WIDTH and not line.startswith(folded)]


def quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def compare(name: str, printed: str) -> None:
    """Compare with the snapshot, or write it."""
    file = FOLDER / f"{name}.txt"
    if os.environ.get(REWRITE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(printed)
        return
    assert file.exists(), f"no snapshot of {name}: run `make snapshots`"
    assert printed == file.read_text(), "if this is meant: `make snapshots`, and look at the diff"
