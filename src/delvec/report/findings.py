"""What checks of tables find, and how their reports show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from delvec.report.figures import counted, named_files, visible
from delvec.report.rendered import Rendered, document
from delvec.report.wordings import on_one_line, worded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["CheckedReport", "Finding", "Findings", "Severity"]

Severity = Literal["error", "warning", "info"]

_SEVERITIES: Final = ("error", "warning", "info")
_STYLES: Final = {"error": "red", "warning": "yellow", "info": "dim"}
_KEPT: Final = 1_000
_SHOWN: Final = 20


@dataclass(frozen=True)
class Finding:
    """Something that a check found.

    Attributes:
        severity: `error` if rows are wrong or cannot be read, `warning` if something is probably
            not as it was meant, `info` if it is merely of use to know.
        kind: What it is, such as `missing-file`.
        path: The file; empty if it is not about one.
        message: What is wrong, what was expected and what was found.
        hint: What to do about it.
    """

    severity: Severity
    kind: str
    path: str
    message: str
    hint: str | None = None


class Findings:
    """Collects findings: counts all of them, keeps the first thousand of each severity."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(_SEVERITIES, 0)
        self._kept: dict[str, list[Finding]] = {each: [] for each in _SEVERITIES}

    def add(self, *findings: Finding) -> None:
        """Add findings."""
        for each in findings:
            self.counts[each.severity] += 1
            if self.counts[each.severity] <= _KEPT:
                self._kept[each.severity].append(each)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add findings one by one."""
        for each in findings:
            self.add(each)

    @property
    def kept(self) -> tuple[Finding, ...]:
        """The findings that are kept, errors first."""
        return tuple(each for severity in _SEVERITIES for each in self._kept[severity])

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a report that tell what was found."""
        return {
            "errors": self.counts["error"],
            "warnings": self.counts["warning"],
            "infos": self.counts["info"],
            "findings": self.kept,
        }


@dataclass(frozen=True, kw_only=True)
class CheckedReport(Rendered):
    """What every report of a check tells, whatever was checked.

    Attributes:
        errors: How many errors there are.
        warnings: How many warnings.
        infos: How many findings that are merely of use to know.
        findings: The findings, errors first; a thousand of each severity at most.
        outside_files: Files that lie outside of the table's folder, as those of clones do.
        outside: The paths of the first of these.
        phases: Seconds by phase.
    """

    errors: int = 0
    warnings: int = 0
    infos: int = 0
    findings: tuple[Finding, ...] = ()
    outside_files: int = 0
    outside: tuple[str, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs: what was checked first."""
        shared = {each.name for each in fields(CheckedReport)}
        found = document(self)
        particular = {name: value for name, value in found.items() if name not in shared}
        findings = [asdict(each) for each in self.findings]
        return {**particular, **found, "ok": self.ok, "findings": findings}

    @property
    def _outside(self) -> str:
        return named_files(self.outside, self.outside_files) if self.outside_files else ""

    def _verdict(self) -> str:
        """Return how many errors and warnings there are, in words."""
        counts = ((self.errors, "error"), (self.warnings, "warning"))
        return ", ".join(counted(*each) for each in counts if each[0]) or "nothing is wrong"

    def _finding_lines(self, of_each_kind: int = _SHOWN) -> Iterator[Line]:
        """Yield lines for the first findings, at most some of each kind."""
        seen: Counter[tuple[str, str]] = Counter()
        shown: list[Finding] = []
        for each in self.findings:
            seen[each.severity, each.kind] += 1
            if seen[each.severity, each.kind] <= of_each_kind and len(shown) < _SHOWN:
                shown.append(each)
        for each in shown:
            path = f" ({visible(each.path)})" if each.path not in each.message else ""
            yield f"  {each.severity}: {visible(each.message)}{path}", _STYLES[each.severity]
            if each.hint:
                yield worded("    Hint: {}", on_one_line(each.hint)), "dim"
        if left := self.errors + self.warnings + self.infos - len(shown):
            yield f"  … and {left:,} more", ""
