"""What checks of tables find, and how their reports show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from delvec.report.format import format_counts, named_files
from delvec.report.hints import format_hint
from delvec.report.rendering import Line, Rendered, doc, documented, required

Severity = Literal["error", "warning", "info"]

_SEVERITIES: Final = ("error", "warning", "info")
_STYLES: Final = {"error": "red", "warning": "yellow", "info": "dim"}
_KEPT: Final = 1_000
_SHOWN: Final = 20


@documented()
class Finding:
    """Something that a check found."""

    severity: Severity = required(
        "`error` if rows are wrong or cannot be read, `warning` if something is probably not as"
        " it was meant, `info` if it is merely of use to know."
    )
    kind: str = required("What it is, such as `missing-file`.")
    path: str = required("The file; empty if it is not about one.")
    message: str = required("What is wrong, what was expected and what was found.")
    hint: str | None = doc("What to do about it.", None)


class Findings:
    """Collects findings: counts all of them, keeps the first thousand of each severity."""

    counts: dict[str, int]
    _kept: dict[str, list[Finding]]

    def __init__(self) -> None:
        self.clear()

    def add(self, finding: Finding) -> None:
        self.counts[finding.severity] += 1
        if self.counts[finding.severity] <= _KEPT:
            self._kept[finding.severity].append(finding)

    def extend(self, findings: Iterable[Finding]) -> None:
        for each in findings:
            self.add(each)

    def clear(self) -> None:
        """Forget all findings, as after another way was found."""
        self.counts = dict.fromkeys(_SEVERITIES, 0)
        self._kept = {each: [] for each in _SEVERITIES}

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


@documented(kw_only=True)
class CheckedReport(Rendered):
    """What every report of a check tells, whatever was checked."""

    errors: int = doc("How many errors there are.", 0)
    warnings: int = doc("How many warnings.", 0)
    infos: int = doc("How many findings that are merely of use to know.", 0)
    findings: tuple[Finding, ...] = doc("Errors first; at most a thousand of each severity.", ())
    outside_files: int = doc("Files outside of the table's folder, as those of clones are.", 0)
    outside: tuple[str, ...] = doc("The paths of the first of these.", ())
    phases: Mapping[str, float] = doc("Seconds by phase.", dict)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs: what was checked first."""
        return {**super().to_json(), "ok": self.ok}

    @property
    def _outside(self) -> str:
        return named_files(self.outside, self.outside_files) if self.outside_files else ""

    def _verdict(self) -> str:
        counts = {"error": self.errors, "warning": self.warnings}
        return format_counts(counts) or "nothing is wrong"

    def _finding_lines(self, of_each_kind: int = _SHOWN) -> Iterator[Line]:
        """Yield lines for the first findings, at most some of each kind."""
        seen: Counter[tuple[str, str]] = Counter()
        shown: list[Finding] = []
        for each in self.findings:
            seen[each.severity, each.kind] += 1
            if seen[each.severity, each.kind] <= of_each_kind and len(shown) < _SHOWN:
                shown.append(each)
        for each in shown:
            path = f" ({each.path})" if each.path not in each.message else ""
            yield f"  {each.severity}: {each.message}{path}", _STYLES[each.severity]
            if each.hint:
                yield format_hint("    Hint: {}", each.hint), "dim"
        if left := self.errors + self.warnings + self.infos - len(shown):
            yield f"  … and {left:,} more", ""
