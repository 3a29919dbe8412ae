"""What a check of a Delta table found, and what was or can be repaired."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.errors import DelvecError, FormatError, ObjectNotFoundError
from delvec.report.figures import counted, size, visible
from delvec.report.findings import CheckedReport, Finding
from delvec.report.rendered import Summary
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.report.findings import Severity
    from delvec.report.rendered import Line

__all__ = ["LOG_DAMAGE", "CheckReport", "Repair", "finding_of", "log_damage"]

LOG_DAMAGE: Final = (FormatError, ObjectNotFoundError, pa.ArrowException, UnicodeDecodeError)
"""What reading a damaged log raises; strings of a checkpoint may be none, which Arrow passes on."""

_OF_EACH_KIND: Final = 5


@dataclass(frozen=True)
class Repair:
    """One kind of repair, for all files that need it.

    Attributes:
        kind: What it does, such as `rewrite-vector`.
        message: What was wrong, and what is done about it.
        files: How many files it is about; 0 if it is about the table.
        path: The first of them; empty if it is about the table.
    """

    kind: str
    message: str
    files: int = 0
    path: str = ""


@dataclass(frozen=True)
class CheckReport(CheckedReport):
    """What a check of the newest version found.

    >>> gone = Finding("error", "missing-file", "part-1.parquet", "the data file is gone")
    >>> print(CheckReport("/lake/orders", 12, data_files=40, errors=1, findings=(gone,)))
    CHECK of /lake/orders, version 12: 1 error
      looked at  40 data files
      error: the data file is gone (part-1.parquet)

    Attributes, beside those of all checks (`CheckedReport`):
        table: Where the table is.
        version: The version that was checked; None if the log is too damaged to tell.
        log_files: Files of the log that were read.
        checkpoints: Checkpoints that were compared with the commits before them.
        data_files: Data files that were looked for; the footer of each was read.
        vectors: Deletion vectors that were read.
        vector_files: Files that hold these.
        sampled_files: Data files whose rows were compared with the statistics of the log.
        listed_files: Files in the folder of the table, those of the log excepted.
        orphan_files: Files in the folder that nothing in the log refers to.
        orphan_bytes: Their size.
        repairs: What can be repaired; what was repaired, if `is_repaired`.
        is_repaired: Whether the repairs were made: the findings are those that are left.
        repaired_version: The version that the repairs committed; None if there was none.
    """

    table: str
    version: int | None = None
    log_files: int = 0
    checkpoints: int = 0
    data_files: int = 0
    vectors: int = 0
    vector_files: int = 0
    sampled_files: int = 0
    listed_files: int = 0
    orphan_files: int = 0
    orphan_bytes: int = 0
    repairs: tuple[Repair, ...] = ()
    is_repaired: bool = False
    repaired_version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return {**super().to_json(), "repairs": [asdict(each) for each in self.repairs]}

    def _lines(self) -> Iterator[Line]:
        version = "" if self.version is None else f", version {self.version:,}"
        counts = {
            "data file": self.data_files,
            "deletion vector": self.vectors,
            "file of the log": self.log_files,
        }
        looked_at = [counted(count, noun) for noun, count in counts.items() if count]
        sampled = counted(self.sampled_files, "data file") if self.sampled_files else ""
        orphans = f"{counted(self.orphan_files, 'file')}, {size(self.orphan_bytes)}"
        yield from Summary(
            f"CHECK of {visible(self.table)}{version}: {self._verdict()}",
            {
                "looked at": ", ".join(looked_at).replace("file of the logs", "files of the log"),
                "sampled": sampled,
                "orphans": orphans if self.orphan_files else "",
                "outside": self._outside,
            },
            self.phases,
        ).lines()
        yield from self._finding_lines(_OF_EACH_KIND)
        for each in self.repairs:
            files = f" ({counted(each.files, 'file')})" if each.files > 1 else ""
            path = f" ({visible(each.path)})" if each.files == 1 else ""
            word = "repaired" if self.is_repaired else "can be repaired"
            yield f"  {word}: {visible(each.message)}{files}{path}", "green"
        if self.repaired_version is not None:
            yield f"Version {self.repaired_version:,} was committed", ""
        elif self.repairs and not self.is_repaired:
            yield worded("{} does that; nothing was changed", call("check", repair=True)), ""


def finding_of(
    error: DelvecError,
    kind: str,
    path: str = "",
    *,
    severity: Severity = "error",
    hint: str | None = None,
) -> Finding:
    """Return an error as a finding.

    Args:
        error: What went wrong.
        kind: What it is.
        path: The file that it is about; the one that the error names, if it is not given.
        severity: How bad it is.
        hint: What to do about it, if the error does not tell.
    """
    named = error.path if isinstance(error, FormatError) else getattr(error, "uri", None)
    return Finding(severity, kind, path or named or "", error.describe(), error.hint or hint)


def log_damage(error: Exception) -> Finding:
    """Return an error about the log, one of `LOG_DAMAGE`, as a finding."""
    if isinstance(error, DelvecError):
        return finding_of(error, "damaged-log", hint="restore the file from a copy")
    text = " ".join(str(error).split())[:200]
    hint = "restore the newest checkpoint and the commits after it from a copy"
    return Finding("error", "damaged-log", "_delta_log", f"the log cannot be read ({text})", hint)
