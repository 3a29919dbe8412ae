"""Equality Delete Vectors (EDV): the keys of one integer column as a bitmap in a Puffin file.

The bitmap holds the values themselves: integers, days or microseconds since 1970, none negative.
Stock Iceberg does not know such files. On a staging branch of delvec's they stand in the manifest,
labelled so that stock readers fail and stock writers can remove them. Elsewhere an ordinary file
holds the same keys, and the vector is in the snapshot's statistics file, which others ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from delvec.errors import FormatError, MagicError, add_location
from delvec.iceberg.client.content_files import hexadecimal
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.deletes.equality_files import ColumnMetrics
from delvec.spark.input.key_values import NUMBER_TYPES, KeyColumn
from delvec.spark.input.keys import Keys
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, open_listed_file
from delvec.vector import puffin
from delvec.vector.bitmap import Bitmap
from delvec.vector.blobs import EQUALITY_DELETE_VECTOR, EqualityDeleteVector
from delvec.vector.puffin import BlobMetadata, PuffinFile

VECTORS_ENABLED: Final = "write.delete.equality-vector.enabled"
"""The table property that allows for Equality Delete Vectors."""
DELETE_FILE: Final = "delete-file"
"""Property of a vector in a statistics file: the ordinary file that holds the same keys."""

_FORMAT: Final = 3
_LEAST_RANGE: Final = 6  # bytes: number of the range, count, one value


@dataclass(frozen=True, eq=False)
class SplitKeys:
    """Keys that a vector can hold, and the others."""

    eligible: Keys
    rest: Keys
    nulls: int
    negatives: int


def why_no_vector(columns: Sequence[KeyColumn], metadata: TableMetadata) -> str | None:
    """Return why the table gets no vector of keys of these columns; None if it may get one."""
    if metadata.properties.get(VECTORS_ENABLED, "").strip().lower() != "true":
        return f"the table property {VECTORS_ENABLED} is not true"
    if metadata.format_version < _FORMAT:
        version = metadata.format_version
        return f"the table has format version {version}, and vectors need {_FORMAT}"
    if len(columns) > 1:
        return f"the key has {len(columns)} columns, and a vector holds values of one"
    [column] = columns
    if column.type not in NUMBER_TYPES:
        held = ", ".join(NUMBER_TYPES)
        return f"column {column.name} is {column.type}, and a vector holds {held}"
    return None


def split_keys(keys: Keys) -> SplitKeys:
    """Split the keys of one column of an eligible type: negative values and null cannot be in it.

    Keys are sorted, so that nothing is copied.
    """
    nulls = keys.nulls
    negatives = int(np.searchsorted(keys.numbers, 0))
    first = nulls + negatives
    return SplitKeys(keys.slice(first), keys.slice(0, first), nulls, negatives)


def least_vector_bytes(keys: Keys) -> int:
    """Return a size that a vector of sorted keys cannot be smaller than, without encoding it.

    Each range of 65,536 values with a key in it takes six bytes or more. The vector of 10 million
    scattered keys takes seconds to encode, this takes 0.1 s.
    """
    ranges = keys.numbers >> 16
    return _LEAST_RANGE * int(np.count_nonzero(ranges[1:] != ranges[:-1]) + 1)


def encode_key_vectors(
    vectors: Sequence[Keys], spec_id: int, properties: Sequence[Mapping[str, str]] = ()
) -> PuffinFile:
    """Return a Puffin file with a vector for each set of eligible keys."""
    blobs = []
    for place, keys in enumerate(vectors):
        blob = EqualityDeleteVector(
            Bitmap(keys.numbers), keys.columns[0].id, partition_spec_id=spec_id
        ).to_blob()
        more = properties[place] if properties else {}
        blobs.append(replace(blob, properties={**blob.properties, **more}))
    return puffin.encode(blobs)


def vector_metrics(keys: Keys) -> ColumnMetrics:
    """Return counts and bounds for the manifest, as an ordinary file of the keys has them."""
    [column] = keys.columns
    ends = keys.table.column(0).take([0, len(keys) - 1]).combine_chunks()
    lower, upper = hexadecimal(ends).to_pylist()
    return ColumnMetrics(column.id, len(keys), 0, lower, upper)


def read_key_vector(storage: Storage, file: EqualityDeleteFile) -> Bitmap:
    """Return the keys of a vector that the manifest lists, checked against its entry.

    Two reads: the footer, and all before it. No number in the file or the manifest makes it
    allocate more than the file's real size.
    """
    where, key = open_listed_file(storage, local_path(file.path))
    read = partial(where.read_range, key)
    with add_location(file.path):
        footer = puffin.read_footer(read, file.size)
        if len(footer.blobs) != 1:
            raise FormatError(
                "wrong number of vectors", expected=1, found=len(footer.blobs), offset=0
            )
        [blob] = footer.blobs
        end = blob.offset + blob.length
        head = read(0, end)
        if head[: puffin.HEADER_SIZE] != b"PFA1":
            raise MagicError("not a Puffin file", offset=0, expected="PFA1", found=head[:4].hex())
        vector = EqualityDeleteVector.from_blob(blob, memoryview(head)[blob.offset : end])
        _require_manifest(blob, vector, file)
        return vector.keys


def read_companion(
    storage: Storage, path: str, size: int, file: EqualityDeleteFile
) -> Bitmap | None:
    """Return the keys of an ordinary file from a statistics file, None if it has no vector."""
    where, key = open_listed_file(storage, local_path(path))
    read = partial(where.read_range, key)
    with add_location(path):
        for blob in puffin.read_footer(read, size).blobs:
            is_its = blob.properties.get(DELETE_FILE) == file.path
            if blob.type != EQUALITY_DELETE_VECTOR or not is_its:
                continue
            data = read(blob.offset, blob.length)
            vector = EqualityDeleteVector.from_blob(blob, data)
            _require_manifest(blob, vector, file)
            return vector.keys
    return None


def _require_manifest(
    blob: BlobMetadata, vector: EqualityDeleteVector, file: EqualityDeleteFile
) -> None:
    """Compare a decoded blob, whose properties hold for its keys, with the manifest's entry."""
    _require_equal("key column", tuple(file.equality_ids), (vector.field_id,))
    _require_equal("number of keys", file.record_count, vector.keys.cardinality)
    _require_equal("partition spec", file.spec_id, vector.partition_spec_id)
    if not vector.keys:
        raise FormatError("the vector is empty", offset=blob.offset)
    for name in ("value-min", "value-max"):
        if name not in blob.properties:
            raise FormatError(f"the vector lacks the property {name}", offset=blob.offset)
    bounds = ((file.lower, vector.keys.min), (file.upper, vector.keys.max))
    for manifest, bound in bounds:
        # Planners may have dropped the metrics of an entry.
        if vector.field_id in manifest:
            stored = manifest[vector.field_id]
            number = int.from_bytes(stored, "little", signed=True)
            _require_equal("bound of the keys", number, bound)


def _require_equal(what: str, expected: object, found: object) -> None:
    if found != expected:
        raise FormatError(
            f"the vector does not match its manifest entry: wrong {what}",
            expected=expected,
            found=found,
            offset=0,
        )
