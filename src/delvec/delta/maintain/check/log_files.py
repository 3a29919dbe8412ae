"""The files of a log: whether all are there, and can be read.

Lists the log, and reads what opening the newest version reads. Memory grows with the names in the
log, and with its commits since the newest checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from delvec.delta.log.commits import read_log_file
from delvec.delta.log.names import LAST_CHECKPOINT, LOG, commit_key, parse_name
from delvec.delta.log.segment import list_log
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.maintain.check.report import LOG_DAMAGE, log_damage
from delvec.documents import parse_json
from delvec.errors import FormatError, ObjectNotFoundError
from delvec.report.figures import counted
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.log.segment import LogListing
    from delvec.delta.log.snapshot import Snapshot
    from delvec.report.findings import Findings
    from delvec.storage import Storage

__all__ = ["LogFiles", "check_log_files", "list_log_files", "open_newest", "wrong_hint"]

_RESTORE: Final = "restore the file from a copy"


@dataclass(frozen=True)
class LogFiles:
    """The files of a log.

    Attributes:
        sizes: The bytes of each, by key.
        listing: Those that readers know, by kind.
    """

    sizes: dict[str, int]
    listing: LogListing


def list_log_files(storage: Storage) -> LogFiles:
    """List a log: twice, since a listing by kind omits what readers ignore."""
    sizes = {info.key: info.size for info in storage.list(LOG)}
    return LogFiles(sizes, list_log(storage))


def open_newest(storage: Storage, files: LogFiles, findings: Findings) -> Snapshot | None:
    """Open the newest version; if it is damaged, find the damaged files and return None.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The table needs what delvec does not know.
    """
    try:
        snapshot = open_snapshot(storage)
        _ = snapshot.metadata.schema, snapshot.metadata.partition_fields
    except LOG_DAMAGE as error:
        first = log_damage(error)
        findings.add(first)
        findings.extend(each for each in _damaged(storage, files) if each.path != first.path)
        return None
    return snapshot


def _damaged(storage: Storage, files: LogFiles) -> Iterator[Finding]:
    """Yield the commits since the newest checkpoint that cannot be read."""
    listing = files.listing
    start = max((each.version for each in listing.checkpoints), default=-1)
    for version in sorted(each for each in listing.commits if each > start):
        finding = _damage(storage, commit_key(version))
        if finding is not None:
            yield finding


def _damage(storage: Storage, key: str) -> Finding | None:
    try:
        for _ in read_log_file(storage, key).all_actions():
            pass
    except LOG_DAMAGE as error:
        return log_damage(error)
    return None


def check_log_files(storage: Storage, files: LogFiles, findings: Findings) -> None:
    """Find holes in the history, checkpoints that are not whole, and a wrong hint at the newest."""
    findings.extend(_holes(files.listing))
    known = {key for each in files.listing.checkpoints for key in each.keys}
    known |= set(files.listing.beyond)  # opening the table has found these
    for key in files.sizes:
        name = parse_name(key.rpartition("/")[2])
        if name is not None and name.kind == "checkpoint" and key not in known:
            findings.add(
                Finding(
                    "warning",
                    "incomplete-checkpoint",
                    key,
                    "the checkpoint is not whole: readers ignore it",
                    worded(
                        "delete it, unless a writer is at it; {} writes a new one",
                        call("checkpoint"),
                    ),
                )
            )
    wrong = wrong_hint(storage, files.listing)
    if wrong is not None:
        findings.add(wrong)


def _holes(listing: LogListing) -> Iterator[Finding]:
    """Yield the first of each row of commits that are missing between others."""
    versions = sorted(listing.commits)
    for before, after in pairwise(versions):
        if after - before > 1:
            many = counted(after - before - 1, "commit")
            yield Finding(
                "warning",
                "missing-commit",
                commit_key(before + 1),
                f"{many} missing in the history, from version {before + 1:,} on: versions there"
                " cannot be read, and the changes between them are not known",
                _RESTORE,
            )


def wrong_hint(storage: Storage, listing: LogListing) -> Finding | None:
    """Return what is wrong with `_last_checkpoint`; None if nothing is."""
    versions = {each.version for each in listing.checkpoints}
    try:
        text = storage.read(LAST_CHECKPOINT)
    except ObjectNotFoundError:
        if not versions:
            return None
        return Finding(
            "info",
            "missing-hint",
            LAST_CHECKPOINT,
            f"nothing points to the checkpoint of version {max(versions):,}: readers list the"
            " whole log",
            "check(repair=True) writes it",
        )
    try:
        value = parse_json(text, "the hint")
    except FormatError:
        value = None
    version = value.get("version") if isinstance(value, dict) else None
    if type(version) is int and version in versions:
        return None
    found = f"version {version}"[:60] if type(version) is int else repr(text[:60])
    expected = f"version {max(versions)}" if versions else "no such file"
    return Finding(
        "warning",
        "wrong-hint",
        LAST_CHECKPOINT,
        f"it does not point to a checkpoint: expected {expected}, found {found}",
        worded("{} writes it", call("check", repair=True))
        if versions
        else worded("delete it; {} writes a new one", call("checkpoint")),
    )
