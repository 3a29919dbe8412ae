"""Files that a vacuum may delete: what neither the newest version nor a recent commit refers to.

    full   lists the folder, its folders side by side. Memory: 100 bytes for each file to delete,
           and the hashes of those to keep, not all that are listed. In an object store a table
           without partitions is one listing, a request for each 1000 files
    lite   reads each commit since the last vacuum that the retention does not cover, and takes one
           HEAD for each file to delete. Orphans of writers that died stay

No hidden names are among them, and no files of other tables inside the table, which delta-spark
deletes. `_last_vacuum_info` in the log says how far the last vacuum came; delta-spark shares it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.actions import JsonActions, from_json
from delvec.delta.log.paths import CHANGES, LOG, NameRules
from delvec.delta.log.segment import LogFile, read_optional
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.vacuum.references import KeySet, commit_references, linked_keys
from delvec.delta.vacuum.retention import Retention, commits_since, commits_until, read_commits
from delvec.errors import InvalidArgumentError, ObjectNotFoundError
from delvec.storage import FileInfo, Storage
from delvec.storage.listed_files import FILES, file_columns
from delvec.storage.parallel import gather

_VECTOR: Final = re.compile(r"(?:.*/)?deletion_vector_[0-9a-f-]{36}\.bin")
_INNER_TABLE: Final = re.compile(
    r"(?P<delta>.+?)/_delta_log/.*"
    r"|(?:(?P<iceberg>.+)/)?metadata/[^/]+\.metadata\.json(?:\.gz)?",
    re.DOTALL,
)
_BATCH: Final = 8192
# Folders are opened up, to a depth, until there are so many that all threads have work.
_ENOUGH: Final = 64
_DEPTH: Final = 3
_INFO: Final = f"{LOG}/_last_vacuum_info"
_VERSION: Final = "latestCommitVersionOutsideOfRetentionWindow"


@dataclass(frozen=True)
class Candidates:
    """What a vacuum found.

    The `metadata` of its own Iceberg metadata is among the inner tables: folders of other ones.
    """

    files: pa.Table  # those to delete, in the columns of `FILES`
    files_kept: int  # the log refers to them
    files_young: int  # the log does not refer to them; modified within the retention
    folders: int = 1  # those that were looked into
    inner_tables: tuple[str, ...] = ()
    unaddressable: int = 0  # files whose names no store but a disk can have

    @property
    def bytes(self) -> int:
        return int(pc.sum(self.files["bytes"], min_count=0).as_py())


def search(
    snapshot: Snapshot,
    kept: KeySet,
    retention: Retention,
    *,
    lite: bool,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Candidates, int | None]:
    """Return the files to delete, and the last version whose removed files are among them.

    The version is None if the record of it, from which a lite vacuum starts, is to stay.
    """
    before = retention.before_ms
    if lite:
        found, last = removed_files(snapshot, kept, before)
    else:
        found = unreferenced_files(snapshot.storage, snapshot.metadata, kept, before, on_progress)
        last = _covered_until(snapshot, found, before)
    return without_recent(snapshot, found, retention), last


def without_recent(snapshot: Snapshot, found: Candidates, retention: Retention) -> Candidates:
    """Keep files that only recent commits refer to, if there may be some; reads these commits.

    Change files are in no checkpoint. Tombstones are, for as long as the table says: a caller who
    asks for a longer retention gets it, as far as the log reaches back.
    """
    paths = found.files["path"]
    is_longer = retention.length_ms > retention.table_ms
    has_changes = snapshot.metadata.is_on(Property.ENABLE_CHANGE_DATA_FEED) or bool(
        pc.any(pc.starts_with(paths, f"{CHANGES}/")).as_py()
    )
    if not len(paths) or not (is_longer or has_changes):
        return found
    since = retention.before_ms
    named = (
        each.keys
        for actions in read_commits(snapshot.storage, commits_since(snapshot, since))
        for each in commit_references(actions, snapshot.table, since)
    )
    recent = KeySet(named, folds=folds_names(snapshot.storage))
    is_recent = np.concatenate([recent.contains(chunk.to_pylist()) for chunk in paths.chunks])
    if not is_recent.any():
        return found
    files = found.files.filter(pa.array(~is_recent))
    return replace(found, files=files, files_kept=found.files_kept + int(is_recent.sum()))


def unreferenced_files(
    storage: Storage,
    metadata: Metadata,
    kept: KeySet,
    before_ms: int,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Candidates:
    """List a table's folder; return the files to delete."""
    rules, found, lock = NameRules.of(metadata), _Found(), Lock()

    def look(job: tuple[str, bool]) -> None:
        folder, recursive = job
        infos = storage.list(folder, recursive=recursive)
        while batch := list(islice(infos, _BATCH)):
            with lock:
                _choose(batch, rules, kept, before_ms, found)
                found.seen += len(batch)
                if on_progress is not None:
                    on_progress("listing", found.seen, 0)

    jobs, inner = _jobs(storage, rules, is_flat=_is_flat(metadata) and "://" in storage.root)
    gather(look, jobs)
    inner |= found.inner
    files = pa.concat_tables(found.files)
    for folder in inner:
        files = files.filter(pc.invert(pc.starts_with(files["path"], f"{folder}/")))
    if "://" in storage.root:
        files = _without_markers(storage, files)
    folders, inner_tables = len(_with_parents(found.folders)), tuple(sorted(inner))
    counts = found.kept, found.young, folders
    return Candidates(files, *counts, inner_tables, found.unaddressable)


def removed_files(
    snapshot: Snapshot, kept: KeySet, before_ms: int
) -> tuple[Candidates, int | None]:
    """Return the files to delete by the commits since the last vacuum, and the last of these.

    It is None if there was none, or if some of its files are too young for their tombstones, as in
    a copy of a table.
    """
    storage, root = snapshot.storage, snapshot.table
    names: list[pa.Array] = [pa.array([], pa.string())]
    last = None
    for commit, actions in _expired_commits(snapshot, before_ms):
        if _removed_later(actions, before_ms):
            break  # its clock was ahead; a later vacuum begins here
        found = commit_references(actions, root, same_store=True)
        names += [each.keys for each in found]
        last = commit.last
    keys = pa.concat_arrays(names).unique()
    is_kept = kept.contains(keys.to_pylist())
    numbers, targets = linked_keys(keys, root)
    is_kept[numbers] |= kept.contains(targets.to_pylist())
    rules = NameRules.of(snapshot.metadata)
    chosen = [
        key for key in keys.filter(pa.array(~is_kept)).to_pylist() if not rules.is_hidden(key)
    ]
    infos = [info for info in gather(lambda key: _info(storage, key), chosen) if info is not None]
    old = [info for info in infos if info.modified_ms < before_ms]
    young = len(infos) - len(old)
    return Candidates(file_columns(old), int(is_kept.sum()), young), None if young else last


def vacuumed_until(storage: Storage) -> int | None:
    """Return the last version whose removed files the last vacuum deleted; None if unknown."""
    version = read_optional(storage, _INFO).get(_VERSION)
    return version if type(version) is int and version >= 0 else None


def write_vacuumed_until(storage: Storage, version: int) -> None:
    storage.write(_INFO, json.dumps({_VERSION: version}, separators=(",", ":")).encode())


def table_of(key: str) -> str | None:
    """Return the folder of the inner table whose log or metadata a file is, None if of none.

    >>> table_of("old/_delta_log/00000000000000000000.json"), table_of("metadata/v1.metadata.json")
    ('old', 'metadata')
    >>> table_of("part-0.parquet")
    """
    if "/_delta_log/" not in key and ".metadata.json" not in key:
        return None  # by far the most
    found = _INNER_TABLE.fullmatch(key)
    return None if found is None else found["delta"] or found["iceberg"] or "metadata"


def kind_of(path: str) -> str:
    if path.startswith(f"{CHANGES}/"):
        return "change file"
    if _VECTOR.fullmatch(path):
        return "vector file"
    return "data file" if path.endswith(".parquet") else "other file"


def folds_names(storage: Storage) -> bool:
    """Return whether a disk does not tell cases apart, or may not: `A` and `a` are one file there.

    The log is looked for by a name in the wrong case: one listing, and none in an object store.
    """
    if "://" in storage.root:
        return False
    return sys.platform == "darwin" or any(True for _ in storage.list(LOG.upper()))


@dataclass
class _Found:
    """What was found so far, by all threads."""

    files: list[pa.Table] = field(default_factory=lambda: [FILES.empty_table()])
    seen: int = 0
    kept: int = 0
    young: int = 0
    folders: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    unaddressable: int = 0


def _is_flat(metadata: Metadata) -> bool:
    """Return whether a table has all its files in one folder, so that no folders are looked for."""
    mapped = metadata.mapping_mode != "none"  # new files are in folders of two letters then
    return not (
        metadata.partition_columns or mapped or metadata.is_on(Property.RANDOMIZE_FILE_PREFIXES)
    )


def _jobs(
    storage: Storage, rules: NameRules, *, is_flat: bool
) -> tuple[list[tuple[str, bool]], set[str]]:
    """Return the folders to list, each with whether all below it is listed; and inner tables."""
    if is_flat:
        return [("", True)], set()
    jobs: list[tuple[str, bool]] = []
    inner: set[str] = set()
    level = [""]
    for _ in range(_DEPTH):
        if len(level) >= _ENOUGH:
            break
        jobs += [(folder, False) for folder in level]
        below = [child for children in gather(storage.folders, level) for child in children]
        inner |= {child[: -len("/_delta_log")] for child in below if child.endswith("/_delta_log")}
        level = [child for child in below if not rules.is_hidden(child)]
    return [*jobs, *((folder, True) for folder in level)], inner


def _choose(
    infos: Iterable[FileInfo], rules: NameRules, kept: KeySet, before_ms: int, found: _Found
) -> None:
    """Add the files to delete to those that were found, and the counts of the others."""
    visible = []
    for info in infos:
        if (table := table_of(info.key)) is not None:
            found.inner.add(table)
        if not rules.is_hidden(info.key):
            visible.append(info)
            found.folders.add(info.key.rpartition("/")[0])
    is_kept = kept.contains([info.key for info in visible])
    is_old = np.fromiter((info.modified_ms < before_ms for info in visible), np.bool_, len(visible))
    found.kept += int(is_kept.sum())
    found.young += int((~is_kept & ~is_old).sum())
    chosen = [visible[index] for index in np.flatnonzero(~is_kept & is_old)]
    named = [info for info in chosen if _is_addressable(info.key)]
    found.unaddressable += len(chosen) - len(named)
    if named:
        found.files.append(file_columns(named))


def _is_addressable(key: str) -> bool:
    """Return whether a file on disk has a name that a key can have; see `Storage`."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in key


def _without_markers(storage: Storage, files: pa.Table) -> pa.Table:
    """Drop what Hadoop puts into buckets for folders: a listing shows `x/` as an empty file `x`."""
    is_empty = pc.equal(files["bytes"], 0)
    paths = files.filter(is_empty)["path"].to_pylist()
    if not paths:
        return files
    there = gather(storage.exists, paths)
    gone = pa.array([path for path, exists in zip(paths, there, strict=True) if not exists])
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=gone.cast(pa.string()))))


def _with_parents(folders: set[str]) -> set[str]:
    found = {""}
    for folder in folders:
        while folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]  # noqa: PLW2901
    return found


def _expired_commits(snapshot: Snapshot, before_ms: int) -> Iterator[tuple[LogFile, JsonActions]]:
    storage, expired = snapshot.storage, commits_until(snapshot, before_ms)
    if not expired:
        return
    done, earliest = vacuumed_until(storage), expired[0].first
    start = 0 if done is None else done + 1
    if earliest > start:
        known = f"the last one ended at {done}"
        since = "there is no record of a vacuum" if done is None else known
        raise InvalidArgumentError(
            f"the log of {storage.root} does not tell which files were removed since the last"
            f" vacuum: {since}, and the oldest commit left is {earliest}",
            hint="run a full vacuum, which lists the folder: lite=False",
        )
    wanted = [commit for commit in expired if commit.first >= start]
    yield from zip(wanted, read_commits(storage, wanted), strict=True)


def _removed_later(actions: JsonActions, time_ms: int) -> bool:
    if b'"remove"' not in actions.data:
        return False
    times = pc.struct_field(from_json(actions, "remove", ())[0], "deletionTimestamp")
    return bool(np.any(pc.fill_null(times, 0).to_numpy() >= time_ms))


def _info(storage: Storage, key: str) -> FileInfo | None:
    try:
        return storage.stat(key)
    except (ObjectNotFoundError, InvalidArgumentError):  # or no store can have such a name
        return None


def _covered_until(snapshot: Snapshot, found: Candidates, before_ms: int) -> int | None:
    """Return the last version whose removed files a listing has found for sure.

    A lite vacuum goes on from there. In a copy of a table, files may be younger than their
    tombstones: a listing leaves those.
    """
    if found.files_young:
        return None
    expired = commits_until(snapshot, before_ms)
    known = vacuumed_until(snapshot.storage)
    last = expired[-1].last if expired else -1
    return last if last > (-1 if known is None else known) else None
