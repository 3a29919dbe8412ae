"""The facts of a report in words, the same ones in the text and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.inspection.figures import StagingBranch, elapsed, moment
from delvec.report.format import format_count, format_size, nonzero, percent

if TYPE_CHECKING:
    from delvec.inspection.report import InspectReport


_KINDS: Final = {"u": "by relative path", "p": "by absolute path", "i": "inline"}


def headline(report: InspectReport) -> str:
    return f"{report.table}: {'Delta' if report.format == 'delta' else 'Iceberg'}, {place(report)}"


def place(report: InspectReport) -> str:
    """Return the version or the snapshot, with its branch."""
    if report.format == "delta":
        return f"version {report.version:,}"
    if report.snapshot_id is None:
        return "no snapshot"
    branch = f" of {report.branch}" if report.branch else ""
    return f"snapshot {report.snapshot_id}{branch}"


def facts(report: InspectReport) -> dict[str, str]:
    """Return the facts by what they are about; what does not apply is empty."""
    return {
        "committed": _committed(report),
        "protocol": report.protocol,
        "rows": _rows(report),
        "files": _files(report),
        "vectors": _vectors(report),
        "positions": _positions(report),
        "equality": _equality(report),
        "staging": "; ".join(f"{each.name}: {_waiting(each)}" for each in report.equality.staging),
        "log" if report.format == "delta" else "snapshots": _log(report),
        "purge" if report.format == "delta" else "compact": _purge(report),
        "vacuum" if report.format == "delta" else "expire": _vacuum(report),
    }


def _committed(report: InspectReport) -> str:
    if report.committed_ms is None:
        return ""
    age = elapsed(report.committed_ms, report.inspected_ms)
    return f"{moment(report.committed_ms)}, {age} ago"


def rows_deleted(report: InspectReport) -> str:
    deleted = report.vectors.rows
    if report.rows is None:
        return f"{deleted:,} deleted"
    return f"{deleted:,} deleted ({percent(deleted, report.rows)})"


def _rows(report: InspectReport) -> str:
    if report.live_rows is not None:
        return f"{report.live_rows:,} live, {rows_deleted(report)}"
    if report.rows is None:
        return f"{rows_deleted(report)}; the log does not say of how many"
    found = f"{report.rows:,} in data files, {rows_deleted(report)} by vectors"
    if report.positions.files:
        found += f", up to {report.positions.positions:,} by position deletes"
    if report.equality.files + report.equality.vectors:
        found += ", more by equality deletes"
    return found


def _files(report: InspectReport) -> str:
    found = f"{format_count(report.files, 'data file')}, {format_size(report.bytes)}"
    small = report.small_files
    if small.count:
        found += f"; {small.count:,} smaller than {format_size(small.below)}"
    return found


def _vectors(report: InspectReport) -> str:
    vectors = report.vectors
    if not vectors.count:
        return "none"
    if report.format == "iceberg":
        held = f"in {format_count(vectors.stored_in, 'Puffin file')}"
        return f"{vectors.count:,} {held}, {format_size(vectors.bytes)}{_age(report)}"
    kinds = ", ".join(
        f"{count:,} {_KINDS.get(kind, 'of kind')} ({kind})" for kind, count in vectors.kinds.items()
    )
    held = f" in {format_count(vectors.stored_in, 'file')}" if vectors.stored_in else ""
    return f"{kinds}{held}, {format_size(vectors.bytes)}{_age(report)}"


def _age(report: InspectReport) -> str:
    vectors, now = report.vectors, report.inspected_ms
    newest = "" if vectors.newest_ms is None else elapsed(vectors.newest_ms, now)
    if vectors.oldest_ms is None:
        return f"; newest {newest} old" if newest else ""
    oldest = elapsed(vectors.oldest_ms, now)
    return f"; {oldest} old" if oldest == newest else f"; {newest} to {oldest} old"


def _positions(report: InspectReport) -> str:
    found = report.positions
    if not found.files:
        return ""
    what = f"{format_count(found.files, 'position delete file')}, {format_size(found.bytes)}"
    old = _at_most(found.oldest_ms, report.inspected_ms)
    return f"{what}, with {format_count(found.positions, 'position')}{old}"


def _at_most(oldest_ms: int | None, now_ms: int) -> str:
    return "" if oldest_ms is None else f", {elapsed(oldest_ms, now_ms)} old at most"


def _equality(report: InspectReport) -> str:
    waiting = report.equality
    if not (waiting.files or waiting.vectors):
        return "no equality deletes wait" if report.format == "iceberg" else ""
    parts = (nonzero(waiting.files, "file"), nonzero(waiting.vectors, "equality delete vector"))
    by = "; ".join(", ".join(names) for names in waiting.columns)
    old = _at_most(waiting.oldest_ms, report.inspected_ms)
    what = f"{' and '.join(filter(None, parts))} with {format_count(waiting.keys, 'key')}"
    return f"{what} wait, {format_size(waiting.bytes)}, by {by}{old}"


def _waiting(branch: StagingBranch) -> str:
    if branch.problem:
        return branch.problem
    if not branch.snapshots:
        return "nothing waits"
    keys = f", {format_count(branch.keys, 'key')} of equality deletes" if branch.keys else ""
    return f"{format_count(branch.snapshots, 'snapshot')} that main has not taken over{keys}"


def _log(report: InspectReport) -> str:
    log = report.log
    if report.format == "iceberg":
        since = f", the oldest of {moment(log.oldest_ms)}" if log.oldest_ms else ""
        return f"{log.versions:,} retained{since}" if log.versions else ""
    there = format_count(log.versions, "commit")
    if log.oldest:
        there += f" from version {log.oldest:,} on"
    if log.checkpoint is None:
        return f"{there}, no checkpoint"
    return f"{there}, {log.since_checkpoint:,} since the checkpoint of version {log.checkpoint:,}"


def _purge(report: InspectReport) -> str:
    rewrite = report.freed.rewrite
    if not rewrite.files:
        return ""
    hours = report.freed.retention_hours
    if report.format == "iceberg":
        then = "when their snapshots expire,"
    else:
        then = "by a vacuum" + ("," if hours is None else f" after {hours:,g} hours,")
    return (
        f"would write about {format_size(rewrite.written)}; the {format_size(rewrite.replaced)} of"
        f" {format_count(rewrite.files, 'file')} that it replaces go {then} which frees about"
        f" {format_size(rewrite.freed)} in all"
    )


def _vacuum(report: InspectReport) -> str:
    freed = report.freed
    if freed.vacuum is None:
        return f"not looked for: {freed.why_unknown}" if freed.why_unknown else ""
    files = f"{format_size(freed.vacuum)} in {format_count(freed.vacuum_files, 'file')}"
    if report.format == "iceberg":
        if not freed.vacuum_files:
            return "would free nothing: older snapshots have no files of their own"
        return f"would free up to {files}: what older snapshots alone have"
    now = f"would free {files} now" if freed.vacuum_files else "would free nothing now"
    if not freed.later:
        return now
    hours = f"{freed.retention_hours:,g} hours"
    return f"{now}, {format_size(freed.later)} more when the retention of {hours} is over"
