"""Checking the newest version of a table: its log, data files, vectors and statistics.

Costs a listing of the table's folder, a GET for the footer of each data file, one for vectors that
lie close together, and the rows of some files. Memory grows with the log and the names in the
folder, some hundred bytes for each file; vectors and rows stream by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from delvec.delta.check import data_files, log_files
from delvec.delta.check.entries import check_entries, check_protocol, check_row_ids, find_duplicates
from delvec.delta.check.repair import OPERATION, plan_repairs, repairs, set_aside
from delvec.delta.check.report import LOG_DAMAGE, CheckReport, Repair, log_damage
from delvec.delta.check.vectors import check_vector_entries, check_vectors
from delvec.delta.log.checkpoint_writer import write_checkpoint, write_hint
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.segment import LogListing, list_log
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.errors import InvalidArgumentError
from delvec.report.findings import Finding, Findings
from delvec.report.rendering import Stopwatch
from delvec.storage import Storage

_WITHOUT_COMMIT: Final = ("set-aside-checkpoint", "write-hint")
_OUTSIDE: Final = 3  # paths that a report names


@dataclass(frozen=True)
class Checked:
    """A check, and what its repairs need."""

    report: CheckReport
    stale: tuple[str, ...] = ()  # the files whose statistics are wrong
    hint: bool = False  # whether the hint at the newest checkpoint has to be written
    # The version as its commits tell it, if checkpoints are damaged.
    reopened: log_files.Reopened | None = None


def check(
    storage: Storage,
    run: Callable[[str, Callable[[Attempt], Outcome]], WriteReport],
    *,
    repair: bool,
    sample: int,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> CheckReport:
    """Check a table and repair what is certain; the findings are those that are left."""
    if type(sample) is not int or sample < 0:
        raise InvalidArgumentError(f"sample is a number of files, 0 or more, got {sample!r}")
    found = check_table(storage, sample, on_progress)
    planned = found.report.repairs
    if not repair or not planned:
        return found.report
    version = None
    if found.reopened is not None:
        set_aside(found.reopened.snapshot, tuple(found.reopened.damaged))
    if any(each.kind not in _WITHOUT_COMMIT for each in planned):
        version = run(OPERATION, repairs(found.stale)).version
    if found.reopened is not None:
        write_checkpoint(open_snapshot(storage))
    elif found.hint:
        checkpoints = list_log(storage).checkpoints
        write_hint(storage, max(checkpoints, key=lambda each: each.version))
    again = check_table(storage, sample, on_progress).report
    return replace(again, repairs=planned, is_repaired=True, repaired_version=version)


def check_table(
    storage: Storage, sample: int, on_progress: Callable[[str, int, int], None] | None = None
) -> Checked:
    """Check the newest version of a table; nothing is changed. See `check`."""
    findings = Findings()
    steps = _Steps(findings, on_progress or (lambda *_: None))
    stale: list[str] = []
    planned: tuple[Repair, ...] = ()
    counts: dict[str, Any] = {}
    hint = False
    with steps.watch.phase("log"):
        log = list_log(storage)
        snapshot, files, reopened = _opened(storage, log, findings)
        log_files.check_log_files(storage, log, findings)
    if snapshot is not None:
        parts = snapshot.segment.checkpoint.keys if snapshot.segment.checkpoint else ()
        counts["version"] = snapshot.version
        counts["log_files"] = len(snapshot.segment.files) + len(parts)
    if snapshot is not None and files is not None:
        counts["checkpoints"] = _check_log(snapshot, files, log, steps)
        stale, more = _check_files(snapshot, files, sample, steps)
        counts |= more
        with steps.step("plan"):
            hint = bool(log.checkpoints) and log_files.wrong_hint(storage, log) is not None
            planned = plan_repairs(snapshot, stale).repairs
    if reopened is not None:
        text = (
            "a checkpoint cannot be read, and the commits that it covers are there: it is renamed,"
            " and a new one is written"
        )
        paths = [key for each in reopened.damaged for key in each.keys]
        planned = (*planned, Repair("set-aside-checkpoint", text, len(paths), paths[0]))
    if hint:
        text = "the hint at the newest checkpoint is missing or wrong: it is written"
        planned = (*planned, Repair("write-hint", text))
    fields = {**findings.fields, "findings": _relative(storage.root, findings)}
    phases = steps.watch.seconds
    report = CheckReport(storage.root, phases=phases, repairs=planned, **counts, **fields)
    return Checked(report, tuple(stale), hint, reopened)


def _opened(
    storage: Storage, log: LogListing, findings: Findings
) -> tuple[Snapshot | None, FileSet | None, log_files.Reopened | None]:
    """Return the newest version and its entries; where checkpoints are damaged, by the commits."""
    snapshot = log_files.open_newest(storage, log, findings)
    files = None if snapshot is None else check_entries(snapshot, findings)
    again = log_files.open_by_commits(storage, log) if files is None else None
    if again is None:
        return snapshot, files, None
    findings.clear()
    findings.extend(again.damaged.values())
    return again.snapshot, check_entries(again.snapshot, findings), again


class _Steps:
    """The steps of a check: each is timed, and what it finds damaged in the log is a finding.

    Most of a log is read when it is needed, so that any step may come upon damage.
    """

    def __init__(self, findings: Findings, progress: Callable[[str, int, int], None]) -> None:
        self.findings, self.progress, self.watch = findings, progress, Stopwatch()
        self._told: set[Finding] = set()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block, and end it early where the log is damaged."""
        with self.watch.phase(name):
            try:
                yield
            except LOG_DAMAGE as error:
                found = log_damage(error)
                if found not in self._told:
                    self._told.add(found)
                    self.findings.add(found)


def _relative(root: str, findings: Findings) -> tuple[Finding, ...]:
    inside = f"{root.rstrip('/')}/"
    return tuple(
        replace(each, path="" if each.path == root else each.path.removeprefix(inside))
        for each in findings.kept
    )


def _check_log(snapshot: Snapshot, files: FileSet, log: LogListing, steps: _Steps) -> int:
    """Check what the log alone tells; return how many checkpoints were compared."""
    findings, compared = steps.findings, 0
    with steps.step("protocol"):
        check_protocol(snapshot, files, findings)
    with steps.step("protocol"):
        check_vector_entries(snapshot, files, findings)
    with steps.step("checkpoint"):
        compared = log_files.check_checkpoint(snapshot, log, findings)
    if not find_duplicates(files):
        with steps.step("protocol"):
            check_row_ids(snapshot, files, findings)
            log_files.check_checksum(snapshot, files, findings)
    return compared


def _check_files(
    snapshot: Snapshot, files: FileSet, sample: int, steps: _Steps
) -> tuple[list[str], dict[str, Any]]:
    """Check the files of a version; return those with wrong statistics, and the counts."""
    storage, findings = snapshot.storage, steps.findings
    sampled, wrong = 0, list[str]()
    orphans = orphan_bytes = 0
    with steps.watch.phase("listing"):
        folder = data_files.list_folder(storage, findings)
    with steps.watch.phase("data files"):
        found, miscounted = data_files.check_data_files(
            storage, files, folder, findings, steps.progress
        )
    with steps.watch.phase("vectors"):
        rows = np.where(found >= 0, found, files.row_counts.fill_null(-1).to_numpy())
        vectors = check_vectors(storage, files, rows, folder, findings, steps.progress)
    with steps.step("statistics"):
        usable = found >= 0
        usable[sorted(vectors.damaged)] = False
        sampled, wrong = data_files.check_statistics(snapshot, files, usable, sample, findings)
    with steps.step("orphans"):
        orphans, orphan_bytes = data_files.check_orphans(snapshot, files, folder, findings)
    counts = {
        "data_files": len(files),
        "vectors": vectors.count,
        "vector_files": vectors.files,
        "sampled_files": sampled,
        "listed_files": len(folder.keys),
        "orphan_files": orphans,
        "orphan_bytes": orphan_bytes,
        "outside_files": len(files.outside),
        "outside": tuple(files.outside[:_OUTSIDE]),
    }
    return sorted({*wrong, *miscounted}), counts
