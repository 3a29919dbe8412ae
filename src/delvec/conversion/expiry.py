"""What of a target expires: snapshots, tags and branches by its metadata, files by their names.

Files that neither Iceberg nor delvec wrote for it are left alone: whoever put it there may need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from delvec.conversion.planning import target_layout
from delvec.documents import whole_number
from delvec.errors import PlanError
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot, Ref, TableMetadata
from delvec.storage import Storage

_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
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
    r"(?:(?P<delta>.+/|)_delta_log|(?P<iceberg>.+)/metadata)/[^/]+\.json(?:\.gz)?", re.DOTALL
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


@dataclass(frozen=True)
class Retention:
    """What is retained, in milliseconds since the epoch.

    Files, and snapshots that no branch leads to, are touched only if they are older than
    `orphans_before_ms`.
    """

    now_ms: int
    older_than_ms: int | None  # older snapshots may expire; None for any age
    retain_last: int | None  # of each branch; None for the number that the table sets, else 1
    orphans_before_ms: int

    @property
    def expires(self) -> bool:
        """Whether any snapshot may expire but those of stale branches."""
        return self.older_than_ms is not None or self.retain_last is not None


@dataclass(frozen=True)
class Expiry:
    """What is removed from the metadata of a target."""

    snapshot_ids: tuple[int, ...] = ()  # oldest first
    tags: tuple[str, ...] = ()  # of versions, which go with their snapshots, in the same order
    branches: tuple[str, ...] = ()  # for staging, of conversions that died

    @property
    def refs(self) -> tuple[str, ...]:
        return (*self.tags, *self.branches)

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.refs)


def plan_expiry(metadata: TableMetadata, retention: Retention) -> Expiry:
    """Choose what expires.

    Always retained: what other people's tags and branches point to, the current snapshot, the
    snapshots from it back to the last converted one, by which the next conversion finds how far
    the target is, one by which it knows the current schema for its own, and all that a conversion
    that runs has staged. Costs one pass over the snapshots for each branch.
    """
    stale = target_layout.stale_branches(metadata, retention.now_ms)
    own_tags = {name for name in metadata.refs if target_layout.is_version_tag(metadata, name)}
    retained = _progress_ids(metadata)
    on_branches: set[int] = set()
    of_main = {each.id for each in metadata.ancestors(MAIN)}
    for name, ref in metadata.refs.items():
        if not ref.is_branch:
            if name not in own_tags:
                retained.add(ref.snapshot_id)
        elif name not in stale:
            ancestors = list(metadata.ancestors(name))
            on_branches.update(each.id for each in ancestors)
            if target_layout.is_staging_branch(metadata, name):
                kept = sum(each.id not in of_main for each in ancestors)
            else:
                kept = _retained(ancestors, ref, metadata, retention)
            retained.update(each.id for each in ancestors[:kept])
    staged = {each.id for name in stale for each in metadata.ancestors(name)} - on_branches
    staged -= {metadata.refs[name].snapshot_id for name in own_tags}
    retained |= _with_schema(metadata, retained, staged)

    def expires(snapshot: IcebergSnapshot) -> bool:
        if snapshot.id in retained:
            return False
        if snapshot.id in staged:
            return True
        if snapshot.id in on_branches:
            return retention.expires
        limits = (retention.orphans_before_ms, retention.older_than_ms or retention.now_ms)
        return retention.expires and snapshot.timestamp_ms < min(limits)

    gone = sorted(
        (each for each in metadata.snapshots.values() if expires(each)),
        key=lambda each: (each.timestamp_ms, each.id),
    )
    ids = {each.id: at for at, each in enumerate(gone)}
    tags = [name for name in own_tags if metadata.refs[name].snapshot_id in ids]
    tags.sort(key=lambda name: ids[metadata.refs[name].snapshot_id])
    return Expiry(tuple(ids), tuple(tags), tuple(stale))


def _progress_ids(metadata: TableMetadata) -> set[int]:
    """Return the current snapshot and those back to the last converted one."""
    progress = target_layout.find_progress(metadata)
    found: set[int] = set()
    for snapshot in metadata.ancestors(MAIN):
        found.add(snapshot.id)
        if progress is None or snapshot.id == progress.snapshot.id:
            break
    return found


def _with_schema(metadata: TableMetadata, retained: set[int], staged: set[int]) -> set[int]:
    """Return a snapshot of a conversion with the current schema, if none such is retained.

    After a rollback to an older schema it is on no branch.
    """
    current = metadata.schema.get("schema-id")
    made = {
        each.id: each.timestamp_ms
        for each in metadata.snapshots.values()
        if target_layout.SOURCE_ID in each.summary
        and each.schema_id == current
        and each.id not in staged
    }
    return set() if not made or made.keys() & retained else {max(made, key=lambda id_: made[id_])}


def _retained(
    ancestors: Sequence[IcebergSnapshot], ref: Ref, metadata: TableMetadata, retention: Retention
) -> int:
    """Return how many of the newest snapshots of a branch are retained, without gaps."""
    if not retention.expires:
        return len(ancestors)
    last = retention.retain_last
    if last is None:
        last = _least_snapshots(metadata.properties.get(_MIN_SNAPSHOTS, "1"))
    limit = retention.now_ms if retention.older_than_ms is None else retention.older_than_ms
    if ref.max_age_ms is not None:
        limit = min(limit, retention.now_ms - ref.max_age_ms)
    young = [at for at, each in enumerate(ancestors, 1) if each.timestamp_ms >= limit]
    return max(last, ref.min_snapshots or 1, *young)


def _least_snapshots(value: str) -> int:
    found = whole_number(value, signed=True)
    if found is None:
        raise PlanError(
            f"{_MIN_SNAPSHOTS} of the target is {value[:40]!r}, not a number",
            hint="set the property to a number, or pass retain_last",
        )
    return found


@dataclass(frozen=True, eq=False)
class OwnFiles:
    """Files in a target's location that Iceberg or delvec wrote, and how many others there are."""

    files: pa.Table  # as `_SCHEMA` says; names are without folders
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
