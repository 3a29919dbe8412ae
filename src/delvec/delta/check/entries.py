"""The live entries of a log: whether each data file is there once, and what the log says of it.

All on Arrow columns: some hundred bytes for each live file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.check.report import LOG_DAMAGE, log_damage
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import canonicalize_paths, inside_names
from delvec.delta.log.replay import Batch, JsonAdds, batch_of, vector_ids
from delvec.delta.log.snapshot import Snapshot
from delvec.report.findings import Finding, Findings

_OLDER: Final = (
    "every version before that commit reads rightly: restore the table to one, and repeat what was"
    " done since"
)


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
    twice = find_duplicates(files)
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
            message = (
                f"{file.key} adds and removes the file with the same vector, and the order inside"
                " a commit has no meaning: nobody can tell whether its rows are live"
            )
            path = key.partition("\0")[0]
            yield Finding("error", "added-and-removed", path, message, _OLDER)


def _keys(snapshot: Snapshot, paths: pa.Array, vectors: pa.Array) -> pa.Array:
    """Return path and vector of each action as one string."""
    if not len(paths):
        return pa.array([], pa.string())
    plain = canonicalize_paths(paths, snapshot.table)
    return pc.binary_join_element_wise(plain, pc.coalesce(vector_ids(vectors), ""), "\0")


def find_duplicates(files: FileSet) -> dict[str, list[int]]:
    """Return the entries of each file that has several."""
    paths = inside_names(files.paths, files.root)
    found: dict[str, list[int]] = {}
    for index in where_repeated(paths):
        found.setdefault(paths[index].as_py(), []).append(index)
    return found


def where_repeated(values: pa.Array) -> list[int]:
    """Return the places of values that stand more than once; nulls are none."""
    known = values.drop_null()
    if len(known.unique()) == len(known):
        return []
    counts = known.value_counts()
    several = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    among = pc.is_in(values, value_set=several).to_numpy(zero_copy_only=False)
    return np.flatnonzero(among).tolist()


def _live_twice(files: FileSet, path: str, indexes: list[int]) -> Finding:
    entries = []
    for index in indexes:
        value = files.vectors[index].as_py()
        vector = "no vector" if value is None else f"a vector of {value['cardinality']} rows"
        uri = files.sources[int(files.source[index])].uri  # type: ignore[attr-defined]
        entries.append(f"with {vector} by {uri.rpartition('/')[2]}")
    message = (
        f"the data file is live {len(indexes)} times, so its rows are read as often:"
        f" {', '.join(entries)}"
    )
    hint = f"a writer removed it without naming its vector; {_OLDER}"
    return Finding("error", "live-twice", path, message, hint)


def _unmatched(snapshot: Snapshot, files: FileSet) -> Iterator[Finding]:
    """Yield live files that a later commit removes with a vector that they did not have.

    Sources of live files are numbered newest first: those of the commits, then the checkpoint's.
    """
    names = snapshot.partition_names
    for number, (file, _) in enumerate(snapshot.commits):
        batch = _batch(files.sources[number], names)
        if batch.remove_paths is None or not len(files):
            continue
        removed = canonicalize_paths(batch.remove_paths, snapshot.table)
        places = pc.fill_null(pc.index_in(removed, value_set=files.paths), -1).to_numpy()
        later = np.flatnonzero((places >= 0) & (files.source[places] > number))
        if not len(later):
            continue
        keys = _keys(snapshot, batch.remove_paths, batch.remove_vectors)
        before = files.sources[number + 1 :]
        for at in later.tolist():
            if not _was_live(snapshot, before, keys[at]):
                path = files.paths[int(places[at])].as_py()
                message = (
                    f"{file.key} removes the data file, but does not name the vector that it had:"
                    " it is still live"
                )
                yield Finding("error", "remove-without-vector", path, message, _OLDER)


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
