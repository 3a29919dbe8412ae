"""Commits read from the log, and the files that some of them add, remove or leave live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.actions import JsonActions, Kind, adds_schema, from_json
from delvec.delta.log.checkpoint_reader import ParquetActions
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import canonicalize_paths, one_array
from delvec.delta.log.replay import Batch, live_rows, require_one_vector_each, vector_ids
from delvec.delta.schema.metadata import Metadata
from delvec.errors import FormatError
from delvec.storage import Storage
from delvec.storage.parallel import gather


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
        """Return the added files, as `ParquetActions` does."""
        schema = adds_schema(partition_names)
        columns = [pc.struct_field(self._adds, [name]) for name in schema.names]
        return pa.table(columns, schema=schema)

    def json_statistics(self) -> pa.Array | None:
        """Return the statistics of the added files as JSON."""
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
        """Yield the whole actions of one kind, as `ParquetActions` does."""
        yield from_json(self._actions, kind, partition_names)[0]


def read_log_files(storage: Storage, keys: Sequence[str]) -> list[JsonActions]:
    """Read JSON files of the log, side by side; an empty one is refused."""
    return gather(lambda key: read_log_file(storage, key), keys)


def read_log_file(storage: Storage, key: str) -> JsonActions:
    """Read a JSON file of the log."""
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
    """Open a file of a checkpoint."""
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
