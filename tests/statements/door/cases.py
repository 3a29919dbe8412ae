"""Cases for both engines, read from the files of `cases/`.

A case begins with `# name`, and each line behind it is a step, as `engine` takes them; a line that
begins with blanks goes on with the step before it. `@T` is a table that many cases begin with, see
`TABLES`. Where delvec takes what delta-spark refuses, a line `~ step` is what delta-spark carries
out instead of the step before it. A line `! why` says that delvec differs from delta-spark on
purpose: the case then fails if they do not differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "cases"
TABLES = {
    "@T": "CREATE TABLE t USING delta AS SELECT * FROM VALUES"
    " (1L, 10, 'a'), (2L, 20, 'b'), (3L, 30, 'c'), (4L, NULL, NULL) AS _(id, v, s)",
    "@S": "CREATE TABLE s USING delta AS SELECT * FROM VALUES"
    " (2L, 200, 'bb'), (4L, 400, NULL), (5L, 500, 'ee') AS _(id, v, s)",
    "@P": "CREATE TABLE p USING delta PARTITIONED BY (day) AS SELECT * FROM VALUES"
    " (1L, 'a', DATE '2026-01-01'), (2L, 'b', DATE '2026-01-02'), (3L, 'c', NULL)"
    " AS _(id, s, day)",
    "@N": "CREATE TABLE n USING delta AS SELECT * FROM VALUES"
    " (1L, named_struct('a', 1, 'b', named_struct('c', 'x', 'd', 2)), array(1, 2), map('k', 1)),"
    " (2L, NULL, NULL, NULL) AS _(id, st, ar, mp)",
}


@dataclass(frozen=True)
class Case:
    """Steps for each engine, and why what they do differs, if it is to."""

    name: str
    steps: tuple[str, ...]
    expected: tuple[str, ...]
    differs: str | None


def read_cases(folder: Path = _FOLDER) -> Iterator[Case]:
    """Yield the cases of all files of a folder, by the names of these."""
    for file in sorted(folder.glob("*.sql")):
        for text in file.read_text().split("\n# ")[1:]:
            name, *lines = text.splitlines()
            steps: list[str] = []
            expected: list[str] = []
            differs = None
            for line in filter(str.strip, lines):
                if line.startswith("! "):
                    differs = line[2:]
                elif line.startswith("~ "):
                    expected[-1] = line[2:]
                elif line[0].isspace():
                    expected[-1] = steps[-1] = f"{steps[-1]}\n{line}"
                else:
                    for each in (steps, expected):
                        each.append(TABLES.get(line, line))
            yield Case(f"{file.stem}: {name}", tuple(steps), tuple(expected), differs)
