"""Whether equality deletes are what the manifests say, and whether readers can use them.

Planners skip a delete whose bounds or null counts exclude the keys of a data file: wrong ones make
deleted rows reappear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import gt, lt
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.errors import DelvecError, FormatError, StorageError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes.key_columns import FIELD_ID, add_dropped_key_columns, key_types
from delvec.iceberg.deletes.key_vectors import DELETE_FILE, read_companion, read_key_vector
from delvec.parquet.readable import open_parquet
from delvec.report.findings import Finding, Findings
from delvec.report.hints import call, format_hint
from delvec.spark.input.key_values import arrow_type
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, open_listed_file
from delvec.storage.parallel import map_in_order
from delvec.vector.bitmap import Bitmap

_BATCH: Final = 1 << 20  # keys
_UNORDERED: Final = ("uuid", "float", "double")  # engines compare them in different ways
_FILES_AT_ONCE: Final = 8
_IN_FLIGHT: Final = 64 << 20
_FILE: Final = "equality-delete-file"
_VECTOR: Final = "equality-delete-vector"
_BESIDE: Final = "vector-beside-delete-file"


def check_keys(
    table: LoadedTable,
    storage: Storage,
    deletes: Sequence[EqualityDeleteFile],
    unusable: Collection[str],
    findings: Findings,
    *,
    staging: bool,
) -> int:
    """Read all equality deletes, and compare them with the manifests.

    Eight files at a time are read, in batches of a million keys. Returns how many of them have a
    vector in a statistics file.
    """
    # The types of all key columns that some schema of the table has, by field id.
    metadata = table.metadata
    known: dict[int, str] = {}
    for field_id in {each for delete in deletes for each in delete.equality_ids}:
        try:
            wide = add_dropped_key_columns(metadata, metadata.schema, [field_id], str(table.name))
        except DelvecError:
            continue
        known[field_id] = key_types(wide)[field_id]
    companions = table.metadata.statistics_of_files(DELETE_FILE)

    def work(file: EqualityDeleteFile) -> list[Finding]:
        if file.is_vector:
            found = [] if staging else [_unreadable(file)]
            return found if file.path in unusable else [*found, *_vector(storage, file)]
        if file.path in unusable:
            return []
        types = {field_id: known.get(field_id) for field_id in file.equality_ids}
        return list(_ordinary(storage, file, types, companions.get(file.path)))

    items = ((each, each.size) for each in deletes)
    for found in map_in_order(work, items, threads=_FILES_AT_ONCE, budget=_IN_FLIGHT):
        findings.extend(found)
    return len(companions.keys() & {each.path for each in deletes})


@dataclass(frozen=True)
class KeyFileMetrics:
    """What the keys of a file are, by field id; `numbers` only if they were asked for.

    The lowest and highest values are in a form that compares as Iceberg does.
    """

    types: Mapping[int, str]
    nulls: Mapping[int, int]
    lowest: Mapping[int, Any]
    highest: Mapping[int, Any]
    numbers: Bitmap

    @classmethod
    def of(
        cls,
        parquet: pq.ParquetFile,
        file: EqualityDeleteFile,
        types: Mapping[int, str | None],
        *,
        has_numbers: bool,
    ) -> KeyFileMetrics:
        """Return the metrics of an open file, read in batches of a million keys."""
        kinds = {field_id: kind for field_id, kind in types.items() if kind is not None}
        nulls: dict[int, int] = dict.fromkeys(file.equality_ids, 0)
        lowest: dict[int, Any] = {}
        highest: dict[int, Any] = {}
        numbers = Bitmap()
        columns = columns_by_id(parquet.schema_arrow)
        names = [columns[field_id].name for field_id in file.equality_ids]
        for batch in parquet.iter_batches(_BATCH, columns=names):
            for field_id, name in zip(file.equality_ids, names, strict=True):
                values = batch.column(name)
                nulls[field_id] += values.null_count
                if has_numbers:
                    numbers |= _numbers(values)
                if len(values) == values.null_count or kinds[field_id] in _UNORDERED:
                    continue
                found = pc.min_max(_plain(values))
                low, high = found["min"].as_py(), found["max"].as_py()
                lowest[field_id] = min(lowest.get(field_id, low), low)
                highest[field_id] = max(highest.get(field_id, high), high)
        return cls(kinds, nulls, lowest, highest, numbers)

    def problems(self, file: EqualityDeleteFile) -> Iterator[str]:
        """Yield how the manifest entry of the file is wrong."""
        for field_id, count in self.nulls.items():
            expected = file.null_counts.get(field_id, count)
            if count != expected:
                yield (
                    f"the number of null keys differs, of field id {field_id}: expected {expected},"
                    f" found {count}"
                )
        for which, extremes, bounds, is_outside in (
            ("lower", self.lowest, file.lower, lt),
            ("upper", self.highest, file.upper, gt),
        ):
            for field_id, found in extremes.items():
                bound = _bound(bounds.get(field_id), self.types[field_id])
                if bound is not None and is_outside(found, bound):
                    yield (
                        f"its keys are outside of the {which} bound of field id {field_id}, and"
                        f" planners skip them: expected {bound!r}, found {found!r}"
                    )


def columns_by_id(schema: pa.Schema) -> dict[int, pa.Field]:
    """Return the columns of a Parquet file by field id; those inside of structs are omitted."""
    return {number: field for field in schema if (number := _field_id(field)) is not None}


def inner_ids(schema: pa.Schema) -> set[int]:
    """Return the field ids of columns inside of structs of a Parquet file."""
    below = [inner for field in schema for inner in _inside(field)]
    for field in below:  # which grows
        below += _inside(field)
    return {number for field in below if (number := _field_id(field)) is not None}


def stores(have: pa.DataType, kind: str) -> bool:
    """Tell whether a column of a Parquet file can be read as an Iceberg type.

    >>> stores(pa.int32(), "long"), stores(pa.string(), "long")
    (True, False)
    """
    if isinstance(have, pa.BaseExtensionType):
        have = have.storage_type
    try:
        wanted = arrow_type(kind)
    except KeyError:
        return False
    if have == wanted:
        return True
    if pa.types.is_decimal(wanted):
        return bool(
            pa.types.is_decimal(have)
            and have.scale == wanted.scale
            and have.precision <= wanted.precision
        )
    if pa.types.is_timestamp(wanted):
        is_same_kind = pa.types.is_timestamp(have) and (have.tz is None) == (wanted.tz is None)
        return bool(is_same_kind and have.unit == wanted.unit)
    others = {
        "long": pa.int32(),
        "double": pa.float32(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    return bool(have == others.get(kind))


def _unreadable(file: EqualityDeleteFile) -> Finding:
    return Finding(
        "error",
        _VECTOR,
        file.path,
        "an equality delete vector is not on a staging branch of delvec's: stock readers fail",
        format_hint("{} makes it an ordinary file", call("consolidate_deletes")),
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
    companion: tuple[str, int] | None,
) -> Iterator[Finding]:
    wrong = partial(Finding, "error", _FILE, file.path)
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
        yield wrong(f"it cannot be read as Parquet: {described}")
        return
    yield from map(wrong, metrics.problems(file))
    if companion is not None:
        yield from _beside(storage, file, *companion, metrics)


def _structure(
    parquet: pq.ParquetFile, file: EqualityDeleteFile, types: Mapping[int, str | None]
) -> Iterator[Finding]:
    """Yield what is wrong about the columns and the number of rows."""
    columns, inner = columns_by_id(parquet.schema_arrow), inner_ids(parquet.schema_arrow)
    wrong = partial(Finding, "error", _FILE, file.path)
    for field_id, kind in types.items():
        if field_id in inner:
            message = (
                f"its key, field id {field_id}, is inside of a struct: stock readers delete every"
                " row by it, unless a query selects the struct"
            )
            yield Finding("warning", _FILE, file.path, message, "delete by other columns")
        elif field_id not in columns:
            yield wrong(
                f"it has no column with field id {field_id}: readers take other columns for keys,"
                " and delete other rows",
                "delete the keys again, and remove the file",
            )
        elif kind is None:
            yield wrong(f"no schema of the table has its key column, field id {field_id}")
        elif not stores(have := columns[field_id].type, kind):
            yield wrong(f"its key column, field id {field_id}, is {have}: expected {kind}")
    rows = parquet.metadata.num_rows
    if rows != file.record_count:
        yield wrong(f"the number of keys differs: expected {file.record_count}, found {rows}")


def _beside(
    storage: Storage, file: EqualityDeleteFile, path: str, size: int, metrics: KeyFileMetrics
) -> Iterator[Finding]:
    """Yield what is wrong about the vector of an ordinary file; other readers never use it."""
    hint = format_hint(
        "{} or a compaction of the data files does away with it", call("consolidate_deletes")
    )
    try:
        keys: Any = read_companion(storage, path, size, file)
    except FormatError as error:
        yield Finding("error", _BESIDE, path, error.describe(), hint)
        return
    except StorageError as error:
        yield Finding("warning", _BESIDE, path, error.describe())
        return
    if keys is None:
        message = f"the statistics file has no vector of {file.path}, which its metadata names"
        yield Finding("warning", _BESIDE, path, message)
    elif any(metrics.nulls.values()) or keys != metrics.numbers:
        message = f"the vector does not have the keys of {file.path}"
        yield Finding("error", _BESIDE, path, message, hint)


def _field_id(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(FIELD_ID.encode())
    return None if number is None else int(number)


def _inside(field: pa.Field) -> list[pa.Field]:
    return list(field.type) if pa.types.is_struct(field.type) else []


def _numbers(values: pa.Array) -> Bitmap:
    """Return what a vector can hold of some keys."""
    plain = _plain(values)
    if not pa.types.is_integer(plain.type):
        return Bitmap()
    plain = plain.drop_null().cast(pa.int64())
    return Bitmap(plain.filter(pc.greater_equal(plain, 0)).to_numpy())


def _plain(values: pa.Array) -> pa.Array:
    """Return values in a type whose order is Iceberg's: numbers, bytes or decimals."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    return values.cast(pa.large_binary()) if pa.types.is_large_string(kind) else values


def _bound(stored: bytes | None, kind: str) -> Any:  # noqa: ANN401
    """Return a bound of a manifest in the form of `_plain`; None if there is none."""
    if stored is None or kind in _UNORDERED:
        return None
    if kind in ("string", "binary") or kind.startswith("fixed"):
        return stored
    if kind == "boolean":
        return stored != b"\0"
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").partition(",")[2])
        number = int.from_bytes(stored, "big", signed=True)
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    return int.from_bytes(stored, "little", signed=True)
