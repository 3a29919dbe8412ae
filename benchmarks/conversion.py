"""Delta to Iceberg: against rewriting the table, decoding vectors, and one commit per version."""

from __future__ import annotations

import os
import shutil
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from benchmarks.delta import folder, large, session
from benchmarks.runner import Contest, Peer, benchmark
from delvec.conversion.files.repack import repack
from delvec.conversion.planning.target_files import target_paths
from delvec.delta.alter.definition import new_table
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.footer_statistics import file_statistics
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.skipping.predicate import Always
from delvec.delta.skipping.statistics import statistics_json
from delvec.delta.write.change import Base, Change, Operation, ReadSet, VectorUpdate
from delvec.delta.write.commit import commit
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap, puffin
from delvec.vector.blobs import DeletionVector

if TYPE_CHECKING:
    from delvec.delta.log.snapshot import Snapshot

# Goals: 20 times as fast as rewriting the table, 5 times as fast as decoding its vectors.
REWRITE_AT_MOST = 0.05
DECODE_AT_MOST = 0.2
ROUNDS = 3
FILES = 100_000
ROWS_OF_A_FILE = 1000
MOST_LINKS = 50_000  # that file systems allow

_numbers = count()


def new_name() -> str:
    return f"lake.bench.t{next(_numbers)}"


def dropped(name: str) -> None:
    session().sql(f"DROP TABLE IF EXISTS {name}")


@benchmark("convert-20m-rows")
def convert_large() -> Contest:
    spark, path = session(), large()
    names = [new_name(), new_name()]

    def ours() -> object:
        return delvec.convert(spark, path, names[0])

    def theirs() -> None:
        # A write to Iceberg cannot read by delta-spark; delvec's reader is faster in any case.
        rows = delvec.DeltaTable.for_path(spark, path).to_df()
        rows.writeTo(names[1]).using("iceberg").tableProperty("format-version", "3").create()

    def prepare() -> None:
        for name in names:
            dropped(name)

    def agree(*_: object) -> None:
        sums = [
            spark.table(name).selectExpr("count(*)", "sum(id)", "sum(hash(s))").collect()
            for name in names
        ]
        assert sums[0] == sums[1], sums

    peer = Peer("rewritten by Spark", theirs, REWRITE_AT_MOST)
    return Contest(ours, [peer], agree, ROUNDS, prepare, warm_ups=1)


@cache
def many_files() -> str:
    """Create 100,000 small files, each with a vector; the data files are hard links to one."""
    path = folder() / "many"
    schema = StructType((Field("id", PrimitiveType("long")), Field("v", PrimitiveType("double"))))
    storage, state = Storage.open(path), new_table(schema, [])
    base = Base(storage, -1, state.protocol, state.metadata)
    put(base, Change(Operation("CREATE TABLE"), protocol=state.protocol, metadata=state.metadata))
    snapshot = open_snapshot(storage)
    put(Base.of(snapshot), Change(Operation("WRITE"), added=tuple(linked(snapshot, "part", FILES))))
    snapshot = open_snapshot(storage)
    delete_every(snapshot, range(FILES), 7)
    return str(path)


def linked(snapshot: Snapshot, name: str, files: int) -> list[dict[str, Any]]:
    root = Path(snapshot.table)
    ids = np.arange(ROWS_OF_A_FILE)
    first = root / f"{name}-0.parquet"
    pq.write_table(pa.table({"id": ids, "v": ids / 3}), first)
    footer = pq.read_metadata(first)
    stats = statistics_json(file_statistics(snapshot.metadata, footer, tight_bounds=True))
    for number in range(1, files):
        link = root / f"{name}-{number}.parquet"
        if number % MOST_LINKS:
            os.link(first, link)
        else:
            first = Path(shutil.copy(first, link))
    size = first.stat().st_size
    return [
        {
            "path": f"{name}-{number}.parquet",
            "partitionValues": {},
            "size": size,
            "modificationTime": 1_769_000_000_000,
            "dataChange": True,
            "stats": stats,
        }
        for number in range(files)
    ]


def delete_every(snapshot: Snapshot, rows: range, step: int) -> None:
    """Delete every `step`-th row of some files."""
    files = snapshot.files.select(np.array(rows))
    old = load_vectors(snapshot.storage, files.data_files())
    fresh = Bitmap(range(0, ROWS_OF_A_FILE, step))
    updates = tuple(
        VectorUpdate(file, ROWS_OF_A_FILE, fresh if before is None else before | fresh)
        for file, before in zip(files.entries(), old, strict=True)
    )
    put(
        Base.of(snapshot),
        Change(Operation("DELETE", reads=ReadSet(Always())), vector_updates=updates),
    )


def put(base: Base, change: Change) -> None:
    with UncommittedFiles(base.storage) as uncommitted:
        commit(base, change, uncommitted)


@benchmark("repack-100k-vectors")
def repack_many() -> Contest:
    snapshot = open_snapshot(Storage.open(many_files()))
    files = snapshot.files
    paths = target_paths(snapshot.table, files.paths)
    target = folder() / "repacked"

    def fresh() -> Storage:
        shutil.rmtree(target, ignore_errors=True)
        return Storage.open(target)

    def ours() -> int:
        storage = fresh()
        uncommitted = UncommittedFiles(storage)
        return len(repack(files, paths, snapshot.storage, storage, "data", uncommitted))

    def decoded() -> int:
        storage = fresh()
        vectors = load_vectors(snapshot.storage, files.data_files())
        pairs = zip(vectors, paths.to_pylist(), strict=True)
        blobs = [DeletionVector(vector, path).to_blob() for vector, path in pairs if vector]
        storage.write("data/all.puffin", puffin.encode(blobs).data)
        return len(blobs)

    def agree(*counts: object) -> None:
        assert set(counts) == {FILES}, counts

    return Contest(ours, [Peer("decoded and encoded", decoded, DECODE_AT_MOST)], agree, ROUNDS)


@benchmark("convert-100k-files")
def convert_many() -> Contest:
    """An increment of ten files, against the first conversion of all."""
    spark = session()
    path, first, second = many_files(), new_name(), new_name()
    delvec.convert(spark, path, first)

    def prepare() -> None:
        dropped(second)
        delete_every(open_snapshot(Storage.open(path)), range(10), 2 + next(_numbers) % 5)

    def increment() -> object:
        report = delvec.convert(spark, path, first)
        assert report.vectors_replaced == 10, report
        return report.requests

    def whole() -> object:
        return delvec.convert(spark, path, second).requests

    return Contest(increment, [Peer("first conversion", whole)], rounds=ROUNDS, prepare=prepare)


@benchmark("convert-100-versions")
def backlog() -> Contest:
    """A backlog of 100 versions at once, and snapshot by snapshot, against one by one."""
    spark = session()
    path = str(folder() / "backlog")
    rows = spark.range(0, 1000, 1, 2).selectExpr("id", "id % 7 k")
    table = delvec.DeltaTable.create(spark, path, rows.schema)
    table.append(rows)
    for number in range(100):
        table.delete(f"id = {number}")
    names = [new_name() for _ in range(3)]

    def prepare() -> None:
        for name in names:
            dropped(name)
            delvec.convert(spark, path, name, version=1)

    def one_by_one() -> None:
        for version in range(2, 102):
            delvec.convert(spark, path, names[1], version=version)

    def by_version() -> None:
        delvec.convert(spark, path, names[2], history="per-version")

    def agree(*_: object) -> None:
        assert {spark.table(name).count() for name in names} == {900}

    peers = [Peer("one by one", one_by_one), Peer("a snapshot for each", by_version)]
    return Contest(lambda: delvec.convert(spark, path, names[0]), peers, agree, 1, prepare)
