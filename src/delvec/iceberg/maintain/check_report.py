"""What a check of a snapshot found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from delvec.report.figures import counted, visible
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["CheckReport", "Finding", "Findings", "Severity"]

Severity = Literal["error", "warning", "info"]

_SEVERITIES: Final = ("error", "warning", "info")
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


@dataclass(frozen=True)
class CheckReport(Rendered):
    """What a check of a snapshot found.

    >>> gone = Finding("error", "missing-file", "/lake/t/data/1.parquet", "the file is gone")
    >>> print(CheckReport("lake.db.orders", "main", 7, data_files=2, errors=1, findings=(gone,)))
    CHECK of lake.db.orders, main, snapshot 7: 1 error
      looked at  2 data files
      error: the file is gone (/lake/t/data/1.parquet)

    Attributes:
        table: The name of the table.
        branch: The branch; None if a snapshot was named.
        snapshot_id: The snapshot; None for a table without any.
        data_files: Data files that were looked for.
        delete_files: Delete files that were looked for.
        equality_deletes: Ordinary equality-delete files that were read.
        vectors: Equality delete vectors that were read.
        deletion_vectors: Deletion vectors that were read.
        companions: Vectors of ordinary equality-delete files, in statistics files, that were read.
        errors: How many errors there are.
        warnings: How many warnings.
        infos: How many findings that are merely of use to know.
        findings: The findings, errors first; a thousand of each severity at most.
        phases: Seconds by phase.
    """

    table: str
    branch: str | None
    snapshot_id: int | None = None
    data_files: int = 0
    delete_files: int = 0
    equality_deletes: int = 0
    vectors: int = 0
    deletion_vectors: int = 0
    companions: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    findings: tuple[Finding, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        findings = [asdict(each) for each in self.findings]
        return {**document(self), "ok": self.ok, "findings": findings}

    def _lines(self) -> Iterator[Line]:
        found = [
            counted(count, noun)
            for count, noun in ((self.errors, "error"), (self.warnings, "warning"))
            if count
        ]
        where = f"{self.branch}, " if self.branch is not None else ""
        counts = {
            "data file": self.data_files,
            "delete file": self.delete_files,
            "deletion vector": self.deletion_vectors,
            "equality-delete file": self.equality_deletes,
            "equality delete vector": self.vectors,
        }
        looked_at = (counted(count, noun) for noun, count in counts.items() if count)
        yield from Summary(
            f"CHECK of {self.table}, {where}snapshot {self.snapshot_id}: "
            f"{', '.join(found) or 'nothing is wrong'}",
            {"looked at": ", ".join(looked_at)},
            self.phases,
        ).lines()
        for each in self.findings[:_SHOWN]:
            path = f" ({visible(each.path)})" if each.path else ""
            yield f"  {each.severity}: {visible(each.message)}{path}", _STYLES[each.severity]
            if each.hint:
                yield f"    Hint: {visible(each.hint)}", "dim"
        if left := self.errors + self.warnings + self.infos - len(self.findings[:_SHOWN]):
            yield f"  … and {left:,} more", ""


_STYLES: Final = {"error": "red", "warning": "yellow", "info": "dim"}
