from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from delvec import DeltaTable
from delvec.conversion.files.repack import (
    StoredVectors,
    digest,
    reference,
    repack,
    write_position_deletes,
)
from delvec.conversion.files.vector_places import SOURCE_ID, referenced_keys, stored_ids
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.replay import vector_ids
from delvec.delta.read.vectors import load_vectors
from delvec.errors import (
    ChecksumError,
    FormatError,
    ObjectNotFoundError,
    TruncatedError,
    UnsupportedFeatureError,
)
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap, Descriptor, pack
from delvec.vector import descriptor as z85
from delvec.vector.blobs import DeletionVector
from delvec.vector.frame import encode_frame
from delvec.vector.puffin import encode, read_blob, read_footer, reader_of
from tests.delta.builder import TableBuilder
from tests.s3.server import S3Server

Action = dict[str, Any]

ROWS = 1000


@dataclass(frozen=True)
class Source:
    """A Delta table all of whose files have a vector, and a place for the target."""

    files: FileSet
    storage: Storage
    target: Storage
    uncommitted: UncommittedFiles

    @property
    def data_paths(self) -> pa.Array:
        return pc.binary_join_element_wise(f"file:{self.storage.root}", self.files.paths, "/")

    @property
    def bitmaps(self) -> dict[str, Bitmap | None]:
        loaded = load_vectors(self.storage, self.files.data_files())
        return dict(zip(self.data_paths.to_pylist(), loaded, strict=True))

    def repacked(self, **options: Any) -> StoredVectors:  # noqa: ANN401
        return repack(*self._stores, "data", self.uncommitted, **options)

    def as_positions(self) -> StoredVectors:
        return write_position_deletes(*self._stores, "deletion-vectors", self.uncommitted)

    @property
    def _stores(self) -> tuple[FileSet, pa.Array, Storage, Storage]:
        return self.files, self.data_paths, self.storage, self.target

    def container(self, path: str) -> bytes:
        return Path(path.removeprefix("file:")).read_bytes()


def add(name: str, vector: Action, rows: int | None = ROWS) -> Action:
    """An entry of the log; nothing here opens data files."""
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    entry = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {**entry, "dataChange": True, "deletionVector": vector, **stats}


def table_of(tmp_path: Path, adds: Sequence[Action]) -> Source:
    table = TableBuilder(tmp_path / "delta")
    table.create()
    table.commit(*({"add": entry} for entry in adds))
    snapshot = DeltaTable.for_path(None, table.root).snapshot()
    target = Storage.open(tmp_path / "iceberg")
    return Source(snapshot.files, snapshot.storage, target, UncommittedFiles(target))


def source_of(tmp_path: Path, vectors: Sequence[Action], rows: int | None = ROWS) -> Source:
    """A table of files `part-0.parquet` and so on, with these vectors."""
    return table_of(tmp_path, [add(f"part-{n}.parquet", v, rows) for n, v in enumerate(vectors)])


def builder(tmp_path: Path) -> TableBuilder:
    table = TableBuilder(tmp_path / "delta")
    table.log.mkdir(parents=True)
    return table


def native_payload(bitmap: Bitmap) -> bytes:
    """Delta's older layout, of a bitmap of one bucket: a length in place of count and key."""
    body = bitmap.to_bytes()[12:]
    return bytes.fromhex("d0d33964 01000000") + len(body).to_bytes(4, "little") + body


def inline(bitmap: Bitmap, *, native: bool = False) -> Action:
    payload = native_payload(bitmap) if native else encode_frame(bitmap)[4:-4]
    return Descriptor("i", z85.encode(payload), None, len(payload), len(bitmap)).to_json()


def native_on_disk(table: TableBuilder, bitmap: Bitmap) -> Action:
    payload = native_payload(bitmap)
    [file] = pack([Bitmap([1])])
    frame = len(payload).to_bytes(4, "big") + payload + crc32(payload).to_bytes(4, "big")
    (table.root / file.path).write_bytes(b"\x01" + frame)
    kept = file.descriptors[0].to_json()
    return kept | {"sizeInBytes": len(payload), "cardinality": len(bitmap)}


def elsewhere(folder: Path, *positions: Sequence[int]) -> list[Action]:
    """Vectors of another table, by absolute paths, as shallow clones have them."""
    [file] = pack([Bitmap(each) for each in positions])
    folder.mkdir()
    (folder / file.path).write_bytes(file.data)
    uri = f"file:{folder}/{file.path}".replace(" ", "%20")
    return [{**d.to_json(), "storageType": "p", "pathOrInlineDv": uri} for d in file.descriptors]


def every_kind(tmp_path: Path) -> Source:
    table = builder(tmp_path)
    vectors = [
        *table.write_vectors([0, 9], range(500), [999]),
        inline(Bitmap([7, 8])),
        *table.write_vectors([1, 2, 3], prefix="ab"),
        inline(Bitmap([5, 600]), native=True),
        *elsewhere(tmp_path / "other place", [4], [5, 6]),
        native_on_disk(table, Bitmap([11, 12])),
    ]
    return source_of(tmp_path, vectors)


def read_back(source: Source, stored: StoredVectors) -> dict[str, Bitmap]:
    """The vectors by their data files, each found by offset and length, held against footers."""
    assert stored.offsets is not None
    assert stored.lengths is not None
    numbers = (stored.sizes, stored.offsets, stored.lengths, stored.cardinalities)
    columns = (each.tolist() for each in numbers)
    found = {}
    for path, size, offset, length, count in zip(stored.paths.to_pylist(), *columns, strict=True):
        data = source.container(path)
        assert len(data) == size
        footer = read_footer(reader_of(data), size)
        [blob] = [blob for blob in footer.blobs if blob.offset == offset]
        assert blob.length == length
        vector = DeletionVector.from_blob(blob, read_blob(reader_of(data), blob))
        assert vector.positions.cardinality == count
        found[vector.data_file] = vector.positions
    return found


def test_vectors_of_every_kind_arrive_in_puffin_files(tmp_path: Path) -> None:
    source = every_kind(tmp_path)
    stored = source.repacked()
    assert read_back(source, stored) == source.bitmaps
    assert stored.files_written == 1
    assert stored.bytes_written == stored.sizes[0]
    [key] = source.uncommitted.keys
    assert set(stored.paths.to_pylist()) == {f"file:{source.target.root}/{key}"}
    assert key.startswith("data/")
    assert key.endswith("-deletes.puffin")
    by_pyiceberg = deletion_vectors_from_puffin_file(PuffinFile(source.target.read(key)))
    read = {v.referenced_data_file: Bitmap(v.to_vector().to_numpy()) for v in by_pyiceberg}
    assert read == source.bitmaps
    blobs = read_footer(reader_of(source.target.read(key)), int(stored.sizes[0])).blobs
    said = {blob.properties["referenced-data-file"]: blob.properties[SOURCE_ID] for blob in blobs}
    ids = vector_ids(source.files.vectors).to_pylist()
    assert said == dict(zip(source.data_paths.to_pylist(), ids, strict=True))


@pytest.mark.parametrize("options", [{"target_size": 200}, {"most_vectors": 2}])
def test_a_puffin_file_begins_when_one_is_full(tmp_path: Path, options: dict[str, int]) -> None:
    source = every_kind(tmp_path)
    stored = source.repacked(**options)
    assert stored.files_written > 2
    names = stored.paths.to_pylist()
    assert len(set(names)) == stored.files_written == len(source.uncommitted.keys)
    assert stored.bytes_written == sum(len(source.container(name)) for name in set(names))
    assert max(map(names.count, names)) <= options.get("most_vectors", 9)
    assert read_back(source, stored) == source.bitmaps


@pytest.mark.more
def test_many_vectors_in_many_files_keep_their_order(tmp_path: Path) -> None:
    table = builder(tmp_path)
    vectors = [
        v for n in range(300) for v in table.write_vectors(*([n, n + k + 1] for k in (1, 5)))
    ]
    order = np.random.default_rng(7).permutation(len(vectors)).tolist()
    source = table_of(tmp_path, [add(f"part-{n}.parquet", vectors[n]) for n in order])
    stored = source.repacked(most_vectors=128)
    assert read_back(source, stored) == source.bitmaps
    expected = [vectors[int(p[5:-8])]["cardinality"] for p in source.files.paths.to_pylist()]
    assert stored.cardinalities.tolist() == expected


def test_nothing_to_carry_writes_nothing(tmp_path: Path) -> None:
    source = every_kind(tmp_path)
    none = np.zeros(len(source.files), dtype=np.bool_)
    for way in all_ways(replace(source, files=source.files.select(none))):
        stored = way()
        assert len(stored) == stored.files_written == stored.bytes_written == 0
    assert not source.uncommitted.keys


def damaged(tmp_path: Path, change: Action, *, second: bool = True) -> Source:
    """Two vectors in one file; what the log says of one of them is changed."""
    table = builder(tmp_path)
    vectors = table.write_vectors([0, 9], [3, 4])
    vectors[int(second)] |= change
    return source_of(tmp_path, vectors)


def all_ways(source: Source) -> list[Any]:
    return [source.repacked, source.as_positions, lambda: reference(source.files, source.storage)]


def test_a_damaged_vector_or_a_missing_file_of_vectors_is_named_with_its_data_file(
    tmp_path: Path,
) -> None:
    source = damaged(tmp_path, {})
    root = source.storage.root
    [path] = Path(root).glob("*.bin")
    octets = bytearray(path.read_bytes())
    octets[-6] ^= 1
    path.write_bytes(octets)
    for way in (source.repacked, source.as_positions):
        with pytest.raises(ChecksumError) as caught:
            way()
        for word in (path.name, f"part-1.parquet in {root}", "at byte 45", "Hint:"):
            assert word in str(caught.value)
    path.unlink()
    for way in all_ways(source):
        with pytest.raises(ObjectNotFoundError, match=r"(?s)part-0\.parquet in .*Hint:") as gone:
            way()
        assert path.name in str(gone.value)


ELSEWHERE = {"storageType": "p", "pathOrInlineDv": "s3://lake/a.bin"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cardinality": 1001}, r"part-1\.parquet marks more rows than there are"),
        ({"cardinality": 0}, r"cardinality in the log is not positive .*part-1\.parquet in "),
        ({"cardinality": -5}, "cardinality .* out of bounds"),
        ({"sizeInBytes": -1}, r"sizeInBytes .* out of bounds in the entry of part-1\.parquet"),
        # Refused before memory is taken for it.
        ({"sizeInBytes": 2**31 - 1}, r"part-1\.parquet in "),
        ({"sizeInBytes": 10_000}, r"part-1\.parquet in "),
        ({"offset": -1}, r"offset .* out of bounds in the entry of part-1\.parquet"),
        ({"storageType": "r"}, r"unknown storage type .* the entry of part-1\.parquet"),
        ({"pathOrInlineDv": "short"}, r"too short for a UUID .*part-1\.parquet in "),
        ({"pathOrInlineDv": "../../" + "0" * 20}, r"lead out of the table .*part-1\.parquet in "),
        (
            {"storageType": "p", "pathOrInlineDv": "s3://lake/a.bin"},
            "another kind of store .*part-1",
        ),
    ],
)
def test_an_impossible_descriptor_is_refused(tmp_path: Path, change: Action, message: str) -> None:
    source = damaged(tmp_path, change)
    kind = TruncatedError if change.get("sizeInBytes", 0) > 0 else FormatError
    for way in all_ways(source):
        with pytest.raises(kind, match=message):
            way()


def test_a_wrong_place_inside_the_file_and_a_damaged_inline_vector_are_refused(
    tmp_path: Path,
) -> None:
    broken = inline(Bitmap([1])) | {"pathOrInlineDv": "~" * 50, "sizeInBytes": 40}
    sources = [(table_of(tmp_path, [add("part-0.parquet", broken)]), r"Z85 .*part-0\.parquet in ")]
    for number, change in enumerate(({"offset": 2}, {"sizeInBytes": 34}, {"offset": 0})):
        sources.append((damaged(tmp_path / f"{number}", change), r"part-1\.parquet in "))
    for source, message in sources:
        for way in (source.repacked, source.as_positions):
            with pytest.raises(FormatError, match=message):
                way()


def test_overlapping_ranges_are_copied_each_for_itself_and_a_large_vector_alone(
    tmp_path: Path,
) -> None:
    [vector] = builder(tmp_path).write_vectors([1, 2])
    source = source_of(tmp_path, [vector] * 100)
    stored = source.repacked(target_size=1000)
    assert read_back(source, stored) == source.bitmaps
    assert stored.files_written > 3
    vectors = builder(tmp_path / "large").write_vectors([1], range(0, 200_000, 2), [2])
    source = source_of(tmp_path / "large", vectors, 200_000)
    stored = source.repacked(target_size=1000)
    assert read_back(source, stored) == source.bitmaps
    assert stored.files_written == 3


def test_vectors_are_referred_to_in_place_with_true_sizes(tmp_path: Path) -> None:
    table = builder(tmp_path)
    vectors = [*table.write_vectors([0, 9], [3, 4]), *elsewhere(tmp_path / "a b", [4], [5, 6])]
    source = source_of(tmp_path, vectors)
    stored = reference(source.files, source.storage)
    assert stored.offsets is not None
    assert stored.lengths is not None
    for row, (path, bitmap) in enumerate(source.bitmaps.items()):
        data = source.container(stored.paths[row].as_py())
        start, length = int(stored.offsets[row]), int(stored.lengths[row])
        assert stored.sizes[row] == len(data)
        assert bitmap is not None
        assert data[start : start + length] == encode_frame(bitmap), path
        assert stored.cardinalities[row] == bitmap.cardinality
    assert f"file:{tmp_path}/a b/" in stored.paths[2].as_py()
    assert stored.bytes_written == stored.files_written == 0
    assert source.storage.requests.heads <= 2
    assert not Path(source.target.root).exists()


def test_an_inline_vector_cannot_be_referred_to(tmp_path: Path) -> None:
    [vector] = builder(tmp_path).write_vectors([0])
    adds = [add("a.parquet", vector), add("b.parquet", inline(Bitmap([1])))]
    source = table_of(tmp_path, adds)
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)b\.parquet in .*repack") as caught:
        reference(source.files, source.storage)
    assert str(source.storage.root) in str(caught.value)


def test_positions_arrive_in_parquet_files_of_icebergs_schema(tmp_path: Path) -> None:
    source = every_kind(tmp_path)
    stored = source.as_positions()
    assert stored.offsets is None
    assert stored.lengths is None
    assert stored.files_written == len(source.files) == len(set(stored.paths.to_pylist()))
    ids = vector_ids(source.files.vectors)
    for row, (data_path, bitmap) in enumerate(source.bitmaps.items()):
        path = stored.paths[row].as_py()
        file = pq.ParquetFile(path.removeprefix("file:"))
        assert [
            (f.name, f.nullable, f.metadata[b"PARQUET:field_id"]) for f in file.schema_arrow
        ] == [("file_path", False, b"2147483546"), ("pos", False, b"2147483545")]
        assert [str(kind) for kind in file.schema_arrow.types] == ["string", "int64"]
        columns = [file.metadata.row_group(0).column(number) for number in (0, 1)]
        assert {column.compression for column in columns} == {"ZSTD"}
        assert "RLE_DICTIONARY" in columns[0].encodings
        assert "DELTA_BINARY_PACKED" in columns[1].encodings
        rows = file.read()
        assert rows.column("file_path").unique().to_pylist() == [data_path]
        assert bitmap is not None
        assert rows.column("pos").to_pylist() == bitmap.to_numpy().tolist()
        assert stored.sizes[row] == Path(path.removeprefix("file:")).stat().st_size
        assert stored.cardinalities[row] == rows.num_rows
        folder, _, name = path.rpartition("/")
        assert folder == f"file:{source.target.root}/deletion-vectors"
        assert name.startswith(digest(ids)[row].as_py() + "-")
    assert len(source.uncommitted.keys) == len(stored)


@pytest.mark.more
def test_more_positions_than_fit_one_piece_go_through_a_file(tmp_path: Path) -> None:
    count = 1_200_000
    vectors = builder(tmp_path).write_vectors(range(1, 2 * count, 2), [3])
    source = source_of(tmp_path, vectors, 2 * count)
    stored = source.as_positions()
    assert stored.cardinalities.tolist() == [count, 1]
    rows = pq.read_table(stored.paths[0].as_py().removeprefix("file:"))
    assert np.array_equal(rows.column("pos").to_numpy(), np.arange(1, 2 * count, 2))
    assert rows.column("file_path").unique().to_pylist() == [source.data_paths[0].as_py()]


def test_a_position_that_the_file_does_not_have_is_refused_if_its_length_is_known(
    tmp_path: Path,
) -> None:
    vectors = builder(tmp_path / "known").write_vectors([5000])
    with pytest.raises(FormatError, match=r"does not have .*part-0\.parquet in "):
        source_of(tmp_path / "known", vectors).as_positions()
    vectors = builder(tmp_path / "unknown").write_vectors([5000])
    source = source_of(tmp_path / "unknown", vectors, rows=None)
    assert source.repacked().cardinalities.tolist() == [1]
    assert source.as_positions().cardinalities.tolist() == [1]


def test_what_was_written_before_a_failure_is_known_to_be_left_over(tmp_path: Path) -> None:
    source = damaged(tmp_path, {"offset": 2})
    with pytest.raises(FormatError), UncommittedFiles(source.target) as uncommitted:
        replace(source, uncommitted=uncommitted).as_positions()
    assert not list(source.target.list(recursive=True))


def formats(*names: str) -> pa.Array:
    return pa.array(names, pa.string())


def test_the_vectors_of_a_target_are_known_by_what_is_stored_with_them(tmp_path: Path) -> None:
    source = every_kind(tmp_path)
    ids = vector_ids(source.files.vectors)
    n = len(source.files)

    stored = source.repacked(most_vectors=4)
    before = source.target.requests
    found = stored_ids(
        stored.paths, pa.array(stored.offsets), formats(*["PUFFIN"] * n), source.target
    )
    assert found.to_pylist() == ids.to_pylist()
    assert source.target.requests.gets - before.gets <= 2 * stored.files_written

    stored = source.as_positions()
    nothing = pa.nulls(n, pa.int64())
    found = stored_ids(stored.paths, nothing, formats(*["parquet"] * n), source.target)
    assert found.to_pylist() == digest(ids).to_pylist()

    kinds = pc.struct_field(source.files.vectors, "storageType").to_numpy(zero_copy_only=False)
    on_disk = source.files.select(kinds != "i")
    placed = reference(on_disk, source.storage)
    found = stored_ids(
        placed.paths, pa.array(placed.offsets), formats(*["PUFFIN"] * len(placed)), source.target
    )
    assert found.to_pylist() == referenced_keys(on_disk, source.storage).to_pylist()
    assert None not in found.to_pylist()
    keys = referenced_keys(source.files, source.storage)
    assert keys.null_count == n - len(on_disk) == 2


def test_what_others_wrote_is_nobody_we_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = every_kind(tmp_path)
    stored = source.repacked()
    ours = stored.paths[0].as_py()
    assert stored.offsets is not None
    good = int(stored.offsets[0])
    foreign = DeletionVector(Bitmap([1]), "file:/x").to_blob()
    source.target.write("data/foreign.puffin", encode([foreign]).data)
    source.target.write("data/cut.puffin", source.container(ours)[:-3])
    source.target.write("data/short.puffin", b"PF")
    root = f"file:{source.target.root}/data"
    names = [f"{root}/{name}.puffin" for name in ("cut", "short", "missing", "../a")]
    elsewhere = ["s3://lake/data/a.puffin", "file://host/data/a.puffin", "data/a.puffin"]
    entries: list[tuple[str, int | None, str]] = [
        *((ours, good, "PUFFIN"), (ours.replace("file:", "file://"), good, "PUFFIN")),
        *((ours, good + 1, "PUFFIN"), (ours, None, "PUFFIN")),
        *((f"{root}/foreign.puffin", 4, "PUFFIN"), (f"{root}/a.bin", None, "PUFFIN")),
        *((name, good, "PUFFIN") for name in (*names, *elsewhere)),
        *((f"{root}/00000-1-deletes.parquet", None, "PARQUET"), (f"{root}/a.orc", None, "ORC")),
    ]
    paths, offsets, kinds = (pa.array(column) for column in zip(*entries, strict=True))
    with caplog.at_level(logging.WARNING, "delvec"):
        found = stored_ids(paths, offsets, kinds, source.target).to_pylist()
    mine = vector_ids(source.files.vectors)[0].as_py()
    assert found == [mine, mine, *[None] * (len(entries) - 2)]
    assert "missing.puffin" in caplog.text
    listing = pa.table({"path": paths, "offset": offsets, "format": kinds})
    chunked = stored_ids(listing["path"], listing["offset"], listing["format"], source.target)
    assert chunked.to_pylist() == found


def test_names_that_need_escapes_arrive_as_they_are(tmp_path: Path) -> None:
    [vector] = builder(tmp_path).write_vectors([1])
    name = 'p=a "b"\\%20ü/part-0.parquet'
    source = table_of(tmp_path, [add("p=a%20%22b%22%5C%2520%C3%BC/part-0.parquet", vector)])
    assert source.files.paths.to_pylist() == [name]
    assert read_back(source, source.repacked()) == source.bitmaps
    path = source.as_positions().paths[0].as_py()
    found = pq.read_table(path.removeprefix("file:")).column("file_path")[0].as_py()
    assert found == f"file:{source.storage.root}/{name}"


@pytest.mark.s3
def test_vectors_travel_between_folders_of_a_bucket(tmp_path: Path, s3: S3Server) -> None:
    table = builder(tmp_path)
    many = 600_000  # goes through a file
    vectors = [*table.write_vectors([0, 9], range(0, 2 * many, 2)), inline(Bitmap([7, 8]))]
    table.create()
    table.commit(*({"add": add(f"part-{n}", v, 2 * many)} for n, v in enumerate(vectors)))
    storage = s3.upload(table.root, "s3a://lake/delta")
    snapshot = DeltaTable.for_path(None, storage.root, s3.storage_options).snapshot()
    target = Storage.open("s3a://lake/iceberg", s3.storage_options)
    names = pc.binary_join_element_wise(storage.root, snapshot.files.paths, "/")
    places = (snapshot.storage, target, "data", UncommittedFiles(target))
    ids = vector_ids(snapshot.files.vectors)

    stored = repack(snapshot.files, names, *places)
    assert stored.paths[0].as_py().startswith("s3a://lake/iceberg/data/")
    kinds = formats(*["PUFFIN"] * 3)
    assert stored_ids(stored.paths, pa.array(stored.offsets), kinds, target).equals(ids)
    key = stored.paths[0].as_py().removeprefix(f"{target.root}/")
    read = deletion_vectors_from_puffin_file(PuffinFile(target.read(key)))
    loaded = load_vectors(snapshot.storage, snapshot.files.data_files())
    expected = dict(zip(names.to_pylist(), loaded, strict=True))
    found = {v.referenced_data_file: Bitmap(v.to_vector().to_numpy()) for v in read}
    assert found == expected

    stored = write_position_deletes(snapshot.files, names, *places)
    for path, bitmap in zip(stored.paths.to_pylist(), loaded, strict=True):
        data = target.read(path.removeprefix(f"{target.root}/"))
        positions = pq.read_table(pa.BufferReader(data)).column("pos").to_numpy()
        assert Bitmap(positions) == bitmap

    on_disk = snapshot.files.select(np.array([True, True, False]))
    placed = reference(on_disk, snapshot.storage)
    assert set(placed.paths.to_pylist()) == {f"{storage.root}/{table.vector_path().name}"}
    assert placed.sizes.tolist() == [table.vector_path().stat().st_size] * 2


MEASURE = """
import sys
import pyarrow.compute as pc
from delvec import DeltaTable
from delvec.conversion.files.repack import write_position_deletes
from delvec.storage.uncommitted import UncommittedFiles
from delvec.storage import Storage
snapshot = DeltaTable.for_path(None, sys.argv[1]).snapshot()
target = Storage.open(sys.argv[2])
names = pc.binary_join_element_wise("file:" + sys.argv[1], snapshot.files.paths, "/")
stored = write_position_deletes(
    snapshot.files, names, snapshot.storage, target, "deletes", UncommittedFiles(target)
)
with open("/proc/self/status") as status:  # unlike getrusage, without what the parent took
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM")]
print(int(stored.cardinalities.sum()), int(peak) * 1024)
"""


def peak_of(tmp_path: Path, count: int) -> int:
    """Bytes at most for a file of which every second row is deleted."""
    pages = -(-2 * count // 32768)
    octets = np.full(pages * 4096, 0b0101_0101, dtype=np.uint8)
    bitmap = Bitmap.from_pages(np.arange(1, pages + 1), octets)
    bitmap -= Bitmap.from_ranges([2 * count], [pages * 32768])
    root = tmp_path / f"{count}"
    table = TableBuilder(root)
    [file] = pack([bitmap], target_size=2**30)
    root.mkdir()
    (root / file.path).write_bytes(file.data)
    table.create()
    table.commit({"add": add("part-0.parquet", file.descriptors[0].to_json(), 2 * count)})
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(root), str(root / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, peak = map(int, done.stdout.split())
    assert rows == count
    [written] = (root / "out" / "deletes").glob("*.parquet")
    metadata = pq.ParquetFile(written).metadata
    assert metadata.num_rows == count
    return peak


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_number_of_deleted_rows(tmp_path: Path) -> None:
    # The bitmap itself takes 25 MB more, twice: as it is read, and decoded.
    assert peak_of(tmp_path, 100_000_000) - peak_of(tmp_path, 1_000_000) < 150 << 20
