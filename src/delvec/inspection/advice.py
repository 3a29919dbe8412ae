"""What to run next on a table, and why: one rule for each kind of maintenance, and its limits.

Rules and reasons are functions of the report's numbers alone. A rule names the call in Python and
the arguments of the command, which adds the options by which the table was reached.
docs/inspecting.md lists the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from delvec.errors import DelvecError
from delvec.inspection.figures import Advice, Rewritten, moment
from delvec.inspection.report import InspectReport
from delvec.report.format import format_count, format_size, percent

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
MANY_POSITION_DELETES: Final = 10
"""Rewrite what position delete files delete from so many on, if there are enough for the table."""
POSITION_DELETE_SHARE: Final = 0.10
"""Enough: there are more than this share of the data files."""
_LEAST_SHARE: Final = 0.01  # of all rows, below which a purge is not worth a rewrite


def advise(report: InspectReport, require: Callable[[Advice], None]) -> InspectReport:
    """Return a report with what to run next; what the table refuses is a note instead.

    `require` raises what a call that is advised would be refused with.
    """
    found = {each: _refusal(require, each) for each in advice_for(report)}
    notes = tuple(
        f"{each.action} would be next, but is refused: {why}" for each, why in found.items() if why
    )
    advice = tuple(each for each, why in found.items() if not why)
    return replace(report, advice=advice, notes=(*report.notes, *notes))


def _refusal(require: Callable[[Advice], None], advice: Advice) -> str:
    """Return why a call that is advised would be refused; empty if it would not be."""
    try:
        require(advice)
    except DelvecError as error:
        return error.describe()
    return ""


def advice_for(report: InspectReport) -> tuple[Advice, ...]:
    """Return what the figures call for, in the order in which to run it; empty for nothing."""
    rules = _DELTA if report.format == "delta" else _ICEBERG
    return tuple(found for rule in rules if (found := rule(report)) is not None)


def why_deleted(report: InspectReport) -> str | None:
    """Return why rows are to be rewritten without the deleted ones; None if they need not."""
    deleted, rows = report.vectors.rows + report.positions.positions, report.rows
    if not deleted:
        return None
    share = deleted / rows if rows else None
    if share is not None and share > DELETED_SHARE:
        most = "up to " if report.positions.positions else ""
        limit = f"more than {100 * DELETED_SHARE:g} %"
        return (
            f"{most}{percent(min(deleted, rows or 0), rows or 0)} of the rows are deleted, {limit}"
        )
    worst = max(report.most_deleted.shown, key=lambda each: each.ratio, default=None)
    is_many = share is None or share > _LEAST_SHARE
    # Where the log does not say how many rows there are, one file has to stand for all.
    limit_of_file = DELETED_SHARE if share is None else FILE_DELETED_SHARE
    if worst is not None and worst.ratio > limit_of_file and is_many:
        limit = f"more than {100 * limit_of_file:g} %"
        part = percent(worst.deleted, worst.rows or 0)
        return f"{part} of the rows of a file are deleted, {limit}"
    return None


def why_position_deletes(report: InspectReport) -> str | None:
    """Return why position delete files are too many; None if they are not."""
    found = report.positions
    is_many = found.files > POSITION_DELETE_SHARE * report.files
    if found.files < MANY_POSITION_DELETES or not is_many:
        return None
    what = format_count(found.files, "position delete file")
    return (
        f"{what} ({format_size(found.bytes)}), at least {MANY_POSITION_DELETES} and more than"
        f" {100 * POSITION_DELETE_SHARE:g} % of the data files: readers open each beside its data"
    )


def why_fewer_files(report: InspectReport) -> str | None:
    """Return why small files are to be put together; None if they need not."""
    small = report.small_files
    fewer = small.before - small.after
    if fewer < FEWER_FILES or small.after * 2 >= small.before:
        return None
    return f"{format_count(small.before, 'small file')} would become about {small.after:,}"


def _resolve(report: InspectReport) -> Advice | None:
    waiting = report.equality
    count = waiting.files + waiting.vectors
    if not count:
        return None
    what = format_count(count, "equality delete")
    why = f"{what} with {format_count(waiting.keys, 'key')} wait: readers join every row with them"
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
    what = format_count(first.snapshots, "snapshot")
    why = f"the staging branch {first.name} has {what} that main has not taken over"
    arguments = ("resolve", report.table, "--staging", first.name)
    return Advice("resolve", why, arguments, f"t.resolve(staging={first.name!r})")


def _consolidate(report: InspectReport) -> Advice | None:
    count = report.equality.files + report.equality.vectors
    if count < MANY_EQUALITY_DELETES:
        return None
    why = (
        f"if they are not resolved: {format_count(count, 'equality delete')}, at least"
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
        f"it writes about {format_size(rewrite.written)}, and {after} frees the"
        f" {format_size(rewrite.replaced)} that it replaces"
    )


def _rewrite(report: InspectReport) -> Advice | None:
    """Iceberg's own rewrite does what a purge does, for files with a delete."""
    why = why_deleted(report) or why_position_deletes(report)
    if why is None or not _is_compactable(report):
        return None
    if report.freed.rewrite.files:
        rewrite = report.freed.rewrite
        why += (
            f"; it writes about {format_size(rewrite.written)}, and the"
            f" {format_size(rewrite.replaced)} that it replaces go when their snapshots expire"
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
        f"{last}: {format_count(log.since_checkpoint, 'commit')} are read to open the table,"
        f" and the table wants a checkpoint after {log.interval:,}"
    )
    return Advice("checkpoint", why, ("checkpoint", report.table), "t.checkpoint()")


def _vacuum(report: InspectReport) -> Advice | None:
    freed = report.freed
    if not freed.vacuum or freed.vacuum <= FREED_SHARE * report.bytes:
        return None
    share = percent(freed.vacuum, report.bytes)
    more = f"{share} of the live data" if report.bytes else "no live data"
    hours = "" if freed.retention_hours is None else f" of {freed.retention_hours:,g} hours"
    lost = "no version of the log is older, so that time travel loses none"
    if freed.first_kept is not None:
        when = moment(freed.first_kept_ms)
        lost = f"it ends time travel to versions before {freed.first_kept:,}, which is of {when}"
    why = (
        f"no version within the retention{hours} needs {format_count(freed.vacuum_files, 'file')}"
        f" ({format_size(freed.vacuum)}, {more}); {lost}"
    )
    return Advice("vacuum", why, ("vacuum", report.table), "t.vacuum()")


def _expire(report: InspectReport) -> Advice | None:
    frees, log = report.freed.vacuum, report.log
    if not frees or frees <= FREED_SHARE * report.bytes:
        return None
    if log.oldest_ms is None or log.max_age_ms is None or not report.owns_files:
        return None
    if report.inspected_ms - log.oldest_ms <= log.max_age_ms:
        return None
    why = (
        f"up to {format_size(frees)} of {format_count(report.freed.vacuum_files, 'file')} are"
        f" kept for older snapshots alone, and the oldest is over"
        f" {log.max_age_ms / 86_400_000:g} days old;"
        " it ends time travel to those that expire"
    )
    arguments = ("expire-snapshots", report.table)
    return Advice("expire", why, arguments, "t.expire_snapshots()")


_DELTA: Final = (_purge, _optimize, _checkpoint, _vacuum)
_ICEBERG: Final = (_resolve, _staged, _consolidate, _rewrite, _compact, _expire)
