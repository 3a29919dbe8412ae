"""The history of a table: the `commitInfo` and the timestamp of each commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.delta.log.action_columns import STRING_MAP
from delvec.delta.log.commit_times import commit_times
from delvec.delta.log.snapshot import open_snapshot
from delvec.errors import InvalidArgumentError, ObjectNotFoundError
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.segment import LogFile
    from delvec.storage import Storage

__all__ = ["SCHEMA", "as_string", "history", "history_rows"]

SCHEMA: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("operation", pa.string()),
        ("operationParameters", STRING_MAP),
        ("operationMetrics", STRING_MAP),
        ("userMetadata", pa.string()),
        ("engineInfo", pa.string()),
        ("readVersion", pa.int64()),
        ("isolationLevel", pa.string()),
        ("isBlindAppend", pa.bool_()),
        ("userId", pa.string()),
        ("userName", pa.string()),
        ("clusterId", pa.string()),
    ]
)
"""The columns of a history, named as DESCRIBE HISTORY of delta-spark names them.

What people look for comes first; what is empty outside of Databricks comes last.
"""


def history(storage: Storage, limit: int | None = None) -> pa.Table:
    """Return `history_rows` as a table."""
    return pa.Table.from_pylist(history_rows(storage, limit), SCHEMA)


def history_rows(storage: Storage, limit: int | None = None) -> list[dict[str, Any]]:
    """List the commits that are still in the log, newest first.

    The table is opened, the log is listed, and each commit of the result is read. A `commitInfo` is
    free in form: a value that does not fit its column becomes a string or null.

    Args:
        storage: The table.
        limit: The most commits that are listed.

    Returns:
        One row for each commit, with the columns of `SCHEMA`; times in microseconds, maps as pairs.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The table needs what delvec does not know.
        FormatError: The log is damaged.
    """
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidArgumentError(f"limit is a number of commits, got {limit!r}")
    snapshot = open_snapshot(storage)
    start = 0 if limit is None else max(0, snapshot.version - limit + 1)
    times = commit_times(snapshot, start, snapshot.version)
    wanted = [commit for commit in reversed(times.commits) if commit.first >= start]
    rows = gather(lambda commit: _row(times, commit), wanted)
    return [row for row in rows if row is not None]


def _row(times: CommitTimes, commit: LogFile) -> dict[str, Any] | None:
    try:
        info = times.read(commit)
    except ObjectNotFoundError:
        return None  # cleaned up since the log was listed
    row = {name: _fitting(info.get(name), SCHEMA.field(name).type) for name in SCHEMA.names}
    moment = times.of_read(commit, info) * 1000
    return row | {"version": commit.first, "timestamp": moment}


def _fitting(value: object, kind: pa.DataType) -> object:
    if kind == STRING_MAP:
        if not isinstance(value, dict):
            return None
        return [(name, as_string(part)) for name, part in value.items()]
    if pa.types.is_string(kind):
        return as_string(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    return value if type(value) is int and abs(value) < 1 << 63 else None


def as_string(value: object) -> str | None:
    """Return a string as it is, None for None, and any other value of JSON as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
