"""A lite vacuum's search: the commits since the last vacuum tell which files were removed.

Nothing is listed but the log, so orphan files of writers that died stay; a full vacuum finds them.
Reads each commit since the last vacuum that the retention does not cover, and takes one HEAD for
each file to delete. Memory grows with the files to delete.

`_last_vacuum_info` in the log says how far the last vacuum came; delta-spark reads and writes it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import from_json
from delvec.delta.log.segment import LOG
from delvec.delta.maintain.linked_keys import linked_keys
from delvec.delta.maintain.recent_commits import commits_until, read_commits
from delvec.delta.maintain.references import commit_references
from delvec.delta.maintain.vacuum.candidates import FILES, Candidates
from delvec.delta.schema.hidden_names import NameRules
from delvec.documents import parse_json
from delvec.errors import InvalidArgumentError, ObjectNotFoundError
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.references import KeySet
    from delvec.storage import FileInfo, Storage

__all__ = ["removed_files", "vacuumed_until", "write_vacuumed_until"]

_INFO: Final = f"{LOG}/_last_vacuum_info"
_VERSION: Final = "latestCommitVersionOutsideOfRetentionWindow"


def vacuumed_until(storage: Storage) -> int | None:
    """Return the last version whose removed files the last vacuum deleted; None if unknown."""
    try:
        value = parse_json(storage.read(_INFO), "the mark of the last vacuum")
    except (ObjectNotFoundError, ValueError):
        return None
    version = value.get(_VERSION) if isinstance(value, dict) else None
    return version if type(version) is int and version >= 0 else None


def write_vacuumed_until(storage: Storage, version: int) -> None:
    """Record the last version whose removed files a vacuum has deleted."""
    storage.write(_INFO, json.dumps({_VERSION: version}, separators=(",", ":")).encode())


def removed_files(
    snapshot: Snapshot, kept: KeySet, before_ms: int
) -> tuple[Candidates, int | None]:
    """Return the files to delete by the commits since the last vacuum.

    Args:
        snapshot: The newest version.
        kept: The files that the log refers to.
        before_ms: Only files that were removed before this time are deleted.

    Returns:
        The files, and the last version that was looked at; None if there was none, or if some of
        its files are too young for their tombstones, as in a copy of a table.

    Raises:
        InvalidArgumentError: Commits since the last vacuum were cleaned up.
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
    columns = [[info[at] for info in old] for at in range(len(FILES))]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, FILES, strict=True)]
    files = pa.table(arrays, schema=FILES)
    young = len(infos) - len(old)
    return Candidates(files, int(is_kept.sum()), young), None if young else last


def _expired_commits(snapshot: Snapshot, before_ms: int) -> Iterator[tuple[LogFile, JsonActions]]:
    storage, expired = snapshot.storage, commits_until(snapshot, before_ms)
    if not expired:
        return
    done = vacuumed_until(storage)
    start = _start(storage, expired, done)
    wanted = [commit for commit in expired if commit.first >= start]
    yield from zip(wanted, read_commits(storage, wanted), strict=True)


def _start(storage: Storage, commits: Sequence[LogFile], done: int | None) -> int:
    earliest = commits[0].first
    start = 0 if done is None else done + 1
    if earliest > start:
        since = (
            "there is no record of a vacuum" if done is None else f"the last one ended at {done}"
        )
        raise InvalidArgumentError(
            f"the log of {storage.root} does not tell which files were removed since the last"
            f" vacuum: {since}, and the oldest commit left is {earliest}",
            hint="run a full vacuum, which lists the folder: lite=False",
        )
    return start


def _removed_later(actions: JsonActions, time_ms: int) -> bool:
    if b'"remove"' not in actions.data:
        return False
    times = pc.struct_field(from_json(actions, "remove", ())[0], "deletionTimestamp")
    return bool(np.any(pc.fill_null(times, 0).to_numpy() >= time_ms))


def _info(storage: Storage, key: str) -> FileInfo | None:
    try:
        return storage.stat(key)
    except ObjectNotFoundError:
        return None
    except InvalidArgumentError:
        return None  # no store can have a file of that name
