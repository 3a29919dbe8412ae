"""What a check of a Delta table found, and what was or can be repaired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from delvec.errors import DelvecError, FormatError, ObjectNotFoundError
from delvec.report.findings import CheckedReport, Finding, Severity
from delvec.report.format import format_count, format_counts, format_size, nonzero
from delvec.report.hints import call, format_hint
from delvec.report.rendering import Line, doc, documented, required, summary

LOG_DAMAGE: Final = (FormatError, ObjectNotFoundError, pa.ArrowException, UnicodeDecodeError)
"""What reading a damaged log raises; strings of a checkpoint may be none, which Arrow passes on."""
_OF_EACH_KIND: Final = 5


@documented()
class Repair:
    """One kind of repair, for all files that need it."""

    kind: str = required("What it does, such as `rewrite-vector`.")
    message: str = required("What was wrong, and what is done about it.")
    files: int = doc("How many files it is about; 0 if it is about the table.", 0)
    path: str = doc("The first of them; empty if it is about the table.", "")


@documented()
class CheckReport(CheckedReport):
    """What a check of the newest version found.

    >>> gone = Finding("error", "missing-file", "part-1.parquet", "the data file is gone")
    >>> print(CheckReport("/lake/orders", 12, data_files=40, errors=1, findings=(gone,)))
    CHECK of /lake/orders, version 12: 1 error
      looked at  40 data files
      error: the data file is gone (part-1.parquet)
    """

    table: str = required("Where the table is.")
    version: int | None = doc("The version that was checked; None if the log does not tell.", None)
    log_files: int = doc("Files of the log that were read.", 0)
    checkpoints: int = doc("Checkpoints that were compared with the commits before them.", 0)
    data_files: int = doc("Data files that were looked for; the footer of each was read.", 0)
    vectors: int = doc("Deletion vectors that were read.", 0)
    vector_files: int = doc("Files that hold these.", 0)
    sampled_files: int = doc("Data files whose rows were compared with the log's statistics.", 0)
    listed_files: int = doc("Files in the folder of the table, those of the log excepted.", 0)
    orphan_files: int = doc("Files in the folder that nothing in the log refers to.", 0)
    orphan_bytes: int = doc("Their size.", 0)
    repairs: tuple[Repair, ...] = doc("What can be repaired, or was, if `is_repaired`.", ())
    is_repaired: bool = doc("Whether they were made: the findings are those that are left.", False)
    repaired_version: int | None = doc("The version that repairs committed; None if none.", None)

    def _lines(self) -> Iterator[Line]:
        version = "" if self.version is None else f", version {self.version:,}"
        counts = {
            "data file": self.data_files,
            "deletion vector": self.vectors,
            "file of the log": self.log_files,
        }
        orphans = f"{format_count(self.orphan_files, 'file')}, {format_size(self.orphan_bytes)}"
        yield from summary(
            f"CHECK of {self.table}{version}: {self._verdict()}",
            {
                "looked at": format_counts(counts),
                "sampled": nonzero(self.sampled_files, "data file"),
                "orphans": orphans if self.orphan_files else "",
                "outside": self._outside,
            },
            self.phases,
        )
        yield from self._finding_lines(_OF_EACH_KIND)
        for each in self.repairs:
            files = f" ({format_count(each.files, 'file')})" if each.files > 1 else ""
            path = f" ({each.path})" if each.files == 1 else ""
            word = "repaired" if self.is_repaired else "can be repaired"
            yield f"  {word}: {each.message}{files}{path}", "green"
        if self.repaired_version is not None:
            yield f"Version {self.repaired_version:,} was committed", ""
        elif self.repairs and not self.is_repaired:
            yield format_hint("{} does that; nothing was changed", call("check", repair=True)), ""


def finding_of(
    error: DelvecError,
    kind: str,
    path: str = "",
    *,
    severity: Severity = "error",
    hint: str | None = None,
) -> Finding:
    named = error.path if isinstance(error, FormatError) else getattr(error, "uri", None)
    return Finding(severity, kind, path or named or "", error.describe(), error.hint or hint)


def log_damage(error: Exception) -> Finding:
    """Return an error about the log, one of `LOG_DAMAGE`, as a finding."""
    if isinstance(error, DelvecError):
        return finding_of(error, "damaged-log", hint="restore the file from a copy")
    text = " ".join(str(error).split())[:200]
    hint = "restore the newest checkpoint and the commits after it from a copy"
    return Finding("error", "damaged-log", "_delta_log", f"the log cannot be read ({text})", hint)
