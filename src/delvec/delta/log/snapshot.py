"""One version of a Delta table: its protocol, its metadata, its live files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import from_json
from delvec.delta.log.checkpoint_reader import ParquetActions, sidecar_key
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.json_actions import JsonActions, adds_schema
from delvec.delta.log.paths import canonical
from delvec.delta.log.replay import (
    Batch,
    live_rows,
    require_one_vector_each,
    standing_removes,
    unspoken_rows,
    vector_ids,
)
from delvec.delta.log.segment import Segment, find_segment
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.errors import FormatError, located
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.segment import LogFile
    from delvec.storage import Storage

__all__ = [
    "Snapshot",
    "added_files",
    "changed_files",
    "open_snapshot",
    "read_log_files",
    "state_set_by",
]

# Small actions that make up the state, and what tells those of one kind apart.
_SMALL: Final = {"protocol": "", "metaData": "", "txn": "appId", "domainMetadata": "domain"}


class _JsonAdds:
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
        columns = [pc.struct_field(self._adds, name) for name in schema.names]
        return pa.table(columns, schema=schema)

    def json_statistics(self) -> pa.Array | None:
        return pc.struct_field(self._adds, "stats")

    def parsed_statistics(self, *path: str) -> pa.Array | None:  # noqa: ARG002
        return None

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        return [self._actions.action(int(self._lines[row])) for row in rows]

    def pieces(
        self,
        kind: Kind,
        partition_names: Sequence[str],
        more: Sequence[str] = (),  # noqa: ARG002 - JSON has statistics as text alone
    ) -> Iterator[pa.StructArray]:
        """Give the whole actions of one kind, as `ParquetActions` does."""
        yield from_json(self._actions, kind, partition_names)[0]


@dataclass(frozen=True)
class Snapshot:
    """A version of a table. Opening reads what is small; the files are read when asked for.

    Grows with the table's files, not with its rows: some 200 bytes for each live file, and what
    statistics a query asks for.
    """

    storage: Storage
    segment: Segment
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, int]
    domains: Mapping[str, str]
    _commits: tuple[JsonActions, ...] = field(repr=False)
    _checkpoint: tuple[JsonActions | ParquetActions, ...] = field(repr=False)

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.segment.version

    @property
    def table(self) -> str:
        """The path or URI of the table."""
        return self.storage.root

    @property
    def partition_names(self) -> list[str]:
        """What data files and the log call the columns of the partitions."""
        return [field.physical_name for field in self.metadata.partition_fields]

    @property
    def commits(self) -> list[tuple[LogFile, JsonActions]]:
        """The files of the log after the checkpoint, newest first, with what they say."""
        return list(zip(reversed(self.segment.files), self._commits, strict=True))

    @cached_property
    def _sources(self) -> tuple[list[_JsonAdds], list[_JsonAdds | ParquetActions]]:
        """The files of the log after the checkpoint, newest first, and those of the checkpoint."""
        names = self.partition_names
        commits = [_JsonAdds(actions, names) for actions in self._commits]
        parts = [
            actions if isinstance(actions, ParquetActions) else _JsonAdds(actions, names)
            for actions in self._checkpoint
        ]
        return commits, parts

    def tombstones(self) -> Iterator[pa.StructArray]:
        """Give the removes that still stand, of commits and of the checkpoint, piece by piece.

        One stands until its key, path and vector, is spoken of again. Expired ones are given too.
        """
        names, (commits, parts) = self.partition_names, self._sources
        batches = [_batch(source, source.adds(names)) for source in commits]
        rows, said = standing_removes(batches, self.table)
        for source, kept in zip(commits, rows, strict=True):
            if len(kept):
                [piece] = source.pieces("remove", names)
                yield piece.take(kept)
        for piece in (piece for part in parts for piece in part.pieces("remove", names)):
            paths, vectors = (pc.struct_field(piece, name) for name in ("path", "deletionVector"))
            yield piece.take(unspoken_rows(paths, vectors, said, self.table))

    def small_actions(self) -> list[dict[str, Any]]:
        """Give the actions that are not of data files and that hold now, as the log has them.

        Protocol and metadata, the newest of each transaction and each domain; what other actions
        there may be says nothing of the state. Reads the small columns of the checkpoint again.
        """
        newest: dict[tuple[str, ...], dict[str, Any]] = {}
        for source in (*self._commits, *self._checkpoint):
            for action in reversed(list(source.others())):
                for kind, name in _SMALL.items():
                    if isinstance(value := action.get(kind), dict):
                        key = (kind, str(value.get(name))) if name else (kind,)
                        newest.setdefault(key, action)
        return [
            action
            for action in newest.values()
            if not action.get("domainMetadata", {}).get("removed")
        ]

    @cached_property
    def files(self) -> FileSet:
        """The live files.

        Raises:
            FormatError: The log is damaged, or says of one file two things at once.
        """
        return _live_files(self.metadata, self.table, *self._sources)[0]


def _live_files(
    metadata: Metadata,
    root: str,
    commits: Sequence[_JsonAdds],
    parts: Sequence[_JsonAdds | ParquetActions],
) -> tuple[FileSet, list[Batch]]:
    """Give the live files by commits, newest first, and a checkpoint; and what was replayed."""
    names = [field.physical_name for field in metadata.partition_fields]
    sources = [(source, source.adds(names)) for source in (*commits, *parts)]
    batches = [_batch(source, adds) for source, adds in sources]
    rows, paths = live_rows(batches[: len(commits)], batches[len(commits) :], root)
    all_paths = pa.concat_arrays(paths) if paths else pa.array([], pa.string())
    require_one_vector_each(all_paths, root)
    live = [
        _taken(adds.drop_columns(["path"]), kept)
        for (_, adds), kept in zip(sources, rows, strict=True)
    ]
    counts = [len(kept) for kept in rows]
    files = FileSet(
        metadata,
        root,
        all_paths,
        pa.concat_tables(live),
        tuple(source for source, _ in sources),
        np.repeat(np.arange(len(rows), dtype=np.int32), counts),
        np.concatenate(rows) if rows else np.empty(0, dtype=np.int64),
    )
    return files, batches


def _taken(adds: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    return adds if len(rows) == adds.num_rows else adds.take(rows)


def _batch(source: Any, adds: pa.Table) -> Batch:  # noqa: ANN401
    removes = getattr(source, "removes", None)
    paths, vectors = (adds.column(name).combine_chunks() for name in ("path", "deletionVector"))
    if removes is None or not len(removes):
        return Batch(source.uri, paths, vectors)
    return Batch(
        source.uri,
        paths,
        vectors,
        pc.struct_field(removes, "path"),
        pc.struct_field(removes, "deletionVector"),
    )


def added_files(metadata: Metadata, root: str, actions: JsonActions) -> FileSet:
    """Give the files that one commit adds, whether they are still live or not."""
    names = [field.physical_name for field in metadata.partition_fields]
    source = _JsonAdds(actions, names)
    adds = source.adds(names)
    paths = canonical(adds.column("path").combine_chunks(), root)
    rows = np.arange(adds.num_rows, dtype=np.int64)
    numbers = np.zeros(adds.num_rows, dtype=np.int32)
    return FileSet(metadata, root, paths, adds.drop_columns(["path"]), (source,), numbers, rows)


def changed_files(
    metadata: Metadata, root: str, commits: Sequence[JsonActions]
) -> tuple[FileSet, pa.Table]:
    """Replay some commits by themselves, newest first.

    Returns:
        The files that they add and that are live after the newest of them; and all that they speak
        of, in adds and removes, each once: the columns `path` (decoded, in one spelling) and
        `vector_id` (null without a vector).
    """
    names = [field.physical_name for field in metadata.partition_fields]
    sources = [_JsonAdds(actions, names) for actions in commits or [JsonActions(root, b"")]]
    files, batches = _live_files(metadata, root, sources, ())
    said = [
        [canonical(paths, root), vector_ids(vectors)]
        for batch in batches
        for paths, vectors in (
            (batch.add_paths, batch.add_vectors),
            (batch.remove_paths, batch.remove_vectors),
        )
        if paths is not None
    ]
    keys = pa.concat_tables([pa.table(columns, names=["path", "vector_id"]) for columns in said])
    return files, keys.group_by(keys.column_names, use_threads=False).aggregate([])


def open_snapshot(
    storage: Storage, version: int | None = None, *, segment: Segment | None = None
) -> Snapshot:
    """Open a version, by default the newest, and refuse what cannot be read rightly.

    Who has listed the log already hands over the segment that it found.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The table needs what delvec does not know.
        FormatError: The log is damaged.
    """
    segment = find_segment(storage, version) if segment is None else segment
    commits = read_log_files(storage, [file.key for file in reversed(segment.files)])
    state = _State()
    for actions in commits:
        state.hear(actions.others(), actions.uri)
    parts: list[JsonActions | ParquetActions] = []
    for key in segment.checkpoint.keys if segment.checkpoint else ():
        part = _json(storage, key) if key.endswith(".json") else ParquetActions(storage, key)
        sidecars = state.hear(part.others(), part.uri)
        parts += [
            part,
            *(ParquetActions(storage, sidecar_key(path, part.uri)) for path in sidecars),
        ]
    protocol, metadata = state.required(storage.root)
    protocol.require_readable(storage.root)
    metadata.require_readable(storage.root)
    domains = {name: text for name, text in state.domains.items() if text is not None}
    return Snapshot(
        storage,
        segment,
        protocol,
        metadata,
        state.transactions,
        domains,
        tuple(commits),
        tuple(parts),
    )


def state_set_by(actions: JsonActions) -> tuple[Protocol | None, Metadata | None]:
    """Give the protocol and the metadata that one commit puts in force; None where it leaves it."""
    state = _State()
    state.hear(actions.others(), actions.uri)
    return state.protocol, state.metadata


def read_log_files(storage: Storage, keys: Sequence[str]) -> list[JsonActions]:
    """Read files of the log in JSON, side by side; one that is empty is refused."""
    return gather(lambda key: _json(storage, key), keys)


@dataclass
class _State:
    """What the small actions say; the first to speak is the newest and wins."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)

    def hear(self, actions: Iterable[dict[str, Any]], uri: str) -> list[str]:
        """Take what is new from the actions of one file; give the sidecars that they name."""
        sidecars = []
        # Inside a file the last wins, should there be two.
        for action in reversed(list(actions)):
            with located(uri):
                if (value := _object(action, "protocol")) and self.protocol is None:
                    self.protocol = Protocol.from_json(value)
                if (value := _object(action, "metaData")) and self.metadata is None:
                    self.metadata = Metadata.from_json(value)
                if value := _object(action, "txn", "appId", "version"):
                    self.transactions.setdefault(value["appId"], value["version"])
                if value := _object(action, "domainMetadata", "domain"):
                    text = None if value.get("removed") else value.get("configuration")
                    self.domains.setdefault(value["domain"], text)
                if value := _object(action, "sidecar", "path"):
                    sidecars.append(value["path"])
        return sidecars

    def required(self, table: str) -> tuple[Protocol, Metadata]:
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metaData"
            raise FormatError(
                f"the log of {table} has no {missing}",
                path=table,
                expected=f"one {missing} action in the first commit or the checkpoint",
            )
        return self.protocol, self.metadata


def _object(action: dict[str, Any], name: str, *needed: str) -> dict[str, Any] | None:
    """Give an action of a kind, None if this is another; what it must have is there then."""
    value = action.get(name)
    if value is None:
        return None
    if not isinstance(value, dict) or any(value.get(key) is None for key in needed):
        raise FormatError(
            f"a {name} action is damaged",
            expected=f"an object with {', '.join(needed)}" if needed else "an object",
            found=repr(value)[:60],
        )
    return value


def _json(storage: Storage, key: str) -> JsonActions:
    data = storage.read(key)
    if not data.strip():
        # Engines write what they did into every commit. Of one that is empty, the bytes were lost,
        # and the deletes in there with them.
        raise FormatError(
            "a file of the log is empty",
            path=storage.uri_of(key),
            expected="at least one action",
            found=f"{len(data)} bytes",
            hint="restore the file from a copy; the versions before it can still be read",
        )
    return JsonActions(storage.uri_of(key), data)
