"""Delta tables in an object store: the same rows and rules, and few requests."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import S3FileSystem

from delvec import DeltaTable
from delvec.delta.maintain import available_files
from delvec.errors import ObjectNotFoundError
from delvec.storage import Storage
from tests.delta.builder import Action, TableBuilder, removed, small_table
from tests.delta.check.checks import INLINE, found, table_with
from tests.delta.vacuum.aging import DAY, tombstone
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3

FILES = 20
URI = "s3://lake/some/orders"


def spaced(builder: TableBuilder, files: int) -> list[Action]:
    """Commit files of ten rows each, in a folder with a space in its name."""
    adds = []
    for number in range(files):
        rows = {"id": range(10 * number, 10 * number + 10)}
        add = builder.write_file(f"a b/part-{number}.parquet", rows)
        adds.append(add | {"path": add["path"].replace(" ", "%20")})
    builder.add(*adds)
    return adds


def ids_of(table: DeltaTable) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


@pytest.fixture(scope="module")
def table(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Twenty files with vectors, of which ten share a `.bin` file; version 1 has no vectors."""
    root = tmp_path_factory.mktemp("local") / "t"
    builder = TableBuilder.made(root)
    adds = spaced(builder, FILES)
    vectors = builder.write_vectors(*([number % 10] for number in range(10)))
    for number in range(10, FILES):
        vectors += builder.write_vectors([number % 10])
    marked = (add | {"deletionVector": each} for add, each in zip(adds, vectors, strict=True))
    builder.commit(*({"remove": removed(add)} for add in adds), *({"add": add} for add in marked))
    s3.upload(root, URI)
    return DeltaTable.for_path(None, URI, s3.storage_options)


def test_the_same_rows_come_from_a_bucket(table: DeltaTable) -> None:
    expected = [number for number in range(FILES * 10) if number // 10 % 10 != number % 10]
    assert (ids_of(table), table.count()) == (expected, len(expected))
    files = table.to_arrow([("id", "=", 5)], ["id", "_file"]).to_pylist()
    assert files == [{"id": 5, "_file": f"{URI}/a b/part-0.parquet"}]


def test_a_vector_costs_at_most_one_request(table: DeltaTable) -> None:
    def gets(version: int) -> int:
        before = table.storage.requests
        _ = table.snapshot(version).files
        opened = table.storage.requests
        table.to_arrow(version=version)
        return (table.storage.requests - opened).gets - (opened - before).gets

    with_vectors, without = gets(2), gets(1)
    assert without == FILES
    # Ten vectors in one file come with one GET, the ten others with one each.
    assert with_vectors - without == 11


def uploaded(s3: S3Server, root: Path, name: str) -> DeltaTable:
    uri = f"s3://lake/{name}"
    s3.upload(root, uri)
    return DeltaTable.for_path(None, uri, s3.storage_options)


def test_traces_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    builder.write_file("a b/orphan.parquet", {"id": [9]})
    # The log may name the table's own files in full, by another name of the same store.
    full = builder.write_file("full.parquet", {"id": [9]})
    builder.add(full | {"path": "s3a://lake/traced/full.parquet"})
    table = uploaded(s3, tmp_path, "traced")
    report = table.traces([("id", "=", 9)])
    assert {place.path: place.kind for place in report.places} == {
        "a b/orphan.parquet": "orphan",
        "full.parquet": "live",
        "part-0.parquet": "deleted",
    }
    assert table.traces([("id", "=", 99)]).is_empty


def test_a_downgrade_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    TableBuilder.made(tmp_path).append("a.parquet", {"id": [1]})
    table = uploaded(s3, tmp_path, "downgraded")
    table.drop_deletion_vectors()
    assert "deletionVectors" not in table.protocol.features
    assert table.to_arrow()["id"].to_pylist() == [1]


def test_files_that_are_gone_or_cut_short(tmp_path: Path, s3: S3Server) -> None:
    small_table(tmp_path)
    table = uploaded(s3, tmp_path, "checked")
    before = table.storage.requests
    report = table.check(sample=0)
    used = table.storage.requests - before
    assert (report.findings, report.vectors, used.heads) == ((), 2, 0)  # sizes are listed
    [vectors] = tmp_path.glob("*.bin")
    table.storage.write(vectors.name, vectors.read_bytes()[:-3])
    table.storage.write("orphan.parquet", b"0123456789")
    table.storage.delete(["part-0.parquet"])
    assert found(table.check()) == [
        ("error", "damaged-vector", "part-1.parquet"),
        ("error", "missing-file", "part-0.parquet"),
        ("info", "orphan-data-file", "orphan.parquet"),
    ]


def test_a_vector_in_the_log_is_stored_anew(tmp_path: Path, s3: S3Server) -> None:
    table_with(tmp_path, INLINE)
    table = uploaded(s3, tmp_path, "inline")
    report = table.check(repair=True)
    assert (report.findings, report.repaired_version, report.vector_files) == ((), 3, 1)
    assert ids_of(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


MANY = 30


@pytest.fixture
def many(s3: S3Server, tmp_path: Path) -> DeltaTable:
    """Thirty files; version 2 has vectors for all of them, in one file, version 3 has no files."""
    builder = TableBuilder.made(tmp_path / "t")
    adds = spaced(builder, MANY)
    stats = {"stats": '{"numRecords": 10, "tightBounds": false}'}
    vectors = builder.write_vectors(*([9] for _ in adds))
    marked = [a | stats | {"deletionVector": v} for a, v in zip(adds, vectors, strict=True)]
    gone, last = ([tombstone(add, 0) for add in some] for some in (adds, marked))
    builder.commit(*gone, *({"add": add} for add in marked))
    builder.commit(*last)
    return uploaded(s3, builder.root, f"{tmp_path.name}/orders")


@pytest.mark.parametrize("by_listing", [False, True])
def test_a_restore_looks_for_all_files_first(many: DeltaTable, *, by_listing: bool) -> None:
    with patch.object(available_files, "_SINGLY", 0 if by_listing else 1000):
        report = many.restore(2)
    assert many.count() == MANY * 9
    # All data files and the one file of vectors; beside what every commit asks for.
    assert (report.requests.heads > MANY) == (not by_listing)
    assert report.requests.heads <= MANY + 5
    many.restore(3)
    [vector] = [info.key for info in many.storage.list() if info.key.endswith(".bin")]
    many.storage.delete([vector])
    with pytest.raises(ObjectNotFoundError, match="deletion_vector"):
        many.restore(2)
    if by_listing:  # which shows all that is inside: nothing is asked for again
        with (
            patch.object(available_files, "_SINGLY", 0),
            patch.object(available_files, "_each", return_value=set()) as each,
        ):
            assert available_files.missing_files(many.storage, [vector]) == [vector]
        each.assert_called_once_with(many.storage, set())
    many.restore(1)
    assert many.count() == MANY * 10


def test_statistics_are_computed_from_live_rows(many: DeltaTable) -> None:
    many.restore(2)
    report = many.recompute_statistics()
    assert (report.files_scanned, many.count([("id", "=", 9)])) == (MANY, 0)
    # One for each data file, one for all vectors, and some for the log.
    assert report.requests.gets < MANY + 20


def test_a_clone_refers_to_files_of_its_source(many: DeltaTable, s3: S3Server) -> None:
    many.restore(2)
    uri = many.storage.root.replace("orders", "copies/orders")
    many.clone(uri)
    clone = DeltaTable.for_path(None, uri, s3.storage_options)
    assert ids_of(clone) == ids_of(many)
    paths = clone.snapshot().files.paths.to_pylist()
    assert all(path.startswith(f"{many.storage.root}/a b/") for path in paths)
    keys = [info.key for info in clone.storage.list(recursive=True)]
    assert keys == ["_delta_log/00000000000000000000.json"]


def test_a_folder_becomes_a_table(s3: S3Server, tmp_path: Path) -> None:
    uri, storage = f"s3://lake/{tmp_path.name}/folder", None
    storage = Storage.open(uri, s3.storage_options)
    for number in range(20):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [number]}), sink)
        storage.write(f"day=2026-01-{number + 1:02}/a b.parquet", sink.getvalue())
    storage.write("day=2026-02-01", b"")  # a marker of Hadoop
    DeltaTable.convert_to_delta(None, uri, storage_options=s3.storage_options)
    table = DeltaTable.for_path(None, uri, s3.storage_options)
    assert table.to_arrow([("day", ">", "2026-01-18")])["id"].to_pylist() == [18, 19]
    assert table.count() == 20


def aged_in_bucket(s3: S3Server, table: TableBuilder, uri: str) -> Storage:
    """Copy a table into the bucket, with files that are a month old."""
    storage = s3.upload(table.root, uri)
    age_in_bucket(s3, storage)
    return storage


def age_in_bucket(s3: S3Server, storage: Storage) -> None:
    """Date the server's files back: it tells their times."""
    moment = time.time() - 30 * DAY
    for path in (s3.folder / "lake" / storage.root.removeprefix("s3://lake/")).rglob("*"):
        os.utime(path, (moment, moment))


def keys(storage: Storage) -> set[str]:
    found = {info.key for info in storage.list(recursive=True) if info.size}
    return {key for key in found if not key.startswith("_delta_log")}


def test_a_flat_table(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/some/flat"
    table, live = small_table(tmp_path / "t")
    [vector] = table.write_vectors([1])
    # A vector by its full name, inside the table.
    name = next(p.name for p in table.root.glob("*.bin") if p.name != vector_name(live[0]))
    own = vector | {"storageType": "p", "pathOrInlineDv": f"s3a://lake/some/flat/{quote(name)}"}
    table.commit(tombstone(live[1], 30), {"add": live[1] | {"deletionVector": own}})
    for orphan in ("orphan.parquet", "a/b/orphan.parquet", "_hidden/x"):
        (table.root / orphan).parent.mkdir(parents=True, exist_ok=True)
        (table.root / orphan).write_bytes(b"x")
    storage = aged_in_bucket(s3, table, uri)
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    before = ids_of(handle)
    report = handle.vacuum()
    assert sorted(report.files["path"].to_pylist()) == ["a/b/orphan.parquet", "orphan.parquet"]
    assert report.files_deleted == 2
    assert "_hidden/x" in keys(storage)
    assert (ids_of(handle), handle.vacuum().files_deleted) == (before, 0)


def vector_name(add: dict[str, object]) -> str:
    from delvec.vector import Descriptor  # noqa: PLC0415

    return str(Descriptor.from_json(add["deletionVector"]).file_path)  # type: ignore[arg-type]


def test_partitions_are_listed_side_by_side(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/days"
    table = TableBuilder.made(
        tmp_path / "t", fields={"id": "long", "day": "long"}, partition_columns=["day"]
    )
    adds = []
    for day in range(70):
        adds.append(table.write_file(f"day={day}/1.parquet", {"id": [day]}, {"day": str(day)}))
        (table.root / f"day={day}/orphan.parquet").write_bytes(b"x")
    table.add(*adds)
    table.commit(tombstone(adds[0], 8))
    storage = aged_in_bucket(s3, table, uri)
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    report = handle.vacuum()
    assert (report.files_deleted, report.files_kept) == (71, 69)
    assert keys(storage) == {f"day={day}/1.parquet" for day in range(1, 70)}
    assert handle.vacuum(dry_run=True, lite=True).files.num_rows == 0


def test_markers_of_folders_are_no_files(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/marked"
    table, _ = small_table(tmp_path / "t")
    storage = aged_in_bucket(s3, table, uri)
    arrow = S3FileSystem(
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        endpoint_override=s3.endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    arrow.create_dir("lake/marked/x")  # puts the object `x/`, as Hadoop does
    age_in_bucket(s3, storage)
    assert "x" in {info.key for info in storage.list(recursive=True)}
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    assert handle.vacuum(dry_run=True).files.num_rows == 0


def test_the_log_is_cleaned(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/logged"
    table = TableBuilder.made(tmp_path / "t")
    for number in range(5):
        table.append(f"{number}.parquet", {"id": [number]})
    table.handle.checkpoint()
    storage = aged_in_bucket(s3, table, uri)
    properties = {"delta.logRetentionDuration": "interval 1 day"}
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    handle.set_properties(properties)
    assert (handle.clean_log().files, ids_of(handle)) == ({"commit": 5}, list(range(5)))
    assert json.loads(storage.read("_delta_log/_last_checkpoint"))["version"] == 5
