"""What to run next on a table, and why: one rule for each kind of maintenance.

The limits are constants of this module, and docs/inspecting.md lists them. A rule is a function of
the report's numbers alone: the same numbers give the same advice.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from delvec.inspection.figures import Advice
from delvec.report.figures import counted, percent, size

if TYPE_CHECKING:
    from delvec.inspection.report import InspectReport

__all__ = [
    "DELETED_SHARE",
    "FEWER_FILES",
    "FILE_DELETED_SHARE",
    "FREED_SHARE",
    "LONG_LOG",
    "MANY_EQUALITY_DELETES",
    "advice_for",
]

DELETED_SHARE: Final = 0.05
"""Purge when a larger share of all rows is deleted: every read loads and skips them."""
FILE_DELETED_SHARE: Final = 0.30
"""Purge when some file has a larger share of deleted rows, and one row of a hundred is deleted."""
FREED_SHARE: Final = 0.10
"""Vacuum, or expire snapshots, when that frees more than this share of the live data."""
FEWER_FILES: Final = 10
"""Put small files together when at least so many fewer are left, and less than half of them."""
LONG_LOG: Final = 3
"""Write a checkpoint when so many times the wanted interval of commits came since the last."""
MANY_EQUALITY_DELETES: Final = 100
"""Consolidate equality deletes from so many on: every reader loads all of them."""

_LEAST_SHARE: Final = 0.01  # of all rows, below which a purge is not worth a rewrite


def advice_for(report: InspectReport) -> tuple[Advice, ...]:
    """Return what to run next, in the order in which to run it; empty if there is nothing."""
    rules = _DELTA if report.format == "delta" else _ICEBERG
    return tuple(found for rule in rules if (found := rule(report)) is not None)


def _resolve(report: InspectReport) -> Advice | None:
    waiting = report.equality
    count = waiting.files + waiting.vectors
    if not count:
        return None
    what = counted(count, "equality delete")
    why = f"{what} with {counted(waiting.keys, 'key')} wait: readers join every row with them"
    branch = report.branch
    if branch in {each.name for each in waiting.staging}:
        more = f" --staging {shlex.quote(str(branch))}"
        call = f"t.resolve(staging={branch!r})"
    elif branch in (None, "main"):
        more, call = "", "t.resolve()"
    else:
        more, call = f" --target {shlex.quote(str(branch))}", f"t.resolve(target={branch!r})"
    return Advice("resolve", why, _command(report, "resolve") + more, call)


def _staged(report: InspectReport) -> Advice | None:
    waiting = [each for each in report.equality.staging if each.snapshots]
    if not waiting or report.branch in {each.name for each in waiting}:
        return None
    first = waiting[0]
    what = counted(first.snapshots, "snapshot")
    return Advice(
        "resolve",
        f"the staging branch {first.name} has {what} that main has not taken over",
        f"{_command(report, 'resolve')} --staging {shlex.quote(first.name)}",
        f"t.resolve(staging={first.name!r})",
    )


def _consolidate(report: InspectReport) -> Advice | None:
    count = report.equality.files + report.equality.vectors
    if count < MANY_EQUALITY_DELETES:
        return None
    why = (
        f"if they are not resolved: {counted(count, 'equality delete')}, at least"
        f" {MANY_EQUALITY_DELETES}, are loaded by every reader"
    )
    branch = report.branch
    if branch in (None, "main"):
        more, call = "", "t.consolidate_deletes()"
    else:
        more = f" --branch {shlex.quote(str(branch))}"
        call = f"t.consolidate_deletes({branch!r})"
    return Advice("consolidate", why, _command(report, "consolidate") + more, call)


def _purge(report: InspectReport) -> Advice | None:
    why = _why_purge(report)
    if why is None:
        return None
    return Advice("purge", why, _command(report, "purge"), "t.purge()")


def _rewrite(report: InspectReport) -> Advice | None:
    """Iceberg's own rewrite does what a purge does, for files with a delete."""
    why = _why_purge(report)
    if why is None or not _is_compactable(report):
        return None
    return Advice(
        "compact",
        why,
        f"{_command(report, 'compact')} --rewrite-option delete-file-threshold=1",
        't.compact(options={"delete-file-threshold": 1})',
    )


def _is_compactable(report: InspectReport) -> bool:
    """Iceberg rewrites `main` alone; no equality deletes may be there, nor files of others."""
    waiting = report.equality.files + report.equality.vectors
    return report.branch in (None, "main") and report.owns_files and not waiting


def _why_purge(report: InspectReport) -> str | None:
    deleted, rows = report.vectors.rows, report.rows
    if not deleted:
        return None
    frees = f"; a rewrite frees about {size(report.freed.purge)}" if report.freed.purge else ""
    share = deleted / rows if rows else None
    if share is not None and share > DELETED_SHARE:
        limit = f"more than {100 * DELETED_SHARE:g} %"
        return f"{percent(deleted, rows or 0)} of the rows are deleted, {limit}{frees}"
    worst = max(report.most_deleted.shown, key=lambda each: each.ratio, default=None)
    is_many = share is None or share > _LEAST_SHARE
    # Where the log does not say how many rows there are, one file has to stand for all.
    most = DELETED_SHARE if share is None else FILE_DELETED_SHARE
    if worst is not None and worst.ratio > most and is_many:
        limit = f"more than {100 * most:g} %"
        part = percent(worst.deleted, worst.rows or 0)
        return f"{part} of the rows of a file are deleted, {limit}{frees}"
    return None


def _optimize(report: InspectReport) -> Advice | None:
    why = _why_fewer_files(report)
    if why is None:
        return None
    return Advice("optimize", why, _command(report, "optimize"), "t.optimize()")


def _compact(report: InspectReport) -> Advice | None:
    why = _why_fewer_files(report)
    if why is None or not _is_compactable(report) or _why_purge(report) is not None:
        return None  # a rewrite of files with deletes puts small ones together as well
    return Advice("compact", why, _command(report, "compact"), "t.compact()")


def _why_fewer_files(report: InspectReport) -> str | None:
    small = report.small_files
    fewer = small.before - small.after
    if fewer < FEWER_FILES or small.after * 2 >= small.before:
        return None
    return f"{counted(small.before, 'small file')} would become about {small.after:,}"


def _checkpoint(report: InspectReport) -> Advice | None:
    log = report.log
    if not log.interval or log.since_checkpoint < LONG_LOG * log.interval:
        return None
    last = "there is no checkpoint" if log.checkpoint is None else "the last checkpoint is old"
    why = (
        f"{last}: {counted(log.since_checkpoint, 'commit')} are read to open the table, and the"
        f" table wants a checkpoint after {log.interval:,}"
    )
    return Advice("checkpoint", why, _command(report, "checkpoint"), "t.checkpoint()")


def _vacuum(report: InspectReport) -> Advice | None:
    frees = report.freed.vacuum
    if not frees or frees <= FREED_SHARE * report.bytes:
        return None
    what = counted(report.freed.vacuum_files, "file")
    more = f"{percent(frees, report.bytes)} of the live data" if report.bytes else "no live data"
    why = f"no version within the retention needs {what} ({size(frees)}, {more})"
    return Advice("vacuum", why, _command(report, "vacuum"), "t.vacuum()")


def _expire(report: InspectReport) -> Advice | None:
    frees, log = report.freed.vacuum, report.log
    if not frees or frees <= FREED_SHARE * report.bytes:
        return None
    if log.oldest_ms is None or log.max_age_ms is None or not report.owns_files:
        return None
    if report.inspected_ms - log.oldest_ms <= log.max_age_ms:
        return None
    why = (
        f"up to {size(frees)} of {counted(report.freed.vacuum_files, 'file')} are kept for older"
        f" snapshots alone, and the oldest is over {log.max_age_ms / 86_400_000:g} days old"
    )
    return Advice("expire", why, _command(report, "expire-snapshots"), "t.expire_snapshots()")


def _command(report: InspectReport, name: str) -> str:
    return f"delvec {name} {shlex.quote(report.table)}"


_DELTA: Final = (_purge, _optimize, _checkpoint, _vacuum)
_ICEBERG: Final = (_resolve, _staged, _consolidate, _rewrite, _compact, _expire)
