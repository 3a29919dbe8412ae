"""One version of a Delta table: its protocol, its metadata, its live files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.checkpoint_reader import ParquetActions, sidecar_key
from delvec.delta.log.commits import (
    JsonAdds,
    batch_of,
    read_log_file,
    read_log_files,
    replayed_files,
)
from delvec.delta.log.replay import not_superseded, tombstones
from delvec.delta.log.segment import Segment, find_segment
from delvec.delta.log.small_actions import SmallActions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.storage import Storage

__all__ = ["Snapshot", "open_snapshot"]

# Small actions that make up the state, and the key of those that occur many times.
_SMALL: Final = {"protocol": "", "metaData": "", "txn": "appId", "domainMetadata": "domain"}


@dataclass(frozen=True)
class Snapshot:
    """A version of a table. Opening it reads the small actions; files are read at the first use.

    Memory grows with the table's files, not with its rows: some 200 bytes for each live file, and
    the statistics that a query asks for.
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
        """The physical names of the partition columns."""
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
            action
            for action in newest.values()
            if not action.get("domainMetadata", {}).get("removed")
        ]

    @cached_property
    def files(self) -> FileSet:
        """The live files.

        Raises:
            FormatError: The log is damaged, or a commit adds and removes one file.
        """
        return replayed_files(self.metadata, self.table, *self._sources)[0]

    def all_entries(self) -> FileSet:
        """Return the live entries, also if a writer's mistake made one file live twice."""
        return replayed_files(self.metadata, self.table, *self._sources, allow_twice=True)[0]


def open_snapshot(
    storage: Storage, version: int | None = None, *, segment: Segment | None = None
) -> Snapshot:
    """Open a version, by default the newest; refuse one that delvec would read wrong.

    Callers that have listed the log already pass the segment.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The table needs what delvec does not know.
        FormatError: The log is damaged.
    """
    segment = find_segment(storage, version) if segment is None else segment
    commits = read_log_files(storage, [file.key for file in reversed(segment.files)])
    state = SmallActions()
    for actions in commits:
        state.replay(actions.others(), actions.uri)
    parts: list[JsonActions | ParquetActions] = []
    for key in segment.checkpoint.keys if segment.checkpoint else ():
        part = (
            read_log_file(storage, key) if key.endswith(".json") else ParquetActions(storage, key)
        )
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
        storage,
        segment,
        protocol,
        metadata,
        state.transactions,
        domains,
        tuple(commits),
        tuple(parts),
    )
