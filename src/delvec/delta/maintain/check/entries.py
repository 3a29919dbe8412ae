"""The live entries of a log: whether each data file is there once, and what the log says of it.

All on Arrow columns: some hundred bytes for each live file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.commits import JsonAdds, batch_of
from delvec.delta.log.paths import canonical
from delvec.delta.log.replay import vector_ids
from delvec.delta.maintain.check.report import LOG_DAMAGE, log_damage
from delvec.report.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.replay import Batch
    from delvec.delta.log.snapshot import Snapshot
    from delvec.report.findings import Findings

__all__ = ["check_entries", "one_name", "twice_live"]

_OLDER: Final = (
    "every version before that commit reads rightly: restore the table to one, and repeat what was"
    " done since"
)


def one_name(paths: pa.Array, root: str) -> pa.Array:
    """Return paths with one spelling for files below the table, absolute ones included."""
    inside = f"{root.rstrip('/')}/"
    within = pc.starts_with(paths, inside)
    if not pc.any(within).as_py():
        return paths
    return pc.if_else(within, pc.utf8_slice_codeunits(paths, len(inside)), paths)


def check_entries(snapshot: Snapshot, findings: Findings) -> FileSet | None:
    """Return the live entries, also files that are live twice; None if they cannot be told."""
    try:
        both = list(_added_and_removed(snapshot))
        if both:
            findings.extend(both)
            return None
        files = snapshot.all_entries()
        _ = files.row_counts  # so that damaged statistics are noticed here
    except LOG_DAMAGE as error:
        findings.add(log_damage(error))
        return None
    twice = twice_live(files)
    for path, indexes in twice.items():
        findings.add(_live_twice(files, path, indexes))
    findings.extend(each for each in _unmatched(snapshot, files) if each.path not in twice)
    return files


def _added_and_removed(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield files that one commit adds and removes with the same vector."""
    names = snapshot.partition_names
    for file, actions in snapshot.commits:
        batch = _batch(JsonAdds(actions, names), names)
        if batch.remove_paths is None:
            continue
        added = _keys(snapshot, batch.add_paths, batch.add_vectors)
        removed = _keys(snapshot, batch.remove_paths, batch.remove_vectors)
        for key in added.filter(pc.is_in(added, value_set=removed)).unique().to_pylist():
            yield Finding(
                "error",
                "added-and-removed",
                key.partition("\0")[0],
                f"{file.key} adds and removes the file with the same vector, and the order inside"
                " a commit has no meaning: nobody can tell whether its rows are live",
                _OLDER,
            )


def _keys(snapshot: Snapshot, paths: pa.Array, vectors: pa.Array) -> pa.Array:
    """Return path and vector of each action as one string."""
    if not len(paths):
        return pa.array([], pa.string())
    plain = canonical(paths, snapshot.table)
    return pc.binary_join_element_wise(plain, pc.coalesce(vector_ids(vectors), ""), "\0")


def twice_live(files: FileSet) -> dict[str, list[int]]:
    """Return the entries of each file that has several."""
    paths = one_name(files.paths, files.root)
    if len(paths.unique()) == len(paths):
        return {}
    counted_paths = paths.value_counts()
    several = pc.greater(counted_paths.field("counts"), 1)
    found: dict[str, list[int]] = {
        path: [] for path in counted_paths.filter(several).field("values").to_pylist()
    }
    among = pc.is_in(paths, value_set=pa.array(list(found), pa.string()))
    for index in np.flatnonzero(among.to_numpy(zero_copy_only=False)).tolist():
        found[paths[index].as_py()].append(index)
    return found


def _live_twice(files: FileSet, path: str, indexes: list[int]) -> Finding:
    entries = []
    for index in indexes:
        value = files.vectors[index].as_py()
        vector = "no vector" if value is None else f"a vector of {value['cardinality']} rows"
        uri = files.sources[int(files.source[index])].uri  # type: ignore[attr-defined]
        entries.append(f"with {vector} by {uri.rpartition('/')[2]}")
    return Finding(
        "error",
        "live-twice",
        path,
        f"the data file is live {len(indexes)} times, so its rows are read as often:"
        f" {', '.join(entries)}",
        f"a writer removed it without naming its vector; {_OLDER}",
    )


def _unmatched(snapshot: Snapshot, files: FileSet) -> Iterator[Finding]:
    """Yield live files that a later commit removes with a vector that they did not have.

    Sources of live files are numbered newest first: those of the commits, then the checkpoint's.
    """
    names = snapshot.partition_names
    for number, (file, _) in enumerate(snapshot.commits):
        batch = _batch(files.sources[number], names)
        if batch.remove_paths is None or not len(files):
            continue
        removed = canonical(batch.remove_paths, snapshot.table)
        places = pc.fill_null(pc.index_in(removed, value_set=files.paths), -1).to_numpy()
        later = np.flatnonzero((places >= 0) & (files.source[places] > number))
        if not len(later):
            continue
        keys = _keys(snapshot, batch.remove_paths, batch.remove_vectors)
        before = files.sources[number + 1 :]
        for at in later.tolist():
            if not _was_live(snapshot, before, keys[at]):
                yield Finding(
                    "error",
                    "remove-without-vector",
                    files.paths[int(places[at])].as_py(),
                    f"{file.key} removes the data file, but does not name the vector that it had:"
                    " it is still live",
                    _OLDER,
                )


def _was_live(snapshot: Snapshot, sources: Sequence[Any], key: pa.Scalar) -> bool:
    """Return whether an entry was live after some files of the log, newest first."""
    for source in sources:
        batch = _batch(source, snapshot.partition_names)
        if _has(snapshot, batch.add_paths, batch.add_vectors, key):
            return True
        if _has(snapshot, batch.remove_paths, batch.remove_vectors, key):
            return False
    return False


def _has(
    snapshot: Snapshot, paths: pa.Array | None, vectors: pa.Array | None, key: pa.Scalar
) -> bool:
    if paths is None or not len(paths):
        return False
    return bool(pc.any(pc.equal(_keys(snapshot, paths, vectors), key)).as_py())


def _batch(source: Any, partition_names: Sequence[str]) -> Batch:  # noqa: ANN401
    return batch_of(source, source.adds(partition_names))
