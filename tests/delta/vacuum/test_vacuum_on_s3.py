"""VACUUM and cleaning of the log in an object store."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from pyarrow.fs import S3FileSystem

from delvec import DeltaTable
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, small_table
from tests.delta.vacuum.aging import DAY, tombstone
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


def uploaded(s3: S3Server, table: TableBuilder, uri: str) -> Storage:
    """Copy a table into the bucket, with files that are a month old."""
    storage = s3.upload(table.root, uri)
    age(s3, storage)
    return storage


def age(s3: S3Server, storage: Storage) -> None:
    """Date the server's files back: it tells their times."""
    moment = time.time() - 30 * DAY
    folder = s3.folder / "lake" / storage.root.removeprefix("s3://lake/")
    for path in folder.rglob("*"):
        os.utime(path, (moment, moment))


def keys(storage: Storage) -> set[str]:
    found = {info.key for info in storage.list(recursive=True) if info.size}
    return {key for key in found if not key.startswith("_delta_log")}


def test_a_flat_table(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/some/orders"
    table, live = small_table(tmp_path / "t")
    [vector] = table.write_vectors([1])
    # A vector by its full name, inside the table.
    name = next(p.name for p in table.root.glob("*.bin") if p.name != table_vector(live[0]))
    own = vector | {"storageType": "p", "pathOrInlineDv": f"s3a://lake/some/orders/{quote(name)}"}
    table.commit(tombstone(live[1], 30), {"add": live[1] | {"deletionVector": own}})
    for orphan in ("orphan.parquet", "a/b/orphan.parquet", "_hidden/x"):
        (table.root / orphan).parent.mkdir(parents=True, exist_ok=True)
        (table.root / orphan).write_bytes(b"x")
    storage = uploaded(s3, table, uri)
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    before = sorted(handle.to_arrow().column("id").to_pylist())
    report = handle.vacuum()
    assert sorted(report.files["path"].to_pylist()) == ["a/b/orphan.parquet", "orphan.parquet"]
    assert report.files_deleted == 2
    assert "_hidden/x" in keys(storage)
    assert sorted(handle.to_arrow().column("id").to_pylist()) == before
    assert handle.vacuum().files_deleted == 0


def table_vector(add: dict[str, object]) -> str:
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
    storage = uploaded(s3, table, uri)
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    report = handle.vacuum()
    assert (report.files_deleted, report.files_kept) == (71, 69)
    assert keys(storage) == {f"day={day}/1.parquet" for day in range(1, 70)}
    assert handle.vacuum(dry_run=True, lite=True).files.num_rows == 0


def test_markers_of_folders_are_no_files(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/marked"
    table, _ = small_table(tmp_path / "t")
    storage = uploaded(s3, table, uri)
    arrow = S3FileSystem(
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        endpoint_override=s3.endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    arrow.create_dir("lake/marked/x")  # puts the object `x/`, as Hadoop does
    age(s3, storage)
    assert "x" in {info.key for info in storage.list(recursive=True)}
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    assert handle.vacuum(dry_run=True).files.num_rows == 0


def test_the_log_is_cleaned(s3: S3Server, tmp_path: Path) -> None:
    uri = "s3://lake/logged"
    table = TableBuilder.made(tmp_path / "t")
    for number in range(5):
        table.append(f"{number}.parquet", {"id": [number]})
    table.handle.checkpoint()
    storage = uploaded(s3, table, uri)
    properties = {"delta.logRetentionDuration": "interval 1 day"}
    handle = DeltaTable.for_path(None, uri, s3.storage_options)
    handle.set_properties(properties)
    assert handle.clean_log().files == {"commit": 5}
    assert sorted(handle.to_arrow().column("id").to_pylist()) == list(range(5))
    assert json.loads(storage.read("_delta_log/_last_checkpoint"))["version"] == 5
