"""Writes keys as delete files: ordinary equality-delete files, or vectors where those are smaller.

    keys ─ not eligible ───────────────────────────────> ordinary file
         └ eligible ─ the vector is larger ────────────> ordinary file
                    └ smaller ─ on a staging branch ───> vector
                              └ on any other branch ───> ordinary file, and the vector in the
                                                         snapshot's statistics file

Keys are eligible if the table property `write.delete.equality-vector.enabled` is true, the table
has format version 3, and they are non-negative values of one column that counts something. Which
form is smaller is measured: both are encoded, unless the vector cannot be the smaller one. Up to 1
KiB a vector is taken even so: the file of a few keys is mostly its footer, which is longer in
Puffin, and costs one request like any other; a reader is done with a vector sooner.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from delvec.iceberg.client.delete_files import VECTOR_SUFFIX
from delvec.iceberg.commits.branch_commit import NewStatistics, StatisticsBlob
from delvec.iceberg.deletes.delete_json import Scope, as_equality_delete, delete_json
from delvec.iceberg.deletes.equality_files import encode_files
from delvec.iceberg.deletes.key_frame import KEY_MEMORY, KeyFrame, opened_keys, write_frame
from delvec.iceberg.deletes.key_vectors import (
    DELETE_FILE,
    encode_key_vectors,
    least_vector_bytes,
    split_keys,
    vector_metrics,
    why_no_vector,
)
from delvec.report.figures import counted, size
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata
    from delvec.iceberg.deletes.equality_files import EncodedFile
    from delvec.iceberg.deletes.key_columns import KeyColumn
    from delvec.iceberg.deletes.key_vectors import SplitKeys
    from delvec.iceberg.deletes.keys import Keys
    from delvec.storage.uncommitted import UncommittedFiles
    from delvec.vector.puffin import PuffinFile

__all__ = ["VECTORS_ENABLED", "Scope", "WrittenDeletes", "data_location", "write_deletes"]

VECTORS_ENABLED: Final = "write.delete.equality-vector.enabled"
"""The table property that allows for Equality Delete Vectors."""

_LOG = logging.getLogger("delvec")
_SMALL: Final = 1024  # bytes of a vector that is taken without comparison
_SQL_NAMES: Final = {"long": "BIGINT", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP"}


@dataclass(frozen=True, eq=False)
class WrittenDeletes:
    """Delete files that are written and not committed yet.

    Attributes:
        delete_files: A JSON object for each, for `RowChange.delete_files`.
        statistics: The statistics file with the vectors of ordinary files, if one was written.
        keys: Distinct keys.
        nulls: How many of them have a null in some column.
        files: Ordinary files.
        vectors: Vectors, those in the statistics file included.
        file_bytes: The size of the ordinary files.
        vector_bytes: The size of the files of vectors.
        forms: Which form was taken, and why, in sentences.
        summary: Entries for the snapshot's summary.
        needs_staging: Whether stock readers cannot read the files: they are for a staging branch of
            delvec's alone.
    """

    delete_files: pa.Array
    statistics: NewStatistics | None = None
    keys: int = 0
    nulls: int = 0
    files: int = 0
    vectors: int = 0
    file_bytes: int = 0
    vector_bytes: int = 0
    forms: tuple[str, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    needs_staging: bool = False


def write_deletes(
    keys: Any,  # noqa: ANN401
    columns: Sequence[KeyColumn],
    table: LoadedTable,
    scope: Scope,
    *,
    staging: bool,
    uncommitted: UncommittedFiles,
    companions: bool = True,
) -> WrittenDeletes:
    """Write the files that delete rows by key; nothing is written for no keys.

    Files go to the table's data location, the statistics file to its metadata location. Keys of
    the driver take the memory of their files beside their own; those of a large DataFrame are
    written by executors, always as ordinary files.

    Args:
        keys: The keys, in any form that `opened_keys` takes.
        columns: The key columns.
        table: The table.
        scope: The data files that the deletes apply to.
        staging: Whether they are for a staging branch of delvec's, where vectors need no ordinary
            file beside them.
        uncommitted: Is told of each file before it is written. Its storage is the table's.
        companions: Whether ordinary files may have vectors beside them, in a statistics file.

    Raises:
        InvalidArgumentError: A key is not of the columns' types; see `opened_keys`.
        UnsupportedFeatureError: See `encode_files`.
    """
    writing = _Writing(table.metadata, scope, tuple(columns), uncommitted)
    with opened_keys(keys, columns, str(table.name)) as opened:
        described, count = _described(columns), counted(len(opened), "delete")
        _LOG.info("writing equality deletes on %s, %s", described, count)
        if isinstance(opened, KeyFrame):
            writing.add_written(opened, write_frame(opened, table))
        elif len(opened):
            reason = _why_no_vector(columns, table.metadata)
            if not staging and not companions:
                reason = "readers other than delvec use them"
            if reason is None:
                _write_smaller(writing, opened, staging=staging)
            else:
                writing.add_ordinary(opened, encode_files(opened), reason)
        return writing.written(len(opened), opened.nulls)


def data_location(metadata: TableMetadata) -> str:
    """Return the folder of a table's data and delete files."""
    properties = metadata.properties
    found = properties.get("write.data.path") or properties.get("write.folder-storage.path")
    return (found or f"{metadata.location.rstrip('/')}/data").rstrip("/")


def _metadata_location(metadata: TableMetadata) -> str:
    found = metadata.properties.get("write.metadata.path")
    return (found or f"{metadata.location.rstrip('/')}/metadata").rstrip("/")


def _described(columns: Sequence[KeyColumn]) -> str:
    named = ", ".join(
        f"{each.name!r} ({_SQL_NAMES.get(each.type, each.type.upper())})" for each in columns
    )
    return f"field {named}" if len(columns) == 1 else f"fields {named}"


def _why_no_vector(columns: Sequence[KeyColumn], metadata: TableMetadata) -> str | None:
    if metadata.properties.get(VECTORS_ENABLED, "").strip().lower() != "true":
        return f"the table property {VECTORS_ENABLED} is not true"
    return why_no_vector(columns, metadata.format_version)


def _write_smaller(writing: _Writing, keys: Keys, *, staging: bool) -> None:
    """Write eligible keys in the smaller form, and the others in an ordinary file."""
    split = split_keys(keys)
    ineligible = _ineligible(split)
    if not len(split.eligible):
        writing.add_ordinary(keys, encode_files(keys), ineligible)
        return
    ordinary = list(encode_files(split.eligible))
    parquet = sum(len(each.data) for each in ordinary)
    most, least = max(parquet, _SMALL), least_vector_bytes(split.eligible)
    vector = None
    if least <= most:
        vector = encode_key_vectors([split.eligible], writing.scope.spec_id)
        least = len(vector.data)
    if vector is None or least > most:
        word = "at least " if vector is None else ""
        reason = f"a vector would take {word}{size(least)}, more than their {size(parquet)}"
        whole = encode_files(keys) if len(split.rest) else ordinary
        writing.add_ordinary(keys, whole, reason)
        return
    _LOG.info("using an Equality Delete Vector (bitmap format)")
    if staging:
        writing.add_vector(split.eligible, vector, parquet)
    else:
        writing.add_companions(split.eligible, ordinary)
    if len(split.rest):
        writing.add_ordinary(split.rest, encode_files(split.rest), ineligible)


def _ineligible(split: SplitKeys) -> str:
    found = [
        f"{count:,} {what}"
        for count, what in ((split.negatives, "negative"), (split.nulls, "null"))
        if count
    ]
    return f"a vector holds no such keys: {' and '.join(found)}"


class _Writing:
    """Writes files into their places, and collects what is to be committed."""

    def __init__(
        self,
        metadata: TableMetadata,
        scope: Scope,
        columns: tuple[KeyColumn, ...],
        uncommitted: UncommittedFiles,
    ) -> None:
        self.scope = scope
        self._metadata, self._columns, self._uncommitted = metadata, columns, uncommitted
        self._entries: list[str] = []
        self._forms: list[str] = []
        self._statistics: NewStatistics | None = None
        self._needs_staging = False
        self._files = self._vectors = self._file_bytes = self._vector_bytes = 0

    def add_ordinary(self, keys: Keys, files: Iterable[EncodedFile], reason: str) -> None:
        """Write ordinary files of keys, and say why they are."""
        before, bytes_before = self._files, self._file_bytes
        for each in files:
            self._add_parquet(each)
        self._forms.append(
            f"{counted(len(keys), 'key')} in {counted(self._files - before, 'Parquet file')} of"
            f" {size(self._file_bytes - bytes_before)}: {reason}"
        )

    def add_written(self, keys: KeyFrame, data_files: pa.Array) -> None:
        """Add files of keys that executors wrote, described as data files."""
        for each in data_files.to_pylist():
            entry = as_equality_delete(each, self._columns, self.scope)
            described = json.loads(entry)
            path = local_path(described["file-path"])
            self._uncommitted.add_elsewhere(*self._uncommitted.storage.open_elsewhere(path))
            self._entries.append(entry)
            self._file_bytes += described["file-size-in-bytes"]
        self._files += len(data_files)
        self._forms.append(
            f"{counted(len(keys), 'key')} in {counted(len(data_files), 'Parquet file')} of"
            f" {size(self._file_bytes)}, written by executors: they take more memory than"
            f" {KEY_MEMORY} allows the driver"
        )

    def add_vector(self, keys: Keys, vector: PuffinFile, parquet: int) -> None:
        """Write a vector that stands in the manifest."""
        path = self._write(data_location(self._metadata), VECTOR_SUFFIX, vector.data)
        length = len(vector.data)
        metrics = [vector_metrics(keys)]
        entry = delete_json(path, length, len(keys), self._columns, self.scope, metrics)
        self._entries.append(entry)
        self._needs_staging = True
        self._vectors += 1
        self._vector_bytes += length
        self._say_vector(keys, path, length, parquet)

    def add_companions(self, keys: Keys, files: Sequence[EncodedFile]) -> None:
        """Write ordinary files of keys, and a statistics file with a vector for each of them."""
        paths = [self._add_parquet(each) for each in files]
        vector = encode_key_vectors(
            [keys.slice(each.start, each.rows) for each in files],
            self.scope.spec_id,
            [{DELETE_FILE: path} for path in paths],
        )
        path = self._write(_metadata_location(self._metadata), VECTOR_SUFFIX, vector.data)
        last = vector.blobs[-1]
        self._statistics = NewStatistics(
            path,
            len(vector.data),
            len(vector.data) - last.offset - last.length,
            tuple(
                StatisticsBlob(blob.type, blob.fields, dict(blob.properties))
                for blob in vector.blobs
            ),
        )
        self._vectors += len(files)
        self._vector_bytes += len(vector.data)
        parquet = sum(len(each.data) for each in files)
        self._say_vector(keys, path, len(vector.data), parquet, beside=len(files))

    def written(self, keys: int, nulls: int) -> WrittenDeletes:
        """Return what was written."""
        return WrittenDeletes(
            pa.array(self._entries, pa.string()),
            self._statistics,
            keys,
            nulls,
            self._files,
            self._vectors,
            self._file_bytes,
            self._vector_bytes,
            tuple(self._forms),
            {
                "delvec.equality-delete-keys": str(keys),
                "delvec.equality-delete-files": str(self._files),
                "delvec.equality-delete-vectors": str(self._vectors),
                "delvec.edv-size-bytes": str(self._vector_bytes),
            },
            self._needs_staging,
        )

    def _add_parquet(self, file: EncodedFile) -> str:
        path = self._write(data_location(self._metadata), "-deletes.parquet", file.data)
        length = len(file.data)
        entry = delete_json(path, length, file.rows, self._columns, self.scope, file.metrics)
        self._entries.append(entry)
        self._files += 1
        self._file_bytes += length
        _LOG.info("equality-delete file: %s (%s)", path, size(length))
        return path

    def _say_vector(
        self, keys: Keys, path: str, length: int, parquet: int, *, beside: int = 0
    ) -> None:
        form = f"{counted(len(keys), 'key')} in an Equality Delete Vector of {size(length)}"
        if beside:
            form += (
                f" beside {counted(beside, 'Parquet file')} of {size(parquet)}, which readers other"
                " than delvec use"
            )
        else:
            form += f": a Parquet file of them takes {size(parquet)}"
            if length > parquet:
                form += f", and up to {size(_SMALL)} a vector is taken all the same"
        self._forms.append(form)
        _LOG.info("EDV file: %s (%s vs %s as Parquet)", path, size(length), size(parquet))

    def _write(self, folder: str, suffix: str, data: bytes | memoryview) -> str:
        """Write a file under a new name; return its path, with the folder as the table names it."""
        name = f"{uuid4()}{suffix}"
        table = self._uncommitted.storage
        whole, root = f"{local_path(folder)}/{name}", f"{table.root.rstrip('/')}/"
        if whole.startswith(root):
            storage, key = table, whole[len(root) :]
            self._uncommitted.add(key)
        else:
            storage, key = table.open_elsewhere(whole)
            self._uncommitted.add_elsewhere(storage, key)
        storage.write(key, data)
        return f"{folder}/{name}"
