"""What the commits that are still in a log say of files: since when, until when, by which columns.

All commits are read once. Memory grows with the actions of files in them, some 200 bytes each, and
with the live files of the oldest version that can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log import actions as log_actions
from delvec.delta.log.paths import canonicalize_paths, inside_names
from delvec.delta.log.replay import read_log_files
from delvec.delta.log.segment import LogFile, list_commits, oldest_version
from delvec.delta.log.snapshot import Snapshot, open_snapshot, partition_maps
from delvec.delta.schema.metadata import Metadata
from delvec.errors import FormatError
from delvec.vector import Descriptor

_AT_ONCE: Final = 64
_KINDS: Final[tuple[log_actions.Kind, ...]] = ("add", "remove", "cdc")
_VECTOR: Final = log_actions.TYPES["add"].field("deletionVector").type
_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("version", pa.int64()),
        ("kind", pa.string()),
        ("time", pa.int64()),
        ("deletionVector", _VECTOR),
        ("partitionValues", log_actions.STRING_MAP),
    ]
)
# The version of a tombstone that only a checkpoint has.
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Epoch:
    """The metadata of the versions from one on, until the next epoch begins."""

    first: int
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the log says of one data file."""

    # The first and the last that has the file, of those that can be read.
    versions: tuple[int, int] | None
    removed_ms: int | None  # when it was removed; None if the log does not say
    # The versions that gave it another vector, oldest first, and the vectors.
    vectors: tuple[tuple[int, Descriptor | None], ...]


@dataclass(frozen=True)
class LogHistory:
    """The commits of a log up to a version, and what they did to files."""

    snapshot: Snapshot
    oldest: int  # the oldest version that can be read
    epochs: tuple[Epoch, ...]  # definitions of the table, newest first
    # One row for each add, remove and change file: `path` (relative to the table if it is inside),
    # `version`, `kind` (add, remove or cdc), `time` of a removal, `deletionVector`,
    # `partitionValues`. Oldest first.
    actions: pa.Table

    @cached_property
    def names(self) -> pa.Array:
        """The files that any action names, each once, change files included."""
        return self._by_path[0]

    @cached_property
    def _by_path(self) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
        """The distinct paths, the rows of actions ordered by path, and where each path begins."""
        encoded = self.actions["path"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
        return encoded.dictionary, order, starts

    def of(self, paths: pa.Array) -> Iterator[list[dict[str, Any]]]:
        """Yield the actions of each file, oldest first; none for one that the log does not name."""
        names, order, starts = self._by_path
        places = pc.index_in(paths, value_set=names).to_pylist()
        for first in range(0, len(places), _AT_ONCE):
            rows = [
                order[:0] if place is None else order[starts[place] : starts[place + 1]]
                for place in places[first : first + _AT_ONCE]
            ]
            found = iter(self.actions.take(pa.array(np.concatenate(rows))).to_pylist())
            yield from (list(islice(found, len(each))) for each in rows)

    def last_actions(self, paths: pa.Array) -> pa.Table:
        """Return the last action of each file, all of which the log names."""
        names, order, starts = self._by_path
        places = pc.index_in(paths, value_set=names).to_numpy(zero_copy_only=False)
        return self.actions.take(pa.array(order[starts[places + 1] - 1]))

    def epoch_of(self, version: int) -> Epoch:
        """Return the epoch of a version; the oldest one for versions before it."""
        return next((each for each in self.epochs if each.first <= version), self.epochs[-1])

    def facts(self, actions: Sequence[dict[str, Any]], *, is_live: bool) -> FileFacts:
        adds = [each for each in actions if each["kind"] == "add"]
        removes = [each for each in actions if each["kind"] == "remove"]
        first = max(min((each["version"] for each in adds), default=0), self.oldest)
        last = max((each["version"] for each in removes), default=_UNKNOWN) - 1
        if is_live:
            last = self.snapshot.version
        times = [each["time"] for each in removes if each["time"] is not None]
        logged = ((each["version"], each["deletionVector"]) for each in adds)
        vectors = tuple((version, each and Descriptor.from_json(each)) for version, each in logged)
        return FileFacts(
            (first, last) if first <= last else None, max(times, default=None), vectors
        )


def read_history(snapshot: Snapshot) -> LogHistory:
    storage = snapshot.storage
    oldest = oldest_version(storage)
    commits = [each for each in list_commits(storage) if each.last <= snapshot.version]
    builder = _Builder(snapshot)
    if oldest > 0:
        builder.begin(open_snapshot(storage, oldest))
    for start in range(0, len(commits), _AT_ONCE):
        window = commits[start : start + _AT_ONCE]
        builder.take(window, read_log_files(storage, [each.key for each in window]))
    return builder.history(oldest)


class _Builder:
    """Collects the actions of commits, oldest first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._epochs: list[Epoch] = []
        self._pieces = [_SCHEMA.empty_table()]
        self._names: dict[str, None] = {}
        # Without a checkpoint, the commits have them all.
        for tombstones in snapshot.tombstones() if snapshot.segment.checkpoint else ():
            self._add("remove", tombstones, np.full(len(tombstones), _UNKNOWN, dtype=np.int64))

    def begin(self, oldest: Snapshot) -> None:
        """Take the files of the oldest version that can be read."""
        self._take_metadata(oldest.version, oldest.metadata)
        files = oldest.files
        columns = {
            "path": inside_names(files.paths, files.root),
            "version": pa.array(np.full(len(files), oldest.version, dtype=np.int64)),
            "kind": pa.repeat("add", len(files)),
            "time": pa.nulls(len(files), pa.int64()),
            "deletionVector": files.vectors.cast(_VECTOR),
            "partitionValues": partition_maps(files, oldest.partition_names),
        }
        self._pieces.append(pa.table(columns, schema=_SCHEMA))

    def take(self, commits: Sequence[LogFile], read: Sequence[log_actions.JsonActions]) -> None:
        """Take some commits, together; see `from_json_of_all`."""
        for commit, actions in zip(commits, read, strict=True):
            _, metadata = log_actions.read_state_change(actions)
            if metadata is not None:
                self._take_metadata(commit.first, metadata)
        numbers = np.array([commit.first for commit in commits], dtype=np.int64)
        for kind in _KINDS:
            if any(b'"%s"' % kind.encode() in each.data for each in read):
                found, at = log_actions.from_json_of_all(read, kind, list(self._names))
                self._add(kind, self._own_values(kind, found, numbers[at]), numbers[at])

    def _own_values(
        self, kind: log_actions.Kind, found: pa.StructArray, versions: NDArray[np.int64]
    ) -> pa.StructArray:
        """Drop partition values of columns that were none at the time of an action.

        Each action comes with the columns of all times, null where it has no value.
        """
        epochs = [
            (each.first, {field.physical_name for field in each.metadata.partition_fields})
            for each in sorted(self._epochs, key=lambda epoch: -epoch.first)
        ]
        if all(names == epochs[0][1] for _, names in epochs):
            return found
        # A file that is removed is one of the version before.
        at = (versions - (kind == "remove")).tolist()
        maps = pc.struct_field(found, "partitionValues").to_pylist()
        kept = []
        for version, pairs in zip(at, maps, strict=True):
            own = next((names for first, names in epochs if first <= version), epochs[-1][1])
            kept.append(pairs and [each for each in pairs if each[1] is not None or each[0] in own])
        arrays = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
        arrays["partitionValues"] = pa.array(kept, log_actions.STRING_MAP)
        return pa.StructArray.from_arrays(list(arrays.values()), list(arrays))

    def _take_metadata(self, version: int, metadata: Metadata) -> None:
        self._epochs.append(Epoch(version, metadata))
        self._names |= dict.fromkeys(field.physical_name for field in metadata.partition_fields)

    def _add(
        self, kind: log_actions.Kind, found: pa.StructArray, versions: NDArray[np.int64]
    ) -> None:
        fields = {field.name: pc.struct_field(found, [field.name]) for field in found.type}
        count, root = len(found), self._snapshot.table
        columns = {
            "path": inside_names(canonicalize_paths(fields["path"], root), root),
            "version": pa.array(versions),
            "kind": pa.repeat(str(kind), count),
            "time": fields.get("deletionTimestamp", pa.nulls(count, pa.int64())),
            "deletionVector": fields.get("deletionVector", pa.nulls(count, _VECTOR)),
            "partitionValues": fields["partitionValues"],
        }
        self._pieces.append(pa.table(columns, schema=_SCHEMA))

    def history(self, oldest: int) -> LogHistory:
        # Commits before the oldest version that can be read may be there too.
        epochs = sorted(self._epochs, key=lambda epoch: -epoch.first)
        if not epochs:
            raise FormatError(
                "no commit of the log says which columns the table had",
                path=self._snapshot.table,
                expected="one metaData action in the first commit",
            )
        actions = pa.concat_tables(self._pieces).combine_chunks()
        return LogHistory(self._snapshot, oldest, tuple(epochs), actions)
