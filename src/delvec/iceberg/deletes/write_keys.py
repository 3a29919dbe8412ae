"""Writing keys as delete files: ordinary equality-delete files, or vectors where those are smaller.

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
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from math import isfinite
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import functions as F

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.file_scan import write_key_files
from delvec.iceberg.client.files import VECTOR_SUFFIX, snapshot_table
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.commit import branch_commit
from delvec.iceberg.deletes import equality_files, key_vectors
from delvec.iceberg.deletes.key_columns import key_types
from delvec.report.format import format_count, format_size
from delvec.report.hints import call, format_hint
from delvec.report.rendering import doc, documented, required
from delvec.spark.input.key_values import KeyColumn, convert
from delvec.spark.input.keys import KEY_MEMORY, KeyFrame, Keys, read_keys
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector.puffin import PuffinFile

TRANSFORMED: Final = {"bucket": "int", "year": "int", "month": "int", "day": "date", "hour": "int"}
"""What a transform makes of a value, where it is not of the column's own type."""
_FILE_SIZE: Final = 128 << 20  # of Arrow columns; a fraction of it as Parquet
_LOG = logging.getLogger("delvec")
_SMALL: Final = 1024  # bytes of a vector that is taken without comparison
# The properties that name other folders than those in the table's location.
_FOLDERS: Final = {
    "data": ("write.data.path", "write.folder-storage.path"),
    "metadata": ("write.metadata.path",),
}
_SQL_NAMES: Final = {"long": "BIGINT", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP"}


@documented(eq=False)
class WrittenDeletes:
    """Delete files that are written and not committed yet."""

    delete_files: pa.Array = required("A JSON object for each, for `RowChange.delete_files`.")
    statistics: branch_commit.NewStatistics | None = doc(
        "The file with the vectors of ordinary files, if any.", None
    )
    keys: int = doc("Distinct keys.", 0)
    nulls: int = doc("How many of them have a null in some column.", 0)
    files: int = doc("Ordinary files.", 0)
    vectors: int = doc("Vectors, those in the statistics file included.", 0)
    file_bytes: int = doc("The size of the ordinary files.", 0)
    vector_bytes: int = doc("The size of the files of vectors.", 0)
    forms: tuple[str, ...] = doc("Which form was taken, and why, in sentences.", ())
    summary: Mapping[str, str] = doc("Entries for the snapshot's summary.", dict)
    needs_staging: bool = doc(
        "Whether stock readers cannot read the files: they are for a staging branch alone.", False
    )


def scope_of(
    table: LoadedTable, branch: str, partition: Mapping[str, object] | None
) -> tuple[LoadedTable, equality_files.Scope]:
    """Return the scope of a delete, and the table with the partition spec that it needs."""
    if partition is None:
        table, spec_id = branch_commit.with_unpartitioned_spec(table)
        return table, equality_files.Scope(spec_id)
    spec = table.metadata.spec
    fields = {field["name"]: field for field in spec["fields"] if field["transform"] != "void"}
    if not fields:
        raise InvalidArgumentError(
            f"{table.name} is not partitioned", hint="omit partition: the delete is for all rows"
        )
    if partition.keys() != fields.keys():
        raise InvalidArgumentError(
            f"partition names {', '.join(map(str, partition)) or 'nothing'},"
            f" expected {', '.join(fields)}",
            hint=format_hint(
                "give the value of each partition field, as {} shows it", call("files")
            ),
        )
    _require_one_spec(table, branch)
    values = [_value(table, field, partition.get(field["name"])) for field in spec["fields"]]
    shown = ", ".join(f"{name}={value}" for name, value in partition.items())
    return table, equality_files.Scope(spec["spec-id"], json.dumps(values), shown)


def write_deletes(
    keys: Any,  # noqa: ANN401
    columns: Sequence[KeyColumn],
    table: LoadedTable,
    scope: equality_files.Scope,
    *,
    staging: bool,
    uncommitted: UncommittedFiles,
    companions: bool = True,
) -> WrittenDeletes:
    """Write the files that delete rows by key; nothing is written for no keys.

    Files go to the table's data location, the statistics file to its metadata location. Keys of
    the driver take the memory of their files beside their own; those of a large DataFrame are
    written by executors, always as ordinary files.
    """
    writing = _Writing(table.metadata, scope, tuple(columns), uncommitted)
    with read_keys(keys, columns, str(table.name)) as opened:
        described, count = _described(columns), format_count(len(opened), "delete")
        _LOG.info("writing equality deletes on %s, %s", described, count)
        if isinstance(opened, KeyFrame):
            writing.add_written(opened, write_frame(opened, table))
        elif len(opened):
            reason = key_vectors.why_no_vector(columns, table.metadata)
            if not staging and not companions:
                reason = "readers other than delvec use them"
            if reason is None:
                _write_smaller(writing, opened, staging=staging)
            else:
                writing.add_ordinary(opened, equality_files.encode_files(opened), reason)
        return writing.written(len(opened), opened.nulls)


def write_frame(frame: KeyFrame, table: LoadedTable) -> pa.Array:
    """Write keys as Parquet files by executors, sorted; return the JSON of each, as a data file.

    Null keys of a required column are omitted, as by `encode_files`.
    """
    rows, names = frame.rows, frame.rows.columns
    fields, wanted = [], []
    for name, column in zip(names, frame.columns, strict=True):
        if column.type.startswith("fixed"):
            raise equality_files.too_many_fixed(
                column, frame.count, "delete by a condition instead"
            )
        if column.required:
            rows = rows.where(F.col(name).isNotNull())
        kind = {"required": False, "type": column.type}
        fields.append({"id": column.id, "name": column.name, **kind})
        wanted.append(F.col(name).alias(column.name))
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    # Not as many files as there are cores: each is opened by all readers.
    ranges = rows.repartitionByRange(-(-frame.size // _FILE_SIZE), *names)
    return write_key_files(table, schema, ranges.sortWithinPartitions(*names).select(*wanted))


class _Writing:
    """Writes files into their places, and collects what is to be committed."""

    def __init__(
        self,
        metadata: TableMetadata,
        scope: equality_files.Scope,
        columns: tuple[KeyColumn, ...],
        uncommitted: UncommittedFiles,
    ) -> None:
        self.scope = scope
        self._metadata, self._columns, self._uncommitted = metadata, columns, uncommitted
        self._entries: list[str] = []
        self._forms: list[str] = []
        self._statistics: branch_commit.NewStatistics | None = None
        self._needs_staging = False
        self._files = self._vectors = self._file_bytes = self._vector_bytes = 0

    def add_ordinary(
        self, keys: Keys, files: Iterable[equality_files.EncodedFile], reason: str
    ) -> None:
        """Write ordinary files of keys, and say why they are."""
        before, bytes_before = self._files, self._file_bytes
        for each in files:
            self._add_parquet(each)
        self._forms.append(
            f"{format_count(len(keys), 'key')} in"
            f" {format_count(self._files - before, 'Parquet file')} of"
            f" {format_size(self._file_bytes - bytes_before)}: {reason}"
        )

    def add_written(self, keys: KeyFrame, data_files: pa.Array) -> None:
        """Add files of keys that executors wrote, described as data files."""
        for each in data_files.to_pylist():
            entry = equality_files.as_equality_delete(each, self._columns, self.scope)
            described = json.loads(entry)
            path = local_path(described["file-path"])
            self._uncommitted.add_elsewhere(*self._uncommitted.storage.open_elsewhere(path))
            self._entries.append(entry)
            self._file_bytes += described["file-size-in-bytes"]
        self._files += len(data_files)
        self._forms.append(
            f"{format_count(len(keys), 'key')} in"
            f" {format_count(len(data_files), 'Parquet file')} of"
            f" {format_size(self._file_bytes)}, written by executors: they take more memory than"
            f" {KEY_MEMORY} allows the driver"
        )

    def add_vector(self, keys: Keys, vector: PuffinFile, parquet: int) -> None:
        """Write a vector that stands in the manifest."""
        path, length = self._write("data", VECTOR_SUFFIX, vector.data), len(vector.data)
        self._add_entry(path, length, len(keys), [key_vectors.vector_metrics(keys)])
        self._needs_staging = True
        self._vectors += 1
        self._vector_bytes += length
        self._say_vector(keys, path, length, parquet)

    def add_companions(self, keys: Keys, files: Sequence[equality_files.EncodedFile]) -> None:
        """Write ordinary files of keys, and a statistics file with a vector for each of them."""
        paths = [self._add_parquet(each) for each in files]
        vector = key_vectors.encode_key_vectors(
            [keys.slice(each.start, each.rows) for each in files],
            self.scope.spec_id,
            [{key_vectors.DELETE_FILE: path} for path in paths],
        )
        path, length = self._write("metadata", VECTOR_SUFFIX, vector.data), len(vector.data)
        last = vector.blobs[-1]
        footer = length - last.offset - last.length
        self._statistics = branch_commit.NewStatistics(path, length, footer, vector.blobs)
        self._vectors += len(files)
        self._vector_bytes += length
        parquet = sum(len(each.data) for each in files)
        self._say_vector(keys, path, length, parquet, beside=len(files))

    def written(self, keys: int, nulls: int) -> WrittenDeletes:
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

    def _add_parquet(self, file: equality_files.EncodedFile) -> str:
        path, length = self._write("data", "-deletes.parquet", file.data), len(file.data)
        self._add_entry(path, length, file.rows, file.metrics)
        self._files += 1
        self._file_bytes += length
        _LOG.info("equality-delete file: %s (%s)", path, format_size(length))
        return path

    def _add_entry(
        self, path: str, size: int, rows: int, metrics: Sequence[equality_files.ColumnMetrics]
    ) -> None:
        self._entries.append(
            equality_files.delete_json(path, size, rows, self._columns, self.scope, metrics)
        )

    def _say_vector(
        self, keys: Keys, path: str, length: int, parquet: int, *, beside: int = 0
    ) -> None:
        size, other = format_size(length), format_size(parquet)
        form = f"{format_count(len(keys), 'key')} in an Equality Delete Vector of {size}"
        if beside:
            files = format_count(beside, "Parquet file")
            form += f" beside {files} of {other}, which readers other than delvec use"
        else:
            form += f": a Parquet file of them takes {other}"
            if length > parquet:
                form += f", and up to {format_size(_SMALL)} a vector is taken all the same"
        self._forms.append(form)
        _LOG.info("EDV file: %s (%s vs %s as Parquet)", path, size, other)

    def _write(self, kind: str, suffix: str, data: bytes | memoryview) -> str:
        """Write a file under a new name; return its path, with the folder as the table names it."""
        places = (self._metadata.properties.get(each) for each in _FOLDERS[kind])
        usual = f"{self._metadata.location.rstrip('/')}/{kind}"
        folder = next(filter(None, places), usual).rstrip("/")
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


def _write_smaller(writing: _Writing, keys: Keys, *, staging: bool) -> None:
    """Write eligible keys in the smaller form, and the others in an ordinary file."""
    split = key_vectors.split_keys(keys)
    kinds = {"negative": split.negatives, "null": split.nulls}
    found = [f"{count:,} {what}" for what, count in kinds.items() if count]
    ineligible = f"a vector holds no such keys: {' and '.join(found)}"
    if not len(split.eligible):
        writing.add_ordinary(keys, equality_files.encode_files(keys), ineligible)
        return
    ordinary = list(equality_files.encode_files(split.eligible))
    parquet = sum(len(each.data) for each in ordinary)
    most, least = max(parquet, _SMALL), key_vectors.least_vector_bytes(split.eligible)
    vector = None
    if least <= most:
        vector = key_vectors.encode_key_vectors([split.eligible], writing.scope.spec_id)
        least = len(vector.data)
    if vector is None or least > most:
        word = "at least " if vector is None else ""
        sizes = format_size(least), format_size(parquet)
        reason = f"a vector would take {word}{sizes[0]}, more than their {sizes[1]}"
        whole = equality_files.encode_files(keys) if len(split.rest) else ordinary
        writing.add_ordinary(keys, whole, reason)
        return
    _LOG.info("using an Equality Delete Vector (bitmap format)")
    if staging:
        writing.add_vector(split.eligible, vector, parquet)
    else:
        writing.add_companions(split.eligible, ordinary)
    if len(split.rest):
        writing.add_ordinary(split.rest, equality_files.encode_files(split.rest), ineligible)


def _described(columns: Sequence[KeyColumn]) -> str:
    named = ", ".join(
        f"{each.name!r} ({_SQL_NAMES.get(each.type, each.type.upper())})" for each in columns
    )
    return f"field {named}" if len(columns) == 1 else f"fields {named}"


def _require_one_spec(table: LoadedTable, branch: str) -> None:
    head = table.metadata.head(branch) or table.metadata.head()
    if head is None or len(table.metadata.specs) == 1:
        return
    files = snapshot_table(table, "files", head.id).where("content = 0")
    other = files.where(F.col("spec_id") != table.metadata.spec["spec-id"]).limit(1).count()
    if other:
        raise UnsupportedFeatureError(
            f"branch {branch} of {table.name} has data files of an earlier partition spec, which a"
            " delete of one partition would not apply to",
            feature="deletes of one partition across partition specs",
            hint="omit partition: the delete is then for all partitions",
        )


def _value(table: LoadedTable, field: Mapping[str, Any], given: object) -> object:
    """Return a partition value as Iceberg's JSON has it."""
    transform = field["transform"].partition("[")[0]
    if transform == "void":
        return None
    kind = TRANSFORMED.get(transform) or key_types(table.metadata.schema)[field["source-id"]]
    if kind in ("float", "double"):  # no type of keys, but of partitions
        if given is None or (isinstance(given, int | float) and isfinite(given)):
            return None if given is None else float(given)
        raise InvalidArgumentError(f"{given!r} is not a value of {field['name']}, which is {kind}")
    column = KeyColumn(field["field-id"], field["name"], kind, required=False)
    if kind == "date" and isinstance(given, str):  # a day as `files()` shows it
        try:
            given = date.fromisoformat(given)
        except ValueError as error:
            raise InvalidArgumentError(
                f"{given!r} is not a value of {field['name']}, which is a date",
                hint="write 2026-01-31",
            ) from error
    value = convert([given], column)[0].as_py()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
