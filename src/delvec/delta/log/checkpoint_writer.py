"""Writing checkpoints: the state of a version in one file, so that readers begin there.

    <version>.checkpoint.parquet           by default
    <version>.checkpoint.<uuid>.parquet    with `delta.checkpointPolicy` v2: small actions, and one
                                           sidecar in `_sidecars` with those of files

Commits before a checkpoint stay. Memory grows with the bytes of the new checkpoint (some 100 for
each file, and its statistics), with the keys of live files, and with the largest piece of the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.delta.log.actions import REMOVE, STRING_MAP
from delvec.delta.log.checkpoint_reader import AddForm, checkpoint_adds, sidecar_keys
from delvec.delta.log.paths import LAST_CHECKPOINT, SIDECARS, canonicalize_paths, checkpoint_key
from delvec.delta.log.replay import open_part
from delvec.delta.log.segment import Checkpoint, list_log, read_last_checkpoint
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Property, interval_ms, retention_ms
from delvec.errors import FormatError, ObjectExistsError
from delvec.storage import Storage

_DIFFERENT: Final = re.compile(
    r"\.(path|stats|size|modificationTime|baseRowId)$|\.m(in|ax)Values\."
)
_MAPS: Final = ("options", "configuration", "tags")
_SMALL: Final = {
    "txn": pa.struct(
        [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", STRING_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
}
_V2_ACTIONS: Final = {
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", STRING_MAP)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", STRING_MAP),
        ]
    ),
}


def write_checkpoint(snapshot: Snapshot, *, one_entry_each: bool = False) -> None:
    """Write a checkpoint of a version, and the hint at it; one that is there already stays.

    Files are identified by path and vector, no row count is lost, and tombstones stay until
    `delta.deletedFileRetentionDuration` is over. Nothing is cleaned up: the feature
    checkpointProtection protects versions older than the newest, which this is meant for.

    Readers that do not know vectors identify files by path alone, and may lose a live file that has
    a tombstone with a vector as well, as after RESTORE: these are left out where readers need not.
    """
    storage, version = snapshot.storage, snapshot.version
    if any(found.version == version for found in list_log(storage, version).checkpoints):
        return
    is_v2 = (
        snapshot.metadata.configuration.get(Property.CHECKPOINT_POLICY, "").lower() == "v2"
        and "v2Checkpoint" in snapshot.protocol.features
    )
    try:
        by_path = one_entry_each or not snapshot.protocol.has_vectors
        written = (_v2 if is_v2 else _classic)(snapshot, by_path=by_path)
    except ObjectExistsError:
        return  # another writer was faster, with the same state
    _hint(storage, version, written)


def write_hint(storage: Storage, checkpoint: Checkpoint) -> None:
    """Point `_last_checkpoint` to a checkpoint that is there; its files are opened."""
    rows, keys = 0, list(checkpoint.keys)
    while keys:
        key = keys.pop()
        part = open_part(storage, key)
        rows += part.line_count
        keys += sidecar_keys(part)
    hint = {"version": checkpoint.version, "size": rows}
    if len(checkpoint.keys) > 1:
        hint["parts"] = len(checkpoint.keys)
    storage.write(LAST_CHECKPOINT, json.dumps(hint, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class _Written:
    rows: int
    size: int
    adds: int


def _classic(snapshot: Snapshot, *, by_path: bool) -> _Written:
    form = AddForm(snapshot.metadata)
    file = _File({**_SMALL, "add": form.type, "remove": REMOVE})
    file.small(_small_actions(snapshot))
    file.of_files(snapshot, form, by_path=by_path)
    return file.put(snapshot.storage, checkpoint_key(snapshot.version))


def _v2(snapshot: Snapshot, *, by_path: bool) -> _Written:
    """Write a v2 checkpoint with one sidecar.

    Its name has a UUID, as delta-spark's, so that other readers do not take it for a classic one.
    """
    form = AddForm(snapshot.metadata)
    of_files = {"add": form.type, "remove": REMOVE}
    sidecar = _File(of_files)
    sidecar.of_files(snapshot, form, by_path=by_path)
    actions = [{"checkpointMetadata": {"version": snapshot.version}}, *_small_actions(snapshot)]
    part = _Written(0, 0, 0)
    if sidecar.rows:
        name = f"{uuid4()}.parquet"
        part = sidecar.put(snapshot.storage, f"{SIDECARS}/{name}")
        entry = {"path": name, "sizeInBytes": part.size, "modificationTime": int(time() * 1000)}
        actions.append({"sidecar": entry})
    # delta-spark looks for the columns of files here too, which are empty.
    manifest = _File(_SMALL | of_files | _V2_ACTIONS)
    manifest.small(actions)
    top = manifest.put(snapshot.storage, checkpoint_key(snapshot.version, str(uuid4())))
    return _Written(part.rows + top.rows, part.size + top.size, part.adds)


class _File:
    """A Parquet file of actions, built in memory since it must appear atomically."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self._schema, self._sink = pa.schema(columns), pa.BufferOutputStream()
        # Paths and bounds are all different: a dictionary would not help.
        equal = [leaf for leaf in _leaves(self._schema) if not _DIFFERENT.search(leaf)]
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, compression="snappy", use_dictionary=equal
        )
        self.rows = self.adds = 0

    def small(self, actions: Sequence[dict[str, Any]]) -> None:
        try:
            rows = [{kind: _with_pairs(body) for kind, body in each.items()} for each in actions]
            table = pa.Table.from_pylist(rows, self._schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FormatError(
                "an action of the log has a field of the wrong type",
                expected="what a checkpoint can hold",
                found=" ".join(str(error).split())[:200],
            ) from error
        self._write(table)

    def of_files(self, snapshot: Snapshot, form: AddForm, *, by_path: bool) -> None:
        for adds in checkpoint_adds(snapshot, form):
            self._column("add", adds)
            self.adds += len(adds)
        for removes in _unexpired(snapshot, by_path=by_path):
            self._column("remove", removes)

    def put(self, storage: Storage, key: str) -> _Written:
        """Store the file, unless it exists, and check that it arrived whole."""
        self._writer.close()
        data = self._sink.getvalue()
        storage.write_if_absent(key, memoryview(data))
        with storage.open_input(key, data.size) as source:
            found = pq.read_metadata(pa.PythonFile(source, mode="r")).num_rows
        if found != self.rows:
            raise FormatError(
                "a checkpoint did not arrive whole",
                path=storage.uri_of(key),
                expected=f"{self.rows} actions",
                found=found,
                hint="delete the file; all commits are still there",
            )
        return _Written(self.rows, data.size, self.adds)

    def _column(self, name: str, values: pa.StructArray) -> None:
        columns = [
            values if field.name == name else pa.nulls(len(values), field.type)
            for field in self._schema
        ]
        self._write(pa.table(columns, schema=self._schema))

    def _write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._writer.write_table(table)
            self.rows += table.num_rows


def _small_actions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return all actions but those of files, without transaction ids that have expired.

    As for delta-spark, an id without a time has expired; without the property none expires.
    """
    actions = snapshot.small_actions()
    length = interval_ms(snapshot.metadata.configuration.get(Property.TRANSACTION_RETENTION, ""))
    if length is None or length < 0:
        return actions
    oldest = int(time() * 1000) - length
    ids = [(each, each.get("txn")) for each in actions]
    return [each for each, txn in ids if txn is None or (txn.get("lastUpdated") or 0) > oldest]


def _unexpired(snapshot: Snapshot, *, by_path: bool) -> Iterator[pa.StructArray]:
    retention = retention_ms(snapshot.metadata.configuration, Property.DELETED_FILE_RETENTION)
    # An interval that cannot be parsed keeps all: too many tombstones do no harm.
    oldest = -1 if retention is None else int(time() * 1000) - retention
    for removes in snapshot.tombstones():
        when = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
        kept = removes.filter(pc.greater(when, oldest))
        if by_path and pc.struct_field(kept, "deletionVector").null_count < len(kept):
            paths = canonicalize_paths(pc.struct_field(kept, "path"), snapshot.table)
            kept = kept.filter(pc.invert(pc.is_in(paths, value_set=snapshot.files.paths)))
        fields = {field.name: pc.struct_field(kept, [field.name]) for field in REMOVE}
        fields["dataChange"] = pa.repeat(pa.scalar(False), len(kept))
        yield pa.StructArray.from_arrays(list(fields.values()), fields=list(REMOVE))


def _hint(storage: Storage, version: int, written: _Written) -> None:
    """Write `_last_checkpoint`, unless it points to a later version."""
    known = read_last_checkpoint(storage)
    if known is not None and known > version:
        return
    hint = {
        "version": version,
        "size": written.rows,
        "sizeInBytes": written.size,
        "numOfAddFiles": written.adds,
    }
    storage.write(LAST_CHECKPOINT, json.dumps(hint, separators=(",", ":")).encode())


def _with_pairs(value: Any) -> Any:  # noqa: ANN401
    """Turn what is a map in a checkpoint into the pairs that Arrow takes."""
    if not isinstance(value, dict):
        return value
    return {
        name: list(dict(item or ()).items())
        if name in _MAPS and not isinstance(item, str)
        else _with_pairs(item)
        for name, item in value.items()
    }


def _leaves(kind: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """Yield the names of the columns, as Parquet has them."""
    for field in kind:
        name = f"{prefix}{field.name}"
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{name}.")
        elif pa.types.is_map(field.type):
            yield from (f"{name}.key_value.{part}" for part in ("key", "value"))
        elif pa.types.is_list(field.type):
            yield f"{name}.list.element"
        else:
            yield name
