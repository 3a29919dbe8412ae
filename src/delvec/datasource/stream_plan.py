"""What the tasks of a batch of a stream read: files, which of their rows, and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.datasource.splits import MAX_SPLIT_BYTES, Piece, pack, plan_splits
from delvec.delta.log.commit_times import commit_times, info_of
from delvec.delta.log.commits import read_log_file
from delvec.delta.log.segment import commit_key
from delvec.delta.read.change_feed import change_feed
from delvec.delta.read.change_feed_schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import DataFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.change_feed_parts import FeedPart
    from delvec.storage import Storage
    from delvec.vector import Bitmap

__all__ = [
    "Constants",
    "StreamPiece",
    "feed_pieces",
    "initial_order",
    "row_pieces",
    "snapshot_pieces",
]

Keep = Literal["live", "selected", "recorded"]


@dataclass(frozen=True)
class Constants:
    """What holds for all changes of a file: their type (None if recorded), version and time."""

    change: str | None
    version: int
    time_us: int


@dataclass(frozen=True)
class StreamPiece:
    """A file, or some of its row groups, and which rows of it are returned.

    Attributes:
        piece: The file.
        keep: Its live rows; those that a vector deletes; or all of a change data file.
        vector: The vector; None if it is the file's own.
        constants: The columns of the change feed; None without one.
    """

    piece: Piece
    keep: Keep = "live"
    vector: Bitmap | None = None
    constants: Constants | None = None


def row_pieces(
    storage: Storage,
    files: Sequence[DataFile],
    split_bytes: int | None,
    constants: Constants | None = None,
) -> list[list[StreamPiece]]:
    """Divide files among tasks, of which all live rows are returned."""
    return [
        [StreamPiece(piece, constants=constants) for piece in pieces]
        for pieces in plan_splits(storage, files, split_bytes)
    ]


def initial_order(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the order in which the files of a version are read: by time, then by path."""
    files = snapshot.files
    keys = pa.table({"time": pa.array(files.modification_times), "path": files.paths})
    found = pc.sort_indices(keys, [("time", "ascending"), ("path", "ascending")])
    return found.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def snapshot_pieces(
    snapshot: Snapshot,
    split_bytes: int | None,
    *,
    with_changes: bool,
    first: int = 0,
    end: int | None = None,
) -> list[list[StreamPiece]]:
    """Divide the files of a version among tasks; in a change feed its rows are inserts.

    Args:
        snapshot: The version.
        split_bytes: The limit of one task.
        with_changes: Whether it is a change feed.
        first: The first file, in `initial_order`.
        end: The end of the files.
    """
    constants = None
    if with_changes:
        constants = Constants("insert", snapshot.version, _time_us(snapshot))
    chosen = None if (first, end) == (0, None) else np.sort(initial_order(snapshot)[first:end])
    files = snapshot.files.data_files(chosen)
    return row_pieces(snapshot.storage, files, split_bytes, constants)


def _time_us(snapshot: Snapshot) -> int:
    version = snapshot.version
    times = commit_times(snapshot, version, version)
    own = [commit for commit in times.commits if commit.first == version]
    if not own:  # only its checkpoint is left
        return snapshot.segment.modified_ms * 1000
    info = info_of(read_log_file(snapshot.storage, commit_key(version)))
    return times.of_read(own[0], info) * 1000


def feed_pieces(
    storage: Storage, first: int, last: int, split_bytes: int | None
) -> list[list[StreamPiece]]:
    """Divide the changes of versions among tasks, both ends included."""
    feed = change_feed(storage, first, last)
    pieces = [
        *_of_part(feed.whole, "live"),
        *_of_part(feed.partial, "selected"),
        *_of_part(feed.recorded, "recorded"),
    ]
    limit = split_bytes or MAX_SPLIT_BYTES
    return pack(pieces, lambda piece: piece.piece.bytes, limit)


def _of_part(part: FeedPart, keep: Keep) -> Iterator[StreamPiece]:
    changes, versions = (part.constants[name].to_pylist() for name in (CHANGE_TYPE, COMMIT_VERSION))
    times = part.constants[COMMIT_TIMESTAMP].to_numpy().astype("datetime64[us]").astype(np.int64)
    own = part.files.vectors.is_valid().to_pylist()
    for at, file in enumerate(part.files.data_files()):
        # Of a file whose vector changed, the difference of the two is in memory.
        vector = part.marks[at] if keep == "selected" and own[at] else None
        yield StreamPiece(
            Piece(file, None, file.size),
            keep,
            vector,
            Constants(changes[at], versions[at], int(times[at])),
        )
