"""A full vacuum's search: the folder is listed, and what the log does not refer to is found.

Folders are listed side by side where there are any. Files stream by: memory grows with those to
delete (about 100 bytes each) and with the hashes of those to keep, not with all that are listed.
In an object store a table without partitions is one listing, a request for each 1000 files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.maintain.vacuum.candidates import FILES, Candidates, table_of
from delvec.delta.schema.hidden_names import NameRules
from delvec.delta.schema.properties import RANDOMIZE_FILE_PREFIXES
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from delvec.delta.maintain.references import KeySet
    from delvec.delta.schema.metadata import Metadata
    from delvec.storage import FileInfo, Storage

__all__ = ["unreferenced_files"]

_BATCH: Final = 8192
# Folders are opened up, to a depth, until there are so many that all threads have work.
_ENOUGH: Final = 64
_DEPTH: Final = 3


@dataclass
class _Part:
    """What was found so far, by all threads or by one."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    kept: int = 0
    young: int = 0
    folders: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    unaddressable: int = 0

    def add(self, other: _Part) -> None:
        """Add what another thread found."""
        self.batches += other.batches
        self.kept += other.kept
        self.young += other.young
        self.folders |= other.folders
        self.inner |= other.inner
        self.unaddressable += other.unaddressable


def unreferenced_files(
    storage: Storage,
    metadata: Metadata,
    kept: KeySet,
    before_ms: int,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Candidates:
    """List a table's folder; return the files to delete.

    Args:
        storage: The table.
        metadata: Its metadata: partitions decide which names are hidden, and how it is listed.
        kept: The files that the log refers to.
        before_ms: Only files that were modified before this time are deleted.
        on_progress: Is called with the number of files that were listed so far.
    """
    rules, found = NameRules.of(metadata), _Part()
    seen, lock = [0], Lock()

    def look(job: tuple[str, bool]) -> None:
        folder, recursive = job
        part = _Part()
        for batch in _batches(storage.list(folder, recursive=recursive)):
            _choose(batch, rules, kept, before_ms, part)
            with lock:
                seen[0] += len(batch)
                if on_progress is not None:
                    on_progress("listing", seen[0], 0)
        with lock:
            found.add(part)

    jobs, inner = _jobs(storage, rules, is_flat=_is_flat(metadata) and "://" in storage.root)
    found.inner |= inner
    gather(look, jobs)
    files = pa.Table.from_batches(found.batches, FILES)
    for folder in found.inner:
        files = files.filter(pc.invert(pc.starts_with(files["path"], f"{folder}/")))
    if "://" in storage.root:
        files = _without_markers(storage, files)
    return Candidates(
        files,
        found.kept,
        found.young,
        1 + len(_with_parents(found.folders)),
        tuple(sorted(found.inner)),
        found.unaddressable,
    )


def _is_flat(metadata: Metadata) -> bool:
    """Return whether a table has all its files in one folder, so that no folders are looked for."""
    mapped = metadata.mapping_mode != "none"  # new files are in folders of two letters then
    return not (metadata.partition_columns or mapped or metadata.is_on(RANDOMIZE_FILE_PREFIXES))


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


def _batches(infos: Iterator[FileInfo]) -> Iterator[list[FileInfo]]:
    while batch := list(islice(infos, _BATCH)):
        yield batch


def _choose(
    infos: Iterable[FileInfo], rules: NameRules, kept: KeySet, before_ms: int, part: _Part
) -> None:
    """Add the files to delete to a part, and the counts of the others."""
    visible = []
    for info in infos:
        if (table := table_of(info.key)) is not None:
            part.inner.add(table)
        if not rules.is_hidden(info.key):
            visible.append(info)
            part.folders.add(info.key.rpartition("/")[0])
    is_kept = kept.contains([info.key for info in visible])
    is_old = np.fromiter((info.modified_ms < before_ms for info in visible), np.bool_, len(visible))
    part.kept += int(is_kept.sum())
    part.young += int((~is_kept & ~is_old).sum())
    chosen = [visible[index] for index in np.flatnonzero(~is_kept & is_old)]
    named = [info for info in chosen if _is_addressable(info.key)]
    part.unaddressable += len(chosen) - len(named)
    if named:
        part.batches.append(_record_batch(named))


def _is_addressable(key: str) -> bool:
    """Return whether a file on disk has a name that a key can have; see `Storage`."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in key


def _record_batch(infos: Iterable[FileInfo]) -> pa.RecordBatch:
    rows: list[Any] = [(info.key, info.size, info.modified_ms) for info in infos]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, FILES, strict=True)]
    return pa.record_batch(arrays, schema=FILES)


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
    return found - {""}
