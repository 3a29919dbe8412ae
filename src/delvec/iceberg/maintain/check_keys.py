"""Whether equality deletes are what the manifests say, and whether readers can use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.documents import parse_json
from delvec.errors import DelvecError, FormatError, StorageError
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.failures import explained
from delvec.iceberg.deletes.key_vectors import DELETE_FILE, read_companion, read_key_vector
from delvec.iceberg.deletes.read_schema import key_types, with_dropped_keys
from delvec.iceberg.maintain.key_file_metrics import (
    KeyFileMetrics,
    columns_by_id,
    inner_ids,
    stores,
)
from delvec.parquet.readable import open_parquet
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded
from delvec.storage.listed_files import local_path, open_listed_file
from delvec.storage.parallel import in_order
from delvec.vector.blobs import EQUALITY_DELETE_VECTOR

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.report.findings import Findings
    from delvec.storage import Storage

__all__ = ["Companion", "check_keys", "companions_of"]

_FILES_AT_ONCE: Final = 8
_IN_FLIGHT: Final = 64 << 20
_FILE: Final = "equality-delete-file"
_VECTOR: Final = "equality-delete-vector"
_BESIDE: Final = "vector-beside-delete-file"


@dataclass(frozen=True)
class Companion:
    """A statistics file with the vector of an ordinary equality-delete file."""

    path: str
    size: int


def companions_of(
    table: LoadedTable, deletes: Sequence[EqualityDeleteFile]
) -> dict[str, Companion]:
    """Return the statistics files with vectors of equality-delete files, by the latter's path."""
    with explained(str(table.name)):
        text = iceberg_view(table.spark).TableMetadataParser.toJson(table.current)
    live = {each.path for each in deletes}
    found = {}
    for statistics in parse_json(text, "the metadata of the table").get("statistics", ()):
        for blob in statistics.get("blob-metadata", ()):
            path = blob.get("properties", {}).get(DELETE_FILE)
            if blob["type"] == EQUALITY_DELETE_VECTOR and path in live:
                size = statistics["file-size-in-bytes"]
                found[path] = Companion(statistics["statistics-path"], size)
    return found


def check_keys(
    table: LoadedTable,
    storage: Storage,
    deletes: Sequence[EqualityDeleteFile],
    companions: Mapping[str, Companion],
    unusable: Collection[str],
    findings: Findings,
    *,
    staging: bool,
) -> None:
    """Read all equality deletes, and compare them with the manifests.

    Eight files at a time are read, in batches of a million keys.

    Args:
        table: The table.
        storage: Its location.
        deletes: The equality deletes of a snapshot.
        companions: Vectors of ordinary files.
        unusable: Paths of files that are known to be damaged or gone.
        findings: Gets what is found.
        staging: Whether the snapshot is of a staging branch of delvec's, which may have vectors.
    """
    known = _types(table, deletes)

    def work(file: EqualityDeleteFile) -> list[Finding]:
        if file.is_vector:
            found = [] if staging else [_unreadable(file)]
            return found if file.path in unusable else [*found, *_vector(storage, file)]
        if file.path in unusable:
            return []
        types = {field_id: known.get(field_id) for field_id in file.equality_ids}
        return list(_ordinary(storage, file, types, companions.get(file.path)))

    items = ((each, each.size) for each in deletes)
    for found in in_order(work, items, threads=_FILES_AT_ONCE, budget=_IN_FLIGHT):
        findings.extend(found)


def _types(table: LoadedTable, deletes: Sequence[EqualityDeleteFile]) -> dict[int, str]:
    """Return the types of all key columns that some schema of the table has, by field id."""
    metadata, known = table.metadata, {}
    for field_id in {each for delete in deletes for each in delete.equality_ids}:
        try:
            wide = with_dropped_keys(metadata, metadata.schema, [field_id], str(table.name))
        except DelvecError:
            continue
        known[field_id] = key_types(wide)[field_id]
    return known


def _unreadable(file: EqualityDeleteFile) -> Finding:
    return Finding(
        "error",
        _VECTOR,
        file.path,
        "an equality delete vector is not on a staging branch of delvec's: stock readers fail",
        worded("{} makes it an ordinary file", call("consolidate_deletes")),
    )


def _vector(storage: Storage, file: EqualityDeleteFile) -> Iterator[Finding]:
    try:
        read_key_vector(storage, file)
    except (FormatError, StorageError) as error:
        yield Finding("error", _VECTOR, file.path, error.describe(), error.hint)


def _ordinary(
    storage: Storage,
    file: EqualityDeleteFile,
    types: Mapping[int, str | None],
    companion: Companion | None,
) -> Iterator[Finding]:
    if file.file_format != "parquet":
        message = f"not opened: it is a file of format {file.file_format}"
        yield Finding("info", _FILE, file.path, message)
        return
    try:
        place, key = open_listed_file(storage, local_path(file.path))
        with place.open_input(key, file.size) as source, open_parquet(source) as parquet:
            found = list(_structure(parquet, file, types))
            yield from found
            if found:
                return
            metrics = KeyFileMetrics.of(parquet, file, types, has_numbers=companion is not None)
    except (DelvecError, pa.ArrowException, OSError) as error:
        described = error.describe() if isinstance(error, DelvecError) else str(error)
        message = f"it cannot be read as Parquet: {described}"
        yield Finding("error", _FILE, file.path, message)
        return
    for message in metrics.problems(file):
        yield Finding("error", _FILE, file.path, message)
    if companion is not None:
        yield from _beside(storage, file, companion, metrics)


def _structure(
    parquet: pq.ParquetFile, file: EqualityDeleteFile, types: Mapping[int, str | None]
) -> Iterator[Finding]:
    """Yield what is wrong about the columns and the number of rows."""
    columns, inner = columns_by_id(parquet.schema_arrow), inner_ids(parquet.schema_arrow)
    for field_id, kind in types.items():
        if field_id in inner:
            message = (
                f"its key, field id {field_id}, is inside of a struct: stock readers delete every"
                " row by it, unless a query selects the struct"
            )
            yield Finding("warning", _FILE, file.path, message, "delete by other columns")
        elif field_id not in columns:
            yield Finding(
                "error",
                _FILE,
                file.path,
                f"it has no column with field id {field_id}: readers take other columns for keys,"
                " and delete other rows",
                "delete the keys anew, and remove the file",
            )
        elif kind is None:
            message = f"no schema of the table has its key column, field id {field_id}"
            yield Finding("error", _FILE, file.path, message)
        elif not stores(columns[field_id].type, kind):
            have = columns[field_id].type
            message = f"its key column, field id {field_id}, is {have}: expected {kind}"
            yield Finding("error", _FILE, file.path, message)
    rows = parquet.metadata.num_rows
    if rows != file.record_count:
        message = f"the number of keys differs: expected {file.record_count}, found {rows}"
        yield Finding("error", _FILE, file.path, message)


def _beside(
    storage: Storage, file: EqualityDeleteFile, companion: Companion, metrics: KeyFileMetrics
) -> Iterator[Finding]:
    """Yield what is wrong about the vector of an ordinary file; other readers never use it."""
    hint = worded(
        "{} or a compaction of the data files does away with it", call("consolidate_deletes")
    )
    try:
        keys: Any = read_companion(storage, companion.path, companion.size, file)
    except FormatError as error:
        yield Finding("error", _BESIDE, companion.path, error.describe(), hint)
        return
    except StorageError as error:
        yield Finding("warning", _BESIDE, companion.path, error.describe())
        return
    if keys is None:
        message = f"the statistics file has no vector of {file.path}, which its metadata names"
        yield Finding("warning", _BESIDE, companion.path, message)
    elif metrics.has_null_keys or keys != metrics.numbers:
        message = f"the vector does not have the keys of {file.path}"
        yield Finding("error", _BESIDE, companion.path, message, hint)
