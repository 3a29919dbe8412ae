"""Commits read and replayed: the newest action of each key (path and vector) decides what is live.

The order of actions inside a commit has no meaning. All work is on Arrow columns: memory grows with
the live files (some 200 bytes each), time with the actions that are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.actions import JsonActions, Kind, adds_schema, from_json
from delvec.delta.log.checkpoint_reader import ParquetActions
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import canonicalize_paths, inside_names, one_array
from delvec.delta.schema.metadata import Metadata
from delvec.errors import FormatError
from delvec.storage import Storage
from delvec.storage.parallel import gather


@dataclass(frozen=True, slots=True)
class Batch:
    """The adds and removes of one file of the log; a checkpoint needs its adds alone."""

    uri: str
    add_paths: pa.Array
    add_vectors: pa.Array
    remove_paths: pa.Array | None = None
    remove_vectors: pa.Array | None = None


def vector_ids(vectors: pa.Array) -> pa.Array:
    """Return Delta's unique id of each vector, null where a file has none."""
    kind, text, offset = (
        pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    at = pc.binary_join_element_wise("@", offset.cast(pa.string()), "")
    return pc.binary_join_element_wise(kind, text, pc.coalesce(at, ""), "")


def live_rows(
    commits: Sequence[Batch], checkpoint: Sequence[Batch], root: str
) -> tuple[list[NDArray[np.int64]], list[pa.Array]]:
    """Return the live adds: their rows in each batch, commits first, and their paths."""
    by_commit = [_keys_of(batch, root) for batch in commits]
    seen = _all_keys(by_commit)
    is_first, rows, paths, start = _is_first(seen), [], [], 0
    for keys in by_commit:
        kept = np.flatnonzero(is_first[start : start + len(keys.adds)])
        rows.append(kept)
        paths.append(keys.paths.take(kept))
        start += len(keys.adds) + len(keys.removes)
    for batch in checkpoint:
        part_paths = canonicalize_paths(batch.add_paths, root)
        kept = _rows_not_in(seen, part_paths, batch.add_vectors)
        rows.append(kept)
        paths.append(part_paths if len(kept) == len(part_paths) else part_paths.take(kept))
    return rows, paths


def tombstones(commits: Sequence[Batch], root: str) -> tuple[list[NDArray[np.int64]], pa.Array]:
    """Return the rows of tombstones in each commit that no newer action supersedes.

    And the keys of all actions of the commits; see `not_superseded`.
    """
    by_commit = [_keys_of(batch, root) for batch in commits]
    seen = _all_keys(by_commit)
    is_first, rows, start = _is_first(seen), [], 0
    for keys in by_commit:
        start += len(keys.adds)
        rows.append(np.flatnonzero(is_first[start : start + len(keys.removes)]))
        start += len(keys.removes)
    return rows, seen


def not_superseded(
    paths: pa.Array, vectors: pa.Array, seen: pa.Array, root: str
) -> NDArray[np.int64]:
    """Return the rows of a checkpoint that no action of a later commit supersedes."""
    return _rows_not_in(seen, canonicalize_paths(paths, root), vectors)


def require_one_vector_each(paths: pa.Array, root: str) -> None:
    """Refuse a table in which one data file is live twice, as with two vectors.

    A writer that removes a file without naming its vector leaves it so: rows would be read twice.
    """
    twice = repeated(inside_names(paths, root))
    if not len(twice):
        return
    raise FormatError(
        "a data file is live more than once: its rows would be read twice",
        path=root,
        expected="one entry, with one deletion vector or none",
        found=f"{twice[0].as_py()!r}" + (f" and {len(twice) - 1} more" if len(twice) > 1 else ""),
        hint="a writer removed the file without naming its vector; the version before still reads"
        " rightly",
    )


def repeated(values: pa.Array) -> pa.Array:
    if len(values.unique()) == len(values):  # count_distinct takes five times as long
        return values[:0]
    counted = values.value_counts()
    return counted.filter(pc.greater(counted.field("counts"), 1)).field("values")


@dataclass(frozen=True, slots=True)
class _Keys:
    paths: pa.Array
    adds: pa.Array
    removes: pa.Array


_NONE = pa.nulls(0, pa.string())


def _keys_of(batch: Batch, root: str) -> _Keys:
    paths = canonicalize_paths(batch.add_paths, root)
    adds = keys_of(paths, batch.add_vectors)
    removes = _NONE
    if batch.remove_paths is not None and len(batch.remove_paths):
        removes = keys_of(canonicalize_paths(batch.remove_paths, root), batch.remove_vectors)
        both = adds.filter(pc.is_in(adds, value_set=removes))
        if len(both):
            raise FormatError(
                "one commit adds and removes the same file with the same vector",
                path=batch.uri,
                found=repr(both[0].as_py().partition("\0")[0]),
                hint="the order inside a commit has no meaning, so nobody can tell what was meant",
            )
    return _Keys(paths, adds, removes)


def keys_of(paths: pa.Array, vectors: pa.Array) -> pa.Array:
    if vectors.null_count == len(vectors):
        return paths
    return pc.binary_join_element_wise(paths, vector_ids(vectors), "\0", null_handling="skip")


def _all_keys(by_commit: Sequence[_Keys]) -> pa.Array:
    both = (keys for commit in by_commit for keys in (commit.adds, commit.removes))
    return pa.concat_arrays([_NONE, *both])


def _rows_not_in(seen: pa.Array, paths: pa.Array, vectors: pa.Array) -> NDArray[np.int64]:
    if not len(seen):
        return np.arange(len(paths))
    gone = pc.is_in(keys_of(paths, vectors), value_set=seen)
    return np.flatnonzero(~gone.to_numpy(zero_copy_only=False))


def _is_first(keys: pa.Array) -> NDArray[np.bool_]:
    codes = keys.dictionary_encode().indices.to_numpy()
    first = np.empty(len(keys), dtype=np.int64)
    order = np.arange(len(keys))
    first[codes[::-1]] = order[::-1]  # the last to be written here is the newest
    is_first: NDArray[np.bool_] = first[codes] == order
    return is_first


class JsonAdds:
    """The adds and removes of a JSON file, with their statistics."""

    def __init__(self, actions: JsonActions, partition_names: Sequence[str]) -> None:
        table = actions.table(partition_names)
        add, remove = (table.column(name).combine_chunks() for name in ("add", "remove"))
        self._actions = actions
        self._lines = np.flatnonzero(add.is_valid().to_numpy(zero_copy_only=False))
        self._adds = add.take(self._lines)
        self.removes = remove.drop_null()
        self.uri = actions.uri

    def adds(self, partition_names: Sequence[str]) -> pa.Table:
        schema = adds_schema(partition_names)
        columns = [pc.struct_field(self._adds, [name]) for name in schema.names]
        return pa.table(columns, schema=schema)

    def json_statistics(self) -> pa.Array | None:
        return pc.struct_field(self._adds, "stats")

    def parsed_statistics(self, *path: str) -> pa.Array | None:  # noqa: ARG002
        """Return None: commits have statistics as JSON alone."""
        return None

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return the whole actions of some added files, by their rows in `adds`."""
        return [self._actions.action(int(self._lines[row])) for row in rows]

    def pieces(
        self,
        kind: Kind,
        partition_names: Sequence[str],
        more: Sequence[str] = (),  # noqa: ARG002 - JSON has no further fields
    ) -> Iterator[pa.StructArray]:
        yield from_json(self._actions, kind, partition_names)[0]


def read_log_files(storage: Storage, keys: Sequence[str]) -> list[JsonActions]:
    """Read JSON files of the log, side by side; an empty one is refused."""
    return gather(lambda key: read_log_file(storage, key), keys)


def read_log_file(storage: Storage, key: str) -> JsonActions:
    data = storage.read(key)
    if not data.strip():
        # Engines write a `commitInfo` into every commit. An empty one has lost its bytes, and the
        # deletes in it.
        raise FormatError(
            "a file of the log is empty",
            path=storage.uri_of(key),
            expected="at least one action",
            found=f"{len(data)} bytes",
            hint="restore the file from a copy; the versions before it can still be read",
        )
    return JsonActions(storage.uri_of(key), data)


def open_part(storage: Storage, key: str) -> JsonActions | ParquetActions:
    return read_log_file(storage, key) if key.endswith(".json") else ParquetActions(storage, key)


def replay_commits(
    metadata: Metadata,
    root: str,
    commits: Sequence[JsonAdds],
    parts: Sequence[JsonAdds | ParquetActions],
    *,
    allow_twice: bool = False,
) -> tuple[FileSet, list[Batch]]:
    """Return the files that are live after commits, newest first, and the replayed batches.

    `parts` are of the checkpoint before them. Only a check allows a file with two vectors.
    """
    names = [field.physical_name for field in metadata.partition_fields]
    sources = [(source, source.adds(names)) for source in (*commits, *parts)]
    batches = [batch_of(source, adds) for source, adds in sources]
    rows, paths = live_rows(batches[: len(commits)], batches[len(commits) :], root)
    all_paths = one_array(paths, root) if paths else pa.array([], pa.string())
    if not allow_twice:
        require_one_vector_each(all_paths, root)
    tables = (adds.drop_columns(["path"]) for _, adds in sources)
    live = [
        adds if len(kept) == adds.num_rows else adds.take(kept)
        for adds, kept in zip(tables, rows, strict=True)
    ]
    files = FileSet(
        metadata,
        root,
        all_paths,
        pa.concat_tables(live),
        tuple(source for source, _ in sources),
        np.repeat(np.arange(len(rows), dtype=np.int32), [len(kept) for kept in rows]),
        np.concatenate(rows) if rows else np.empty(0, dtype=np.int64),
    )
    return files, batches


def batch_of(source: Any, adds: pa.Table) -> Batch:  # noqa: ANN401
    """Return what a source of adds, and of removes if it has any, contributes to a replay."""
    names, removes = ("path", "deletionVector"), getattr(source, "removes", None)
    added = [adds.column(name).combine_chunks() for name in names]
    removed = [pc.struct_field(removes, [name]) for name in names] if removes else []
    return Batch(source.uri, *added, *removed)


def read_added_files(metadata: Metadata, root: str, actions: JsonActions) -> FileSet:
    """Return the files that one commit adds, whether they are still live or not."""
    names = [field.physical_name for field in metadata.partition_fields]
    source = JsonAdds(actions, names)
    adds = source.adds(names)
    paths = canonicalize_paths(adds.column("path").combine_chunks(), root)
    return FileSet.of_one(source, metadata, root, paths, adds.drop_columns(["path"]))


def read_changed_files(
    metadata: Metadata, root: str, commits: Sequence[JsonActions]
) -> tuple[FileSet, pa.Table]:
    """Replay some commits by themselves, newest first: what they add that is live after them.

    And the keys of all their adds and removes, each once: the columns `path` (decoded, in one
    spelling) and `vector_id` (null without a vector).
    """
    names = [field.physical_name for field in metadata.partition_fields]
    sources = [JsonAdds(actions, names) for actions in commits or [JsonActions(root, b"")]]
    files, batches = replay_commits(metadata, root, sources, ())
    seen = [
        [canonicalize_paths(paths, root), vector_ids(vectors)]
        for batch in batches
        for paths, vectors in (
            (batch.add_paths, batch.add_vectors),
            (batch.remove_paths, batch.remove_vectors),
        )
        if paths is not None
    ]
    keys = pa.concat_tables([pa.table(columns, names=["path", "vector_id"]) for columns in seen])
    return files, keys.group_by(keys.column_names, use_threads=False).aggregate([])
