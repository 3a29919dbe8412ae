"""The files in a target's location that Iceberg or delvec wrote for it, known by their names.

Everything else is left alone: whoever put it there may need it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delvec.storage import Storage

__all__ = ["COPY", "METADATA", "OwnFiles", "kind_of", "list_own_files"]

COPY: Final = "copied data file"
METADATA: Final = "metadata file"

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KINDS: Final = {
    METADATA: rf"metadata/(?:v[0-9]+|[0-9]+-{_UUID}|{_UUID})(?:\.gz)?\.metadata\.json(?:\.gz)?",
    "manifest list": rf"metadata/snap-[0-9]+-[0-9]+-{_UUID}\.avro",
    "manifest": rf"metadata/(?:{_UUID}-m[0-9]+|optimized-m-{_UUID})\.avro",
    "statistics file": (
        rf"metadata/(?:[0-9]+-{_UUID}\.stats|partition-stats-[0-9]+-{_UUID}\.(?:parquet|avro|orc))"
    ),
    "vector file": rf"data/{_UUID}-deletes\.puffin",
    "position delete file": rf"(?:.+/)?[0-9a-f]{{32}}-{_UUID}\.parquet",
    COPY: rf"data/copies/[0-9a-f]{{40}}(?:-{_UUID})?\.parquet",
    # As Iceberg's writers name them, should others have written to the target.
    "data file": (
        rf"data/(?:.+/)?[0-9]{{5}}-[0-9]+-{_UUID}(?:-[0-9]+)?-[0-9]{{5}}(?:-deletes)?"
        r"\.(?:parquet|avro|orc|puffin)"
    ),
    "temporary file": (
        r"(?:.+/)?\.delvec-staged-[0-9a-f]{32}"
        rf"|data/copies/\.[0-9a-f]{{40}}(?:-{_UUID})?\.parquet\.[0-9a-f]{{32}}\.tmp"
    ),
}
_PATTERN: Final = re.compile("|".join(f"({pattern})" for pattern in _KINDS.values()), re.ASCII)
_NAMES: Final = tuple(_KINDS)
# Neither ours to remove nor worth a word: the pointer of Hadoop's catalog, and Hadoop's checksums.
_INSIGNIFICANT: Final = re.compile(r"metadata/version-hint\.text|(?:.+/)?\.[^/]+\.crc")
_INNER_TABLE: Final = re.compile(
    r"(?:(?P<delta>.+/|)_delta_log|(?P<iceberg>.+)/metadata)/[^/]+\.json"
)
_SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "name": pa.string(),
        "kind": pa.dictionary(pa.int32(), pa.string()),
        "bytes": pa.int64(),
        "modified_ms": pa.int64(),
    }
)
_BATCH: Final = 10_000


@dataclass(frozen=True, eq=False)
class OwnFiles:
    """Files in the location of a target.

    Attributes:
        files: Those that Iceberg or delvec wrote: key, name without folders, kind, bytes and
            modification time.
        unknown: How many others there are.
    """

    files: pa.Table
    unknown: int


def kind_of(key: str) -> str | None:
    """Return what a file of a target is by its key; None if neither Iceberg nor delvec names it so.

    >>> kind_of("metadata/snap-1-1-3f1c9e52-54a5-4a2b-9c6e-0d5d7c0b2a11.avro")
    'manifest list'
    >>> kind_of("data/part-00000-3f1c9e52-54a5-4a2b-9c6e-0d5d7c0b2a11-c000.snappy.parquet")
    """
    match = _PATTERN.fullmatch(key)
    return None if match is None or match.lastindex is None else _NAMES[match.lastindex - 1]


def list_own_files(storage: Storage) -> OwnFiles:
    """List a target's location; takes about 200 bytes of memory for each file in it.

    Shared data files are elsewhere and do not count.

    Raises:
        PlanError: There is another table inside the location.
    """
    batches: list[pa.RecordBatch] = []
    rows: list[tuple[str, str, str, int, int]] = []
    unknown = 0
    for file in storage.list(recursive=True):
        if inner := _INNER_TABLE.fullmatch(file.key):
            folder = (inner["iceberg"] or inner["delta"] or "").rstrip("/")
            raise PlanError(
                f"there is another table inside {storage.root}: {folder or 'a Delta log'}",
                hint="nothing was changed: its files cannot be told from those of the target",
            )
        kind = kind_of(file.key)
        if kind is None:
            unknown += file.size > 0 and not _INSIGNIFICANT.fullmatch(file.key)
            continue
        rows.append((file.key, file.key.rpartition("/")[2], kind, file.size, file.modified_ms))
        if len(rows) == _BATCH:
            batches.append(_batch(rows))
            rows.clear()
    batches.append(_batch(rows))
    return OwnFiles(pa.Table.from_batches(batches, _SCHEMA).unify_dictionaries(), unknown)


def _batch(rows: Iterable[tuple[str, str, str, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [
        pa.array(column, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(column, field.type)
        for column, field in zip(columns, _SCHEMA, strict=True)
    ]
    return pa.record_batch(arrays, schema=_SCHEMA)
