"""The files in `_delta_log` by kind: the log segment of a version, and its checksum file.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from delvec.delta.log import paths
from delvec.documents import LONG_MAX, parse_json
from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError, TableNotFoundError
from delvec.storage import FileInfo, Storage


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of actions, in JSON: one commit, or the commits `first` to `last` compacted."""

    first: int
    last: int
    key: str
    modified_ms: int
    size: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files that hold the state of one version; several if it was written in parts."""

    version: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """The log segment of a version: a checkpoint, if there is one, and the commits after it."""

    version: int
    checkpoint: Checkpoint | None
    files: tuple[LogFile, ...]
    modified_ms: int


@dataclass(slots=True)
class LogListing:
    """The files of a log by kind and first version."""

    commits: dict[int, LogFile]
    compacted: dict[int, list[LogFile]]
    checkpoints: list[Checkpoint]
    beyond: list[str]  # files named after a number that is no version: versions are longs
    incomplete: list[str]  # files of checkpoints that are not whole, which readers ignore


def find_segment(storage: Storage, version: int | None = None) -> Segment:
    """Return the log segment of a version, by default the newest.

    Costs one GET for `_last_checkpoint` and one listing from there on; at worst one of the whole.
    """
    if version is not None and version < 0:
        raise InvalidArgumentError(f"a version is 0 or more, got {version}")
    hint = read_last_checkpoint(storage)
    listing = None
    if hint is not None and (version is None or hint <= version):
        listing = list_log(storage, hint)
        usable = (found.version for found in listing.checkpoints)
        if not any(hint <= found and (version is None or found <= version) for found in usable):
            listing = None  # the checkpoint is gone: the listing decides
    if listing is None:
        listing = list_log(storage)
    _require_table(storage, listing)
    if listing.beyond:
        raise FormatError(
            "a file of the log is named after a number that is no version",
            path=storage.uri_of(listing.beyond[0]),
            expected=f"at most {LONG_MAX}",
            hint="delta-spark cannot open the table either; move the file out of the log",
        )
    return segment_of(storage, listing, version)


def segment_of(storage: Storage, listing: LogListing, version: int | None = None) -> Segment:
    """Return the log segment of a version, by default the newest, of a log that was listed."""
    newest = _newest(listing)
    wanted = newest if version is None else version
    if wanted > newest:
        raise InvalidArgumentError(
            f"{storage.root} has no version {wanted}; the newest is {newest}",
            hint="`delvec history` lists the versions",
        )
    checkpoint = _checkpoint_for(listing, wanted)
    start = 0 if checkpoint is None else checkpoint.version + 1
    files, end = covering_files(listing, start, wanted)
    if end <= wanted:
        raise _missing(storage, listing, end, wanted, is_latest=version is None)
    last = listing.commits.get(wanted)
    modified = last.modified_ms if last else storage.stat(checkpoint.keys[0]).modified_ms  # type: ignore[union-attr]
    return Segment(wanted, checkpoint, tuple(files), modified)


def list_log(storage: Storage, start: int = 0) -> LogListing:
    listing = LogListing({}, {}, [], [], [])
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for info in storage.list(paths.LOG, start_from=paths.version_prefix(start)):
        found = paths.parse_name(info.key.rpartition("/")[2])
        if found is None:
            continue
        if max(found.version, found.last) > LONG_MAX:
            listing.beyond.append(info.key)
            continue
        file = LogFile(found.version, found.last, info.key, info.modified_ms, info.size)
        if found.kind == "commit":
            listing.commits[found.version] = file
        elif found.kind == "compacted" and found.version < found.last and info.size:
            listing.compacted.setdefault(found.version, []).append(file)
        elif found.kind == "checkpoint":
            _add_checkpoint(listing, parts, found, info)
    for (version, count), numbered in parts.items():
        # An incomplete one is ignored. The count is but a claim: nothing is made of it.
        if len(numbered) == count and min(numbered) >= 1 and max(numbered) <= count:
            keys = tuple(key for _, key in sorted(numbered.items()))
            listing.checkpoints.append(Checkpoint(version, keys))
        else:
            listing.incomplete += numbered.values()
    return listing


def list_commits(storage: Storage, start: int = 0) -> list[LogFile]:
    return [commit for _, commit in sorted(list_log(storage, start).commits.items())]


def oldest_version(storage: Storage) -> int:
    """Return the oldest version that can be opened and whose successors all have their commits.

    From there on every version can be compared with the one before. Lists the whole log.
    """
    listing = list_log(storage)
    _require_table(storage, listing)
    newest = _newest(listing)
    first = newest
    while first in listing.commits:
        first -= 1
    if first < 0:
        return 0
    # A version can be opened because one of these files ends at it, or at one before.
    ends = [found.version for found in listing.checkpoints]
    ends += [file.last for files in listing.compacted.values() for file in files]
    for version in sorted({first, *ends}):
        if first <= version <= newest:
            base = _checkpoint_for(listing, version)
            start = 0 if base is None else base.version + 1
            if covering_files(listing, start, version)[1] > version:
                return version
    raise _missing(storage, listing, first, newest, is_latest=True)


def read_last_checkpoint(storage: Storage) -> int | None:
    """Return the version that `_last_checkpoint` points to, or None without a valid one."""
    # Without a hint, or with a damaged one, the listing decides.
    version = read_optional(storage, paths.LAST_CHECKPOINT).get("version")
    return version if type(version) is int and 0 <= version <= LONG_MAX else None


def covering_files(listing: LogListing, start: int, end: int) -> tuple[list[LogFile], int]:
    """Return the fewest files that cover some versions, both ends included, oldest first.

    And the first version that is missing; one after the end if none.
    """
    chosen: list[LogFile] = []
    while start <= end:
        fitting = [file for file in listing.compacted.get(start, ()) if file.last <= end]
        if start in listing.commits:
            fitting.append(listing.commits[start])
        if not fitting:
            break
        chosen.append(max(fitting, key=lambda file: file.last))
        start = chosen[-1].last + 1
    return chosen, start


def read_optional(storage: Storage, key: str) -> dict[str, Any]:
    """Return a JSON object of the log that readers can do without; empty if it is not readable."""
    try:
        value = parse_json(storage.read(key), key)
    except (ObjectNotFoundError, FormatError):
        return {}
    return value if isinstance(value, dict) else {}


def file_count(storage: Storage, version: int) -> int | None:
    """Return the number of data files by the checksum file, or None without one. One small GET."""
    count = read_optional(storage, paths.checksum_key(version)).get("numFiles")
    return count if type(count) is int else None


def _require_table(storage: Storage, listing: LogListing) -> None:
    if not listing.commits and not listing.checkpoints:
        raise TableNotFoundError(
            f"{storage.root} is not a Delta table: it has no commits in {paths.LOG}",
            table=storage.root,
            hint="is the path that of the table's folder, the one that holds _delta_log?",
        )


def _add_checkpoint(
    listing: LogListing,
    parts: dict[tuple[int, int], dict[int, str]],
    found: paths.LogName,
    info: FileInfo,
) -> None:
    if info.size and found.part is not None:
        number, count = found.part
        parts.setdefault((found.version, count), {})[number] = info.key
    elif info.size and found.is_whole:
        listing.checkpoints.append(Checkpoint(found.version, (info.key,)))
    else:  # of another form, or left by a writer that died before it wrote a byte
        listing.incomplete.append(info.key)


def _newest(listing: LogListing) -> int:
    return max([*listing.commits, *(found.version for found in listing.checkpoints)])


def _checkpoint_for(listing: LogListing, wanted: int) -> Checkpoint | None:
    usable = [found for found in listing.checkpoints if found.version <= wanted]
    return max(usable, key=lambda found: (found.version, -len(found.keys)), default=None)


def _missing(
    storage: Storage, listing: LogListing, start: int, wanted: int, *, is_latest: bool
) -> Exception:
    oldest = min([*listing.commits, *(found.version for found in listing.checkpoints)])
    readable = [found.version for found in listing.checkpoints if found.version > wanted]
    if start == 0 and not is_latest and oldest > 0 and readable:
        return InvalidArgumentError(
            f"version {wanted} of {storage.root} cannot be read any more: its commits were cleaned"
            f" up; the oldest that can is {min(readable)}",
            hint="`delvec history` lists the versions",
        )
    return FormatError(
        f"the log of {storage.root} lacks the commit of version {start}",
        path=storage.uri_of(paths.commit_key(start)),
        expected=f"all commits from {start} to {wanted}",
        found="no file",
        hint="restore the file from a copy; without it nobody can tell which rows are deleted",
    )
