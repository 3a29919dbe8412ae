from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

import delvec
from delvec.report.hints import call, shell_word
from delvec.report.rendering import (
    OperationReport,
    Rendered,
    Stopwatch,
    doc,
    documented,
    required,
    summary,
)
from delvec.storage import RequestCounts


@documented()
class Count(OperationReport):
    """What a count found."""

    table: str = required("The table.")
    rows: int = doc(f"Rows {'a' * 80} counted.", 0)
    places: tuple[RequestCounts, ...] = doc("Where.", ())

    def _headline(self) -> str:
        return f"COUNT of {self.table}"

    def _facts(self) -> dict[str, str]:
        return {"rows": f"{self.rows}", "none": ""}


def test_all_parts_of_a_summary_have_their_lines_and_styles() -> None:
    facts, phases = {"add": "3", "keep": "", "remove": "12"}, {"stage": 1.0, "publish": 0.5}
    assert list(summary("plan of t", facts, phases, details=("2 vectors",), notes=("a note",))) == [
        ("plan of t", "bold"),
        ("  add      3", ""),
        ("  remove   12", ""),
        ("  stage       1.00 s", "dim"),
        ("  publish     0.50 s", "dim"),
        ("  2 vectors", "dim"),
        ("Note: a note", "yellow"),
    ]


def test_no_line_of_a_report_has_control_characters_and_notes_keep_both_spellings() -> None:
    report = Count("a\x1bb", notes=("a\nb", call("purge")))
    lines: list[Any] = [text for text, _ in report.styled_lines()]
    assert lines == [r"COUNT of a\x1bb", "  rows  0", r"Note: a\nb", "Note: purge()"]
    assert lines[-1].command == "Note: `delvec purge`"


def test_the_docstring_lists_each_field_with_those_that_are_inherited_last() -> None:
    assert inspect.getdoc(Count) == (
        "What a count found.\n\nAttributes:\n"
        "    table: The table.\n"
        f"    rows: Rows {'a' * 80}\n        counted.\n"
        "    places: Where.\n"
        "    phases: Seconds by phase, in order.\n"
        "    notes: What users should know, in sentences."
    )


def test_json_has_what_is_particular_to_a_report_first_and_no_tuple() -> None:
    phases = MappingProxyType({"plan": 1.0})
    found = Count("t", places=(RequestCounts(gets=2),), phases=phases).to_json()
    assert list(found) == ["table", "rows", "places", "phases", "notes"]
    assert found["places"][0]["gets"] == 2
    assert (found["phases"], found["notes"]) == ({"plan": 1.0}, [])
    assert type(found["phases"]) is dict


def test_every_report_documents_every_field() -> None:
    for module in pkgutil.walk_packages(delvec.__path__, "delvec."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    reports = [each for each in below(Rendered) if each.__module__.startswith("delvec.")]
    assert len(reports) > 20
    for report in reports:
        text = inspect.getdoc(report) or ""
        names = [name for name in getattr(report, "__dataclass_fields__", ()) if name[0] != "_"]
        assert [name for name in names if f"    {name}: " not in text] == [], report


def below(cls: type[Any]) -> Iterator[type[Any]]:
    for each in type.__subclasses__(cls):
        yield each
        yield from below(each)


def test_the_times_of_a_phase_add_up_even_if_one_fails_and_it_is_described_meanwhile() -> None:
    told = []

    @contextmanager
    def describe() -> Iterator[None]:
        told.append("begin")
        yield
        told.append("end")

    stopwatch = Stopwatch()
    stopwatch.add("plan", 2.0)
    with pytest.raises(ZeroDivisionError), stopwatch.phase("plan"):
        raise ZeroDivisionError
    with stopwatch.phase("commit", describe()):
        told.append("work")
    assert list(stopwatch.seconds) == ["plan", "commit"]
    assert 2.0 < stopwatch.seconds["plan"] < 3.0
    assert told == ["begin", "work", "end"]


@pytest.mark.parametrize("word", ["a b", "it's", "a\n1", "\x1b1", "\\'\t", "é\x85f", "$x`"])
def test_a_shell_reads_a_word_as_it_was(word: str) -> None:
    line = f"printf %s {shell_word(word)}"
    found = subprocess.run(["bash", "-c", line], check=True, capture_output=True)
    assert found.stdout.decode() == word


def test_a_path_is_no_option() -> None:
    assert shell_word("-x", is_path=True) == "./-x"
    assert call("vacuum", table="-x").command == "`delvec vacuum ./-x`"
    assert shell_word("-1") == "-1"
