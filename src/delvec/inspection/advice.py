"""What to run next on a table, and why: one rule for each kind of maintenance.

A rule is a function of the report's numbers alone: the same numbers give the same advice. It names
the call in Python and the arguments of the command; the command line, with the options by which the
table was reached, is made by the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.inspection.figures import Advice
from delvec.inspection.limits import (
    FREED_SHARE,
    LONG_LOG,
    MANY_EQUALITY_DELETES,
    why_deleted,
    why_fewer_files,
    why_position_deletes,
)
from delvec.inspection.moments import moment
from delvec.report.figures import counted, percent, size

if TYPE_CHECKING:
    from delvec.inspection.figures import Rewritten
    from delvec.inspection.report import InspectReport

__all__ = ["advice_for"]


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
    more: tuple[str, ...]
    if branch in {each.name for each in waiting.staging}:
        more, call = ("--staging", str(branch)), f"t.resolve(staging={branch!r})"
    elif branch in (None, "main"):
        more, call = (), "t.resolve()"
    else:
        more, call = ("--target", str(branch)), f"t.resolve(target={branch!r})"
    return Advice("resolve", why, ("resolve", report.table, *more), call)


def _staged(report: InspectReport) -> Advice | None:
    waiting = [each for each in report.equality.staging if each.snapshots]
    if not waiting or report.branch in {each.name for each in waiting}:
        return None
    first = waiting[0]
    what = counted(first.snapshots, "snapshot")
    return Advice(
        "resolve",
        f"the staging branch {first.name} has {what} that main has not taken over",
        ("resolve", report.table, "--staging", first.name),
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
    arguments = ("consolidate", report.table)
    if branch in (None, "main"):
        return Advice("consolidate", why, arguments, "t.consolidate_deletes()")
    more = ("--branch", str(branch))
    return Advice("consolidate", why, (*arguments, *more), f"t.consolidate_deletes({branch!r})")


def _purge(report: InspectReport) -> Advice | None:
    """A purge, unless small files are put together as well: then one `optimize` does both."""
    dead = why_deleted(report)
    if dead is None or why_fewer_files(report) is not None:
        return None
    why = f"{dead}; {_steps(report, report.freed.rewrite)}"
    return Advice("purge", why, ("purge", report.table), "t.purge()")


def _optimize(report: InspectReport) -> Advice | None:
    fewer, dead = why_fewer_files(report), why_deleted(report)
    small = report.small_files
    if fewer is None:
        return None
    if dead is None:
        why = f"{fewer}; {_steps(report, small.alone)}"
        return Advice("optimize", why, ("optimize", report.table), "t.optimize()")
    why = f"{dead}, and {fewer}: one rewrite does both; {_steps(report, small.with_deleted)}"
    arguments = ("optimize", report.table, "--max-deleted-ratio", "0")
    return Advice("optimize", why, arguments, "t.optimize(max_deleted_ratio=0)")


def _steps(report: InspectReport, rewrite: Rewritten) -> str:
    """Return what a rewrite and then a vacuum of a Delta table do to its size, in this order."""
    hours = report.freed.retention_hours
    after = "a vacuum" if hours is None else f"after {hours:,g} hours a vacuum"
    return (
        f"it writes about {size(rewrite.written)}, and {after} frees the {size(rewrite.replaced)}"
        " that it replaces"
    )


def _rewrite(report: InspectReport) -> Advice | None:
    """Iceberg's own rewrite does what a purge does, for files with a delete."""
    why = why_deleted(report) or why_position_deletes(report)
    if why is None or not _is_compactable(report):
        return None
    if report.freed.rewrite.files:
        rewrite = report.freed.rewrite
        why += (
            f"; it writes about {size(rewrite.written)}, and the {size(rewrite.replaced)} that it"
            " replaces go when their snapshots expire"
        )
    # A position delete file may be of several data files, so that it outlives one of them.
    dangling = ("remove-dangling-deletes",) if report.positions.files else ()
    options = {"delete-file-threshold": 1, **dict.fromkeys(dangling, True)}
    more = (f"{key}={str(value).lower()}" for key, value in options.items())
    arguments = [each for pair in more for each in ("--rewrite-option", pair)]
    call = f"t.compact(options={options})".replace("'", '"')
    return Advice("compact", why, ("compact", report.table, *arguments), call)


def _compact(report: InspectReport) -> Advice | None:
    why = why_fewer_files(report)
    if why is None or not _is_compactable(report) or _rewrite(report) is not None:
        return None  # a rewrite of files with deletes puts small ones together as well
    return Advice("compact", why, ("compact", report.table), "t.compact()")


def _is_compactable(report: InspectReport) -> bool:
    """Iceberg rewrites `main` alone; no equality deletes may be there, nor files of others."""
    waiting = report.equality.files + report.equality.vectors
    return report.branch in (None, "main") and report.owns_files and not waiting


def _checkpoint(report: InspectReport) -> Advice | None:
    log = report.log
    if not log.interval or log.since_checkpoint < LONG_LOG * log.interval:
        return None
    last = "there is no checkpoint" if log.checkpoint is None else "the last checkpoint is old"
    why = (
        f"{last}: {counted(log.since_checkpoint, 'commit')} are read to open the table, and the"
        f" table wants a checkpoint after {log.interval:,}"
    )
    return Advice("checkpoint", why, ("checkpoint", report.table), "t.checkpoint()")


def _vacuum(report: InspectReport) -> Advice | None:
    freed = report.freed
    if not freed.vacuum or freed.vacuum <= FREED_SHARE * report.bytes:
        return None
    share = percent(freed.vacuum, report.bytes)
    more = f"{share} of the live data" if report.bytes else "no live data"
    hours = "" if freed.retention_hours is None else f" of {freed.retention_hours:,g} hours"
    why = (
        f"no version within the retention{hours} needs {counted(freed.vacuum_files, 'file')}"
        f" ({size(freed.vacuum)}, {more}); {_lost_versions(report)}"
    )
    return Advice("vacuum", why, ("vacuum", report.table), "t.vacuum()")


def _lost_versions(report: InspectReport) -> str:
    """Return what a vacuum takes from time travel."""
    first = report.freed.first_kept
    if first is None:
        return "no version of the log is older, so that time travel loses none"
    when = moment(report.freed.first_kept_ms)
    return f"it ends time travel to versions before {first:,}, which is of {when}"


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
        f" snapshots alone, and the oldest is over {log.max_age_ms / 86_400_000:g} days old;"
        " it ends time travel to those that expire"
    )
    arguments = ("expire-snapshots", report.table)
    return Advice("expire", why, arguments, "t.expire_snapshots()")


_DELTA: Final = (_purge, _optimize, _checkpoint, _vacuum)
_ICEBERG: Final = (_resolve, _staged, _consolidate, _rewrite, _compact, _expire)
