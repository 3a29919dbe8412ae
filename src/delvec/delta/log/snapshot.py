"""One version of a Delta table: protocol, metadata, and live files, also as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.actions import JsonActions, TableActions
from delvec.delta.log.checkpoint_reader import ParquetActions, sidecar_key
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.replay import (
    JsonAdds,
    batch_of,
    not_superseded,
    open_part,
    read_log_files,
    replay_commits,
    tombstones,
)
from delvec.delta.log.segment import LogFile, Segment, find_segment
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import PrimitiveType, arrow_type
from delvec.storage import Storage

# Small actions that make up the state, and the key of those that occur many times.
_SMALL: Final = {"protocol": "", "metaData": "", "txn": "appId", "domainMetadata": "domain"}


@dataclass(frozen=True)
class Snapshot:
    """A version of a table. Opening it reads the small actions; files are read at the first use.

    Memory grows with the table's live files, some 200 bytes each, and the statistics asked for.
    """

    storage: Storage
    segment: Segment
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, int]
    domains: Mapping[str, str]
    _commits: Sequence[JsonActions] = field(repr=False)
    _checkpoint: Sequence[JsonActions | ParquetActions] = field(repr=False)

    @property
    def version(self) -> int:
        return self.segment.version

    @property
    def table(self) -> str:
        return self.storage.root

    @property
    def partition_names(self) -> list[str]:
        return [field.physical_name for field in self.metadata.partition_fields]

    @property
    def commits(self) -> list[tuple[LogFile, JsonActions]]:
        """The files of the log after the checkpoint, newest first, with their actions."""
        return list(zip(reversed(self.segment.files), self._commits, strict=True))

    @cached_property
    def _sources(self) -> tuple[list[JsonAdds], list[JsonAdds | ParquetActions]]:
        """The files of the log after the checkpoint, newest first, and those of the checkpoint."""
        names = self.partition_names
        commits = [JsonAdds(actions, names) for actions in self._commits]
        parts = [
            actions if isinstance(actions, ParquetActions) else JsonAdds(actions, names)
            for actions in self._checkpoint
        ]
        return commits, parts

    def tombstones(self) -> Iterator[pa.StructArray]:
        """Yield the tombstones of commits and of the checkpoint, piece by piece.

        An action of the same path and vector supersedes one. Expired ones are there too.
        """
        names, (commits, parts) = self.partition_names, self._sources
        batches = [batch_of(source, source.adds(names)) for source in commits]
        rows, seen = tombstones(batches, self.table)
        for source, kept in zip(commits, rows, strict=True):
            if len(kept):
                [piece] = source.pieces("remove", names)
                yield piece.take(kept)
        for piece in (piece for part in parts for piece in part.pieces("remove", names)):
            paths, vectors = (pc.struct_field(piece, [name]) for name in ("path", "deletionVector"))
            yield piece.take(not_superseded(paths, vectors, seen, self.table))

    def small_actions(self) -> list[dict[str, Any]]:
        """Return the actions that are not of data files and are in force, as the log has them.

        Protocol and metadata, the newest of each transaction and each domain; other actions are no
        part of the state. Reads the small columns of the checkpoint again.
        """
        newest: dict[tuple[str, ...], dict[str, Any]] = {}
        for source in (*self._commits, *self._checkpoint):
            for action in reversed(list(source.others())):
                for kind, name in _SMALL.items():
                    if isinstance(value := action.get(kind), dict):
                        key = (kind, str(value.get(name))) if name else (kind,)
                        newest.setdefault(key, action)
        return [
            each for each in newest.values() if not each.get("domainMetadata", {}).get("removed")
        ]

    @cached_property
    def files(self) -> FileSet:
        return replay_commits(self.metadata, self.table, *self._sources)[0]

    def all_entries(self) -> FileSet:
        """Return the live entries, also if a writer's mistake made one file live twice."""
        return replay_commits(self.metadata, self.table, *self._sources, allow_twice=True)[0]


def open_snapshot(
    storage: Storage, version: int | None = None, *, segment: Segment | None = None
) -> Snapshot:
    """Open a version, by default the newest; refuse one that delvec would read wrong.

    Callers that have listed the log already pass the segment.
    """
    segment = find_segment(storage, version) if segment is None else segment
    commits = read_log_files(storage, [file.key for file in reversed(segment.files)])
    state = TableActions()
    for actions in commits:
        state.replay(actions.others(), actions.uri)
    parts: list[JsonActions | ParquetActions] = []
    for key in segment.checkpoint.keys if segment.checkpoint else ():
        part = open_part(storage, key)
        sidecars = state.replay(part.others(), part.uri)
        parts += [
            part,
            *(ParquetActions(storage, sidecar_key(path, part.uri)) for path in sidecars),
        ]
    protocol, metadata = state.required(storage.root)
    protocol.require_readable(storage.root)
    metadata.require_readable(storage.root)
    domains = {name: text for name, text in state.domains.items() if text is not None}
    return Snapshot(
        storage, segment, protocol, metadata, state.transactions, domains, commits, parts
    )


def files_table(files: FileSet, *, statistics: bool = True) -> pa.Table:
    """Return one row for each live file.

    Columns: `path` (decoded), `partition_values`, `size`, `modified`, `row_count` (physical rows),
    `deleted_rows`, `vector` (its kind: u, p or i), `vector_bytes`, `tight_bounds`, and a struct
    `statistics` with `null_count`, `minimum` and `maximum` of each column that has any.
    """
    vector, tight = files.vectors, files.statistic(("tightBounds",), pa.bool_())
    columns: dict[str, Any] = {
        "path": files.paths,
        "partition_values": partition_maps(
            files, [f.name for f in files.metadata.partition_fields]
        ),
        "size": pa.array(files.sizes),
        "modified": pa.array(files.modification_times).cast(pa.timestamp("ms", "UTC")),
        "row_count": files.row_counts,
        "deleted_rows": pa.array(files.deleted_rows),
        "vector": pc.struct_field(vector, "storageType"),
        "vector_bytes": pc.struct_field(vector, "sizeInBytes"),
        "tight_bounds": pa.nulls(len(files), pa.bool_()) if tight is None else tight,
    }
    if statistics:
        columns["statistics"] = _statistics(files)
    return pa.table(columns)


def partition_maps(files: FileSet, names: Sequence[str]) -> pa.MapArray:
    """Return the partition values of the log, under some names of their columns."""
    fields = files.metadata.partition_fields
    rows = zip(*(files.partition_strings(f.physical_name).to_pylist() for f in fields), strict=True)
    texts = pa.array([text for row in rows for text in row], pa.string())
    offsets = pa.array([row * len(fields) for row in range(len(files) + 1)], pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array([*names] * len(files), pa.string()), texts)


def _statistics(files: FileSet) -> pa.StructArray:
    found = {}
    for path in walk(files.metadata.schema, structs_only=True):
        kind = path[-1].type
        if not isinstance(kind, PrimitiveType) or kind.name in ("variant", "void"):
            continue
        physical, data_type = tuple(each.physical_name for each in path), arrow_type(kind)
        values = {
            "null_count": files.statistic(("nullCount", *physical), pa.int64()),
            "minimum": files.statistic(("minValues", *physical), data_type),
            "maximum": files.statistic(("maxValues", *physical), data_type),
        }
        known = {n: v for n, v in values.items() if v is not None and v.null_count < len(v)}
        if known:
            column = pa.StructArray.from_arrays(list(known.values()), list(known))
            found[".".join(each.name for each in path)] = column
    if not found:
        return pa.nulls(len(files), pa.struct([]))
    return pa.StructArray.from_arrays(list(found.values()), list(found))
