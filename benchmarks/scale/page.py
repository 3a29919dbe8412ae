"""The tables of docs/scale.md and its plot, from docs/scale.json; the prose is that of the page.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.scale.delta_operations import DELTA_OPERATIONS
from benchmarks.scale.model import Line, checked, line_through, series
from benchmarks.scale.plot import plot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DOCS", "TABLES", "numbers", "written"]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
_TABLE: Final = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TEN: Final = 10_000_000
_FAR: Final = 100_000_000
_GIB: Final = 1024.0
_READING: Final = "plan by bounds"
_FORMS: Final = {"classic": "one file", "parts": "parts", "sidecars": "v2, sidecars"}
_NO_MEMORY: Final = ("MemoryError", "bad_alloc")
_KINDS: Final = ("gets", "heads", "puts", "lists")

Document = dict[str, Any]
Rows = list[list[str]]


def numbers() -> Document:
    """Return the numbers that the page states."""
    path = DOCS / "scale.json"
    found: Document = json.loads(path.read_text()) if path.exists() else {"runs": []}
    return found


def written(document: Document) -> dict[str, str]:
    """Return all files of the page by their path below docs."""

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}{TABLES[found[2]](document)}{found[3]}"

    page = _TABLE.sub(table, (DOCS / "scale.md").read_text())
    lines = {operation: _memory_points(document, operation) for operation in DELTA_OPERATIONS}
    return {"scale.md": page, "images/scale-memory.svg": plot(lines)}


def _table(head: Sequence[str], rows: Rows) -> str:
    lines = [
        f"| {' | '.join(head)} |",
        "|---|" + "---:|" * (len(head) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "".join(f"{line}\n" for line in lines)


def _memory_points(document: Document, operation: str) -> dict[int, float]:
    """Return the memory by size; what was only measured in a bucket takes no more there."""
    on_disk, in_bucket = (
        series(document["runs"], operation, "peak_mib", form) for form in ("parts", "s3")
    )
    return on_disk or in_bucket


def _memory(document: Document) -> str:
    rows: Rows = []
    for operation in DELTA_OPERATIONS:
        points = _memory_points(document, operation)
        found = checked(points)
        if found is not None:
            cells = [_gib(found.found), f"{found.error:+.0%}", _gib(found.far.at(_FAR))]
            rows.append([operation, *_each(found.model), _gib(found.predicted), *cells])
        elif len(points) > 1:
            line = line_through(*list(points.items())[-2:])
            far = [_gib(line.at(_TEN)), _why_not(document, operation), "", ""]
            rows.append([operation, *_each(line), *far])
    head = ("", "each file", "10 M, predicted", "10 M, measured", "off by", "100 M, by the line")
    return _table(head, rows)


def _why_not(document: Document, operation: str) -> str:
    """Return why an operation has no figure of 10 million files."""
    tried = (operation, "parts", _TEN)
    keys = ("operation", "form", "files")
    runs = [each for each in document["runs"] if tuple(each[key] for key in keys) == tried]
    if not runs:
        return "not run"
    limit = runs[0].get("address_space_gib")
    if limit is None or not any(word in runs[0]["failed"] for word in _NO_MEMORY):
        return "fails"
    return f"not in {limit:g} GiB of address space"


def _each(line: Line) -> list[str]:
    return [f"{line.per_file * 2**20:,.0f} B"]


def _seconds(document: Document) -> str:
    rows: Rows = []
    for operation in DELTA_OPERATIONS:
        points = series(document["runs"], operation, "seconds", "parts")
        found = checked(points)
        if found is not None:
            rows.append(
                [
                    operation,
                    *(_time(seconds) for seconds in list(points.values())[-3:]),
                    _time(found.predicted),
                    f"{found.far.per_file * 1e6:,.1f} µs",
                ]
            )
    head = ("", "100,000", "1 M", "10 M", "10 M, predicted", "each further file")
    return _table(head, rows)


def _forms(document: Document) -> str:
    rows: Rows = []
    for form, title in _FORMS.items():
        runs = [
            each
            for each in document["runs"]
            if (each["operation"], each["form"]) == (_READING, form)
        ]
        for each in sorted(runs, key=lambda run: int(run["files"]))[-1:]:
            cells = ["fails", ""]
            if "failed" not in each:
                cells = [_gib(each["peak_mib"]), _time(each["seconds"])]
            rows.append([title, f"{each['files']:,}", *cells])
    return _table(("checkpoint", "files", "memory", "CPU time"), rows)


def _requests(document: Document) -> str:
    rows: Rows = []
    for operation in DELTA_OPERATIONS:
        cells = [operation]
        for kind in _KINDS:
            points = {
                each["files"]: float(each["requests"].get(kind, 0))
                for each in document["runs"]
                if (each["operation"], each["form"]) == (operation, "s3") and "requests" in each
            }
            cells.append(_per_part(points))
        if cells[1]:
            rows.append(cells)
    return _table(("", "GET", "HEAD", "PUT", "LIST"), rows)


def _per_part(points: dict[int, float]) -> str:
    """Return a count as a function of P, the parts of the checkpoint, of 100,000 files each."""
    if len(points) < 2:
        return ""
    first, second = sorted(points.items())[:2]
    line = line_through((first[0] // 100_000, first[1]), (second[0] // 100_000, second[1]))
    base, slope = f"{line.base:g}", f"{line.per_file:g}"
    if not line.per_file:
        return base
    return f"{slope}·P" if base == "0" else f"{base} + {slope}·P"


def _spark(document: Document) -> str:
    runs = [each for each in document["runs"] if each["form"] == "spark"]
    rows: Rows = []
    for operation in dict.fromkeys(each["operation"] for each in runs):
        for each in sorted(runs, key=lambda run: int(run["files"])):
            if each["operation"] != operation:
                continue
            cells = [operation, f"{each['files']:,}"]
            if "failed" in each:
                cells += [f"more than {each['heap']}", "", "", ""]
            else:
                python = _gib(each["peak_mib"])
                cells += [each["heap"], python, str(each["tasks"]), _time(each["seconds"])]
            rows.append(cells)
    return _table(("", "files", "heap", "Python", "tasks", "CPU time"), rows)


def _gib(mib: float) -> str:
    return f"{mib:,.0f} MiB" if mib < _GIB else f"{mib / _GIB:,.1f} GiB"


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


TABLES: Final[dict[str, Callable[[Document], str]]] = {
    "memory": _memory,
    "seconds": _seconds,
    "forms": _forms,
    "requests": _requests,
    "spark": _spark,
}
