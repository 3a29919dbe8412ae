"""An Iceberg table of any number of files without the files: manifests, and two branches.

PyIceberg writes one entry; a manifest repeats its bytes with other names, partitions and bounds,
which all take the same number of bytes. So 10 million entries take a minute and not an hour.

Both branches have all data files: `main` with equality deletes in 10 of 1000 partitions, which
apply to 1 % of the files, `wide` with some in each partition, which apply to all.
"""

from __future__ import annotations

import json
import uuid
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["PARTITIONS", "PARTITIONS_WITH_DELETES", "IcebergShape", "write_iceberg_table"]

_SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", DoubleType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "p", IntegerType(), required=False),
    identifier_field_ids=[1],
)
_SPEC: Final = PartitionSpec(
    PartitionField(source_id=4, field_id=1000, transform=IdentityTransform(), name="p")
)
_ROWS: Final = 1_000_000
_FIRST_PARTITION: Final = 10_000  # with all that follow, three bytes long
PARTITIONS: Final = 1000
PARTITIONS_WITH_DELETES: Final = 10
_IN_BLOCK: Final = 1000
_NAME: Final = b"@" * 32
_LOW: Final = b"\x91LLLLLL\x91"
_HIGH: Final = b"\x92HHHHHH\x92"
_MILLISECONDS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class IcebergShape:
    """The shape of a table.

    Attributes:
        files: Data files.
        in_manifest: Entries in each manifest; Iceberg's of 8 MB have so many.
    """

    files: int
    in_manifest: int = 50_000


def write_iceberg_table(folder: Path, shape: IcebergShape) -> None:
    """Write the metadata of a table of a Hadoop catalog into its folder."""
    metadata = folder / "metadata"
    metadata.mkdir(parents=True)
    template = _template(metadata)
    data = [
        _data_manifest(metadata, template, start, min(start + shape.in_manifest, shape.files))
        for start in range(0, shape.files, shape.in_manifest)
    ]
    snapshots = [_snapshot(metadata, 1, data, None, shape.files)]
    for number, count in ((2, PARTITIONS_WITH_DELETES), (3, PARTITIONS)):
        deletes = _delete_manifest(metadata, number, count, shape.files * _ROWS - 1)
        snapshots.append(_snapshot(metadata, number, data, deletes, shape.files))
    document = _table_metadata(folder, snapshots)
    (metadata / "v1.metadata.json").write_text(json.dumps(document))
    (metadata / "version-hint.text").write_text("1")


@dataclass(frozen=True)
class _Template:
    """The bytes of a manifest with one entry: what comes before it, the entry, the marker."""

    header: bytes
    entry: bytes
    marker: bytes

    def block(self, numbers: NDArray[np.int64], names: bytes) -> bytes:
        """Return a block of Avro with an entry for each number."""
        rows = np.tile(np.frombuffer(self.entry, dtype=np.uint8), (len(numbers), 1))
        self._fill(rows, _NAME, np.frombuffer(names, dtype=np.uint8).reshape(-1, len(_NAME)))
        self._fill(rows, _LOW, _octets(numbers * _ROWS))
        self._fill(rows, _HIGH, _octets((numbers + 1) * _ROWS - 1))
        partition = _FIRST_PARTITION + numbers % PARTITIONS
        self._fill(rows, _varint(_FIRST_PARTITION), _varints(partition))
        squeeze = zlib.compressobj(level=1, wbits=-15)
        packed = squeeze.compress(rows.tobytes()) + squeeze.flush()
        return _varint(len(numbers)) + _varint(len(packed)) + packed + self.marker

    def _fill(self, rows: NDArray[np.uint8], place: bytes, values: NDArray[np.uint8]) -> None:
        at = self.entry.index(place)
        if self.entry.count(place) != 1:
            raise AssertionError(f"{place!r} is in the entry more than once")
        rows[:, at : at + len(place)] = values


def _template(folder: Path) -> _Template:
    path = folder / "template.avro"
    name = f"{folder.parent}/data/p={_FIRST_PARTITION}/00000-0-{_NAME.decode()}-00001.parquet"
    _written(folder, path.name, [_data_file(name, _FIRST_PARTITION, _LOW, _HIGH)], 1, is_data=True)
    octets = path.read_bytes()
    path.unlink()
    marker = octets[-16:]
    header, block, _ = octets.split(marker)
    plain, packed = b"avro.codec\x08null", b"avro.codec\x0edeflate"
    if header.count(plain) != 1:
        raise AssertionError("PyIceberg has written the header of a manifest in another form")
    [count, size] = (len(_varint(number)) for number in (1, len(block) - 3))
    return _Template(header.replace(plain, packed) + marker, block[count + size :], marker)


def _data_manifest(folder: Path, template: _Template, start: int, end: int) -> ManifestFile:
    rng = np.random.default_rng(start)
    path = folder / f"{uuid.uuid4()}-m0.avro"
    with path.open("wb") as file:
        file.write(template.header)
        for first in range(start, end, _IN_BLOCK):
            numbers = np.arange(first, min(first + _IN_BLOCK, end))
            file.write(template.block(numbers, rng.bytes(16 * len(numbers)).hex().encode()))
    return _manifest(path, ManifestContent.DATA, 1, end - start, (end - start) * _ROWS)


def _manifest(
    path: Path, content: ManifestContent, snapshot: int, files: int, rows: int
) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=str(path),
        manifest_length=path.stat().st_size,
        partition_spec_id=0,
        content=content,
        sequence_number=snapshot,
        min_sequence_number=snapshot,
        added_snapshot_id=snapshot,
        added_files_count=files,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=rows,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=None,
        key_metadata=None,
    )


class _ManifestWriter(ManifestWriterV2):
    """Writes field ids of equality deletes as int, as the specification says; PyIceberg as long."""

    def _with_partition(self, format_version: TableVersion) -> Schema:
        fields = super()._with_partition(format_version).fields
        return Schema(*(_with_int_ids(field) for field in fields))


def _with_int_ids(field: NestedField) -> NestedField:
    kind: Any = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*map(_with_int_ids, kind.fields))
    elif field.name == "equality_ids":
        kind = kind.model_copy(update={"element_type": IntegerType()})
    return NestedField(field.field_id, field.name, kind, required=field.required)


class _DeleteManifestWriter(_ManifestWriter):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _delete_manifest(folder: Path, snapshot: int, count: int, last: int) -> ManifestFile:
    """Write the manifest of equality deletes by `id`, a file in each of some partitions."""
    files = [
        _data_file(
            f"{folder.parent}/data/{uuid.uuid4()}.parquet",
            _FIRST_PARTITION + number,
            (0).to_bytes(8, "little"),
            last.to_bytes(8, "little"),
            is_data=False,
        )
        for number in range(count)
    ]
    path = _written(folder, f"{uuid.uuid4()}-m1.avro", files, snapshot, is_data=False)
    return _manifest(path, ManifestContent.DELETES, snapshot, count, 1000 * count)


def _written(
    folder: Path, name: str, files: list[DataFile], snapshot: int, *, is_data: bool
) -> Path:
    path = folder / name
    output = PyArrowFileIO().new_output(str(path))
    writer = _ManifestWriter if is_data else _DeleteManifestWriter
    with writer(_SPEC, _SCHEMA, output, snapshot, "null") as manifest:
        for file in files:
            added = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=file
            )
            manifest.add_entry(added)
    return path


def _data_file(
    path: str, partition: int, low: bytes, high: bytes, *, is_data: bool = True
) -> DataFile:
    rows = _ROWS if is_data else 1000
    keys = (1, 2, 3) if is_data else (1,)
    return DataFile.from_args(
        content=DataFileContent.DATA if is_data else DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=rows,
        file_size_in_bytes=100 << 20,
        column_sizes=dict.fromkeys(keys, 30 << 20),
        value_counts=dict.fromkeys(keys, rows),
        null_value_counts=dict.fromkeys(keys, 0),
        nan_value_counts={},
        lower_bounds={1: low},
        upper_bounds={1: high},
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None if is_data else [1],
        sort_order_id=0,
    )


def _snapshot(
    folder: Path, number: int, data: list[ManifestFile], deletes: ManifestFile | None, files: int
) -> dict[str, Any]:
    path = folder / f"snap-{number}-1-{uuid.uuid4()}.avro"
    output = PyArrowFileIO().new_output(str(path))
    with write_manifest_list(2, output, number, None, number, "deflate") as manifests:
        manifests.add_manifests([*data, *([deletes] if deletes else [])])
    return {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": _MILLISECONDS + number,
        "manifest-list": str(path),
        "schema-id": 0,
        "summary": {
            "operation": "append" if deletes is None else "delete",
            "total-data-files": str(files),
            "total-delete-files": str(deletes.added_files_count if deletes else 0),
            "total-records": str(files * _ROWS),
        },
        **({} if deletes is None else {"parent-snapshot-id": 1}),
    }


def _table_metadata(folder: Path, snapshots: list[dict[str, Any]]) -> dict[str, Any]:
    main, wide = snapshots[1]["snapshot-id"], snapshots[2]["snapshot-id"]
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": str(folder),
        "last-sequence-number": len(snapshots),
        "last-updated-ms": _MILLISECONDS + len(snapshots),
        "last-column-id": 4,
        "current-schema-id": 0,
        "schemas": [json.loads(_SCHEMA.model_dump_json())],
        "default-spec-id": 0,
        "partition-specs": [json.loads(_SPEC.model_dump_json())],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"gc.enabled": "false"},
        "current-snapshot-id": main,
        "refs": {
            "main": {"snapshot-id": main, "type": "branch"},
            "wide": {"snapshot-id": wide, "type": "branch"},
        },
        "snapshots": snapshots,
        "snapshot-log": [],
        "metadata-log": [],
    }


def _octets(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return each number as eight bytes, least first, as Iceberg holds bounds."""
    return numbers.astype("<i8").view(np.uint8).reshape(-1, 8)


def _varint(number: int) -> bytes:
    """Return a number as Avro has it."""
    rest, octets = number << 1, bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])


def _varints(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return numbers of three bytes as Avro has them."""
    rest = numbers << 1
    octets = np.stack([rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14], axis=1)
    return octets.astype(np.uint8)
