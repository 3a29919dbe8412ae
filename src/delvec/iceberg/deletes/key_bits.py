"""Deleted keys of integer columns as bits that a scan tests.

The driver reads the keys and lays them out as a bit for each value between the lowest and the
highest. All data files with the same sequence number and scope have the same deleted keys, so one
scan reads them, with their bits in its filter: no join, and no copy of a key in any executor. For
keys that are too far apart, or files of too many sequence numbers, `key_filter` joins instead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from delvec.errors import FormatError, StorageError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.file_scan import DataFilesWithKeys
from delvec.iceberg.deletes.key_columns import key_paths, key_types
from delvec.iceberg.deletes.key_filter import GLOBAL, ScopedDelete
from delvec.iceberg.deletes.key_vectors import DELETE_FILE, read_companion, read_key_vector
from delvec.identifiers import quote
from delvec.parquet.readable import open_parquet, readable
from delvec.report.format import escape_controls
from delvec.spark.expressions import broadcast_bytes, word_at
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, open_listed_file
from delvec.storage.parallel import gather

_MOST_KEYS: Final = 16_000_000  # 8 bytes each, in the driver
_MOST_BYTES: Final = 32 << 20  # of all bits together, in each executor
_MOST_SCANS: Final = 16
_WORD: Final = 64
_LOG = logging.getLogger("delvec")
# How rows have the number that a key of a type is.
_NUMBERS: Final = {
    "int": lambda column: column.cast("bigint"),
    "long": lambda column: column,
    "date": lambda column: F.unix_date(column).cast("bigint"),
    "timestamptz": F.unix_micros,
}


@dataclass(frozen=True, eq=False)
class FilesWithBits:
    """Data files with the same deleted keys, and the condition that a row of theirs is live."""

    paths: tuple[str, ...]
    condition: Column


@dataclass(frozen=True, eq=False)
class _Keys:
    """The keys of a delete, sorted."""

    delete: ScopedDelete
    numbers: NDArray[np.int64]
    has_null: bool


def plan_bits(
    table: LoadedTable,
    schema: Mapping[str, Any],
    files: DataFilesWithKeys,
    deletes: Sequence[ScopedDelete],
) -> tuple[FilesWithBits, ...] | str:
    """Return the scans of data files with deleted keys, or why there are none.

    Reads the equality deletes. The driver holds 8 bytes for each key, and the bits.
    """
    classes = _classes(files.files, deletes)
    reason = _why_not(schema, classes, deletes)
    if reason is not None:
        return reason
    companions = table.metadata.statistics_of_files(DELETE_FILE)
    loaded = gather(partial(_read, table.storage(), companions), deletes)
    found = [each for each in loaded if each is not None]
    if len(found) < len(loaded):
        return "an equality-delete file has another form than delvec's"
    plans = []
    total = 0
    for (sequence, scope), paths in classes.items():
        bits = _bits_of(found, sequence, scope)
        total += sum(each.size for each in bits)
        if total > _MOST_BYTES:
            return f"their bits take more than {_MOST_BYTES >> 20} MiB"
        plans.append((paths, bits))
    return tuple(
        FilesWithBits(paths, _condition(table.spark, schema, bits)) for paths, bits in plans
    )


@dataclass(frozen=True, eq=False)
class _Bits:
    """The deleted keys of one column: sorted numbers, and whether null is among them."""

    field_id: int
    numbers: NDArray[np.int64]
    has_null: bool

    @property
    def base(self) -> int:
        """The number of the first bit."""
        return int(self.numbers[0]) // _WORD * _WORD

    @property
    def size(self) -> int:
        """How many bytes they take."""
        if not len(self.numbers):
            return 0
        # A slice, since numpy warns of scalars that wrap around; an int, since they may be many.
        return (int(self._words(self.numbers[-1:])[0]) + 1) * 8

    def _words(self, numbers: Any) -> Any:  # noqa: ANN401
        # Unsigned: the distance of two numbers may exceed a signed one.
        return (numbers.astype(np.uint64) - np.uint64(self.base % (1 << 64))) >> np.uint64(6)

    def to_bytes(self) -> bytes:
        """Return words of 64 bits, big-endian."""
        words = self._words(self.numbers)
        ones = np.uint64(1) << (self.numbers.astype(np.uint64) & np.uint64(_WORD - 1))
        starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
        laid = np.zeros(self.size // 8, dtype=np.uint64)
        laid[words[starts]] = np.bitwise_or.reduceat(ones, starts)
        return laid.astype(">u8").tobytes()


def _classes(
    files: pa.Table, deletes: Sequence[ScopedDelete]
) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the paths of data files that the same deletes apply to, by sequence number and scope.

    The number is the lowest of them; the scope is -1 where only global deletes apply.
    """
    numbers = np.unique([each.file.sequence_number for each in deletes])
    scopes = {each.scope for each in deletes}
    found: dict[tuple[int, int], tuple[int, list[str]]] = {}
    sequences = files.column("sequence").to_numpy()
    below = np.searchsorted(numbers, sequences, side="right")
    for path, sequence, place, scope in zip(
        files.column("path").to_pylist(),
        sequences.tolist(),
        below.tolist(),
        files.column("scope").to_pylist(),
        strict=True,
    ):
        key = place, scope if scope in scopes else GLOBAL
        lowest, paths = found.setdefault(key, (sequence, []))
        paths.append(path)
        found[key] = min(lowest, sequence), paths
    return {(lowest, scope): tuple(paths) for (_, scope), (lowest, paths) in found.items()}


def _why_not(
    schema: Mapping[str, Any],
    classes: Mapping[tuple[int, int], tuple[str, ...]],
    deletes: Sequence[ScopedDelete],
) -> str | None:
    if len(classes) > _MOST_SCANS:
        return f"data files have {len(classes):,} sequence numbers and partitions"
    types, paths = key_types(schema), key_paths(schema)
    for ids in {each.file.equality_ids for each in deletes}:
        if len(ids) > 1:
            return "a key has several columns"
        if types[ids[0]] not in _NUMBERS or len(paths[ids[0]]) > 1:
            return f"a key is {types[ids[0]]}, which is not laid out as bits"
    keys = sum(each.file.record_count for each in deletes)
    return f"{keys:,} keys are more than {_MOST_KEYS:,}" if keys > _MOST_KEYS else None


def _read(
    storage: Storage, companions: Mapping[str, tuple[str, int]], delete: ScopedDelete
) -> _Keys | None:
    file = delete.file
    if file.is_vector:
        return _Keys(delete, read_key_vector(storage, file).to_numpy(), has_null=False)
    if file.path in companions:
        try:
            found = read_companion(storage, *companions[file.path], file)
            if found is not None:
                return _Keys(delete, found.to_numpy(), has_null=False)
        except (FormatError, StorageError) as error:
            # It only repeats the ordinary file.
            path = escape_controls(file.path)
            _LOG.warning("the vector beside %s is not usable: %s", path, error)
    return _ordinary_keys(storage, delete)


def _ordinary_keys(storage: Storage, delete: ScopedDelete) -> _Keys | None:
    """Return the keys of a Parquet file; None if its key column is not there as a number."""
    file = delete.file
    if file.file_format != "parquet":
        return None
    where, key = open_listed_file(storage, local_path(file.path))
    with where.open_input(key, file.size) as source:
        with readable(file.path):
            parquet = open_parquet(source)
        wanted = str(file.equality_ids[0]).encode()
        names = [
            field.name
            for field in parquet.schema_arrow
            if (field.metadata or {}).get(b"PARQUET:field_id") == wanted
        ]
        if len(names) != 1:
            return None
        # Arrow reads `id.x` as well, where it is asked for `id`.
        with readable(file.path):
            values = parquet.read(columns=names, use_threads=False).column(names[0])
    if len(values) != file.record_count:
        raise FormatError(
            "an equality-delete file has another number of rows than its manifest entry",
            path=file.path,
            expected=file.record_count,
            found=len(values),
        )
    numbers = _as_numbers(values)
    return None if numbers is None else _Keys(delete, numbers, bool(values.null_count))


def _as_numbers(values: pa.ChunkedArray) -> NDArray[np.int64] | None:
    kind = values.type
    if pa.types.is_timestamp(kind) and (kind.unit != "us" or kind.tz is None):
        return None
    if not (pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return None
    present = values.drop_null()
    narrow = present.cast(pa.int32()) if pa.types.is_date32(kind) else present
    numbers: NDArray[np.int64] = narrow.cast(pa.int64()).to_numpy()
    return numbers


def _bits_of(keys: Sequence[_Keys], sequence: int, scope: int) -> list[_Bits]:
    """Return the keys that are deleted in data files of a sequence number and a scope."""
    by_column: dict[int, list[_Keys]] = {}
    for each in keys:
        applies = each.delete.scope in (GLOBAL, scope)
        if applies and each.delete.file.sequence_number > sequence:
            by_column.setdefault(each.delete.file.equality_ids[0], []).append(each)
    return [
        _Bits(
            field_id,
            _distinct(np.concatenate([each.numbers for each in some])),
            any(each.has_null for each in some),
        )
        for field_id, some in sorted(by_column.items())
    ]


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers sorted, each once; numpy's `unique` hashes, and takes ten times as long."""
    numbers = np.sort(numbers)
    is_new = np.ones(len(numbers), dtype=np.bool_)
    is_new[1:] = numbers[1:] != numbers[:-1]
    return numbers[is_new]


def _condition(spark: SparkSession, schema: Mapping[str, Any], bits: Sequence[_Bits]) -> Column:
    """Return the condition that a row is live."""
    types, paths = key_types(schema), key_paths(schema)
    conditions = [
        _is_live(spark, F.col(quote(paths[each.field_id][0])), types[each.field_id], each)
        for each in bits
    ]
    return reduce(and_, conditions, F.lit(True))


def _is_live(spark: SparkSession, column: Column, kind: str, bits: _Bits) -> Column:
    absent = F.when(column.isNull(), F.lit(not bits.has_null))
    if not len(bits.numbers):
        return absent.otherwise(F.lit(True))
    key = _NUMBERS[kind](column)
    place = key - F.lit(bits.base)  # computed within the bounds only: it could overflow
    words = broadcast_bytes(spark, bits.to_bytes())
    word = word_at(spark, words, (F.shiftright(place, 6) * 8).cast("int"))
    bit = F.getbit(word, place.bitwiseAND(F.lit(_WORD - 1)).cast("int"))
    outside = (key < F.lit(int(bits.numbers[0]))) | (key > F.lit(int(bits.numbers[-1])))
    return absent.when(outside, F.lit(True)).otherwise(bit == 0)
