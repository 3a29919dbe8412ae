"""The door to Iceberg, on two catalogs: one of folders, one in a database."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.errors import (
    ConflictError,
    InvalidArgumentError,
    MissingDependencyError,
    PlanError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VerificationError,
)
from delvec.iceberg.client import catalog
from delvec.iceberg.client.catalog import (
    LoadedTable,
    TableName,
    find_table,
    iceberg_view,
    load_table,
    table_name,
)
from delvec.iceberg.client.content_files import data_file_json, delete_file_json
from delvec.iceberg.client.files import snapshot_files, snapshot_rows
from delvec.iceberg.commit.publish import (
    NewSnapshot,
    NewTable,
    Staged,
    abandon,
    begin,
    publish,
    stage,
)
from delvec.iceberg.commit.refs import remove
from delvec.iceberg.commit.row_delta import RowChange
from delvec.spark import jvm
from delvec.vector import Bitmap, blobs
from delvec.vector.frame import encode_frame
from delvec.vector.frame_batch import Frames
from tests.conversion.targets import branches, ids, numbered
from tests.delta.builder import small_table

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 7, "name": "id", "required": False, "type": "long"}],
}
MAPPING = {"schema.name-mapping.default": json.dumps([{"field-id": 7, "names": ["id"]}])}
SPEC: dict[str, Any] = {"spec-id": 0, "fields": []}


@pytest.fixture(scope="module", autouse=True)
def database(spark: SparkSession) -> None:
    for name in ("lake", "sqlite"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.doors")


@pytest.fixture(params=["lake", "sqlite"])
def name(request: pytest.FixtureRequest) -> TableName:
    return TableName(request.param, ("doors",), f"t_{uuid4().hex[:8]}")


def file_of(folder: Path, *values: int) -> str:
    path = folder / f"{uuid4()}.parquet"
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), path)
    return f"file:{path}"


def described(folder: Path, *paths: str) -> pa.Array:
    """Describe data files as they are on disk."""
    places = [folder / path.rpartition("/")[2] for path in paths]
    return data_file_json(
        pa.array(paths),
        np.array([place.stat().st_size for place in places]),
        pa.array([pq.read_metadata(place).num_rows for place in places]),
        0,
        pa.array(["[]"] * len(paths)),
        pa.array([""] * len(paths)),
    )


def vector_of(folder: Path, data_path: str, *positions: int) -> tuple[str, pa.Array]:
    """Write a vector; give its key in the table and its description."""
    frames = Frames.join([encode_frame(Bitmap(list(positions)))])
    names = pa.array([data_path])
    data, offsets = blobs.from_frames(frames, names, np.array([len(positions)]))
    path = folder / f"{uuid4()}.puffin"
    path.write_bytes(data)
    text = delete_file_json(
        pa.array([f"file:{path}"]),
        np.array([len(data)]),
        np.array([len(positions)]),
        names,
        0,
        pa.array(["[]"]),
        frames=(offsets, frames.lengths),
    )
    return f"file:{path}@{offsets[0]}", text


def staged(
    spark: SparkSession, name: TableName, base: LoadedTable | None, change: RowChange
) -> Staged:
    start = base or NewTable(SCHEMA, 7, SPEC, 3)
    table = begin(spark, name, start)
    spec_id = table.metadata.spec["spec-id"]
    return stage(table, f"b_{uuid4().hex}", [NewSnapshot(change)], MAPPING, spec_id)


def made(spark: SparkSession, name: TableName, folder: Path, *values: int) -> LoadedTable:
    """Make a table of one file."""
    files = described(folder, file_of(folder, *values))
    return publish(staged(spark, name, None, RowChange(files)), {"made": "here"})


def test_names_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.doors.inner")
    names: dict[str, TableName | str] = {
        "lake.doors.t": TableName("lake", ("doors",), "t"),
        "lake.doors.inner.t": TableName("lake", ("doors", "inner"), "t"),
        "lake.`a b`.`t``x`": TableName("lake", ("a b",), "t`x"),
        "lake.doors.`a.b`": TableName("lake", ("doors",), "a.b"),
        "sqlite.doors.t": TableName("sqlite", ("doors",), "t"),
        # Only plain letters go without quotes; variables never.
        "`lake`.`doors`.ü": "ü",
        "lake.doors.`${env:NOT_THERE}`": r"has \$\{ in it",
        "lake.t": r"catalog\.database\.table",
        **dict.fromkeys(("", "a..b", "lake.doors.t t", "lake.doors.t; DROP TABLE x"), "."),
        "lake.doors.`t": ".",
    }
    for text, expected in names.items():
        if isinstance(expected, str):
            with pytest.raises(InvalidArgumentError, match=expected):
                table_name(spark, text)
            continue
        assert (table_name(spark, text), table_name(spark, str(expected))) == (expected, expected)
    spark.catalog.setCurrentCatalog("lake")
    try:
        spark.sql("USE lake.doors")
        assert table_name(spark, "t") == TableName("lake", ("doors",), "t")
        assert table_name(spark, "inner.t") == TableName("lake", ("inner",), "t")
        assert table_name(spark, "sqlite.doors.t") == TableName("sqlite", ("doors",), "t")
    finally:
        spark.catalog.setCurrentCatalog("spark_catalog")


@pytest.mark.parametrize("text", ["spark_catalog.default.t", "default.t", "nowhere.doors.t", "t"])
def test_a_catalog_of_others_is_refused(spark: SparkSession, tmp_path: Path, text: str) -> None:
    small_table(tmp_path / "source")
    with pytest.raises((InvalidArgumentError, TableNotFoundError)) as refused:
        delvec.convert(spark, tmp_path / "source", text)
    assert "spark_catalog" in str(refused.value)
    assert refused.value.hint


@pytest.mark.more
def test_a_table_in_a_namespace_that_is_not_there_is_refused_with_the_statement_that_helps(
    spark: SparkSession, tmp_path: Path
) -> None:
    small_table(tmp_path / "source")
    with pytest.raises(TableNotFoundError, match=r"CREATE NAMESPACE sqlite\.nowhere"):
        delvec.convert(spark, tmp_path / "source", "sqlite.nowhere.t")
    assert find_table(spark, TableName("sqlite", ("nowhere",), "t")) is None
    # Folders need no making.
    delvec.convert(spark, tmp_path / "source", "lake.nowhere.t")
    assert len(ids(spark, "lake.nowhere.t")) == 16


def test_a_table_is_none_until_it_is_there(
    spark: SparkSession, name: TableName, tmp_path: Path
) -> None:
    assert find_table(spark, name) is None
    with pytest.raises(TableNotFoundError, match=name.table):
        load_table(spark, name)
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    table = load_table(spark, name)
    assert table.metadata.head() is None
    assert table.metadata.refs == {}
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    # What was loaded is as it was; a new look shows the commit.
    assert table.metadata.head() is None
    loaded = load_table(spark, name)
    [head] = loaded.metadata.ancestors()
    assert head.operation == "append"
    assert head.parent_id is None
    spark.sql(f"DROP TABLE {name}")
    assert find_table(spark, name) is None
    with pytest.raises((TableNotFoundError, PlanError)):
        staged(spark, name, loaded, RowChange())
    assert find_table(spark, name) is None
    made(spark, name, tmp_path, 4, 5)
    assert ids(spark, str(name)) == [4, 5]


@pytest.mark.parametrize(
    "name", ["lake", pytest.param("sqlite", marks=pytest.mark.slow)], indirect=True
)
def test_what_is_staged_is_seen_on_its_branch_alone_until_it_is_published(
    spark: SparkSession, name: TableName, tmp_path: Path
) -> None:
    first = file_of(tmp_path, 1, 2, 3)
    new = staged(spark, name, None, RowChange(described(tmp_path, first)))
    assert new.parent is None
    assert (ids(spark, str(name)), ids(spark, str(name), f"'{new.branch}'")) == ([], [1, 2, 3])
    table = publish(new, {"told": "1"})
    assert (table.metadata.properties["told"], table.metadata.schema["fields"][0]["id"]) == ("1", 7)
    assert (set(table.metadata.refs), ids(spark, str(name))) == ({"main"}, [1, 2, 3])

    second = file_of(tmp_path, 4, 5)
    key, vector = vector_of(tmp_path, first, 0, 2)
    change = RowChange(
        described(tmp_path, second),
        vector,
        data_with_new_deletes=pa.array([first]),
        summary={"why": "test"},
    )
    more = staged(spark, name, table, change)
    assert ids(spark, str(name)) == [1, 2, 3]
    assert sorted(row.id for row in snapshot_rows(more.table, more.snapshot_id).collect()) == [
        2,
        4,
        5,
    ]
    head = table.metadata.head()
    assert head is not None
    for snapshot, files, deletes in ((head.id, 1, 0), (more.snapshot_id, 2, 1)):
        assert len(snapshot_files(more.table, snapshot).data) == files
        assert len(snapshot_files(more.table, snapshot).deletes) == deletes
    [entry] = snapshot_files(more.table, more.snapshot_id).deletes.to_pylist()
    assert f"{entry['file_path']}@{entry['content_offset']}" == key
    assert (entry["referenced_data_file"], entry["record_count"]) == (first, 2)
    assert (entry["content"], entry["file_format"].lower()) == (1, "puffin")
    for count in (1, 700):  # few names are a condition, many are joined
        some = pa.array([first, *(f"file:/nowhere/{at}" for at in range(count))])
        found = snapshot_files(more.table, more.snapshot_id, some).data.to_pylist()
        assert [(row["file_path"], row["record_count"]) for row in found] == [(first, 3)]
        assert len(snapshot_files(more.table, more.snapshot_id, some).deletes) == 1
        assert len(snapshot_files(more.table, more.snapshot_id, some[1:]).deletes) == 0
    spark.sql(f"ALTER TABLE {name} CREATE TAG told AS OF VERSION {more.snapshot_id}")
    published = publish(more, {})
    assert set(published.metadata.refs) == {"main", "told"}
    assert [snapshot.summary.get("why") for snapshot in published.metadata.ancestors()] == [
        "test",
        None,
    ]
    assert ids(spark, str(name)) == ids(spark, str(name), "'told'") == [2, 4, 5]

    # The vector and the second file go again.
    back = RowChange(removed_data=pa.array([second]), removed_deletes=pa.array([key]))
    taken = publish(staged(spark, name, published, back), {})
    assert ids(spark, str(name)) == [1, 2, 3]
    newest = taken.metadata.head()
    assert newest is not None
    assert len(snapshot_files(taken, newest.id).deletes) == 0
    assert [row["file_path"] for row in snapshot_files(taken, newest.id).data.to_pylist()] == [
        first
    ]


def test_a_change_that_does_not_fit_is_refused_and_leaves_no_branch(
    spark: SparkSession, name: TableName, tmp_path: Path
) -> None:
    table = made(spark, name, tmp_path, 1, 2)
    nowhere = pa.array(["file:/nowhere"])
    for change in (RowChange(removed_data=nowhere), RowChange(removed_deletes=nowhere)):
        with pytest.raises(PlanError):
            staged(spark, name, table, change)
        assert set(load_table(spark, name).metadata.refs) == {"main"}
    assert ids(spark, str(name)) == [1, 2]
    # The same table, with a change that does fit.
    done = staged(spark, name, table, RowChange(described(tmp_path, file_of(tmp_path, 3))))
    abandon(done)
    assert (set(load_table(spark, name).metadata.refs), ids(spark, str(name))) == ({"main"}, [1, 2])


def test_snapshots_of_old_metadata_stay(
    spark: SparkSession, name: TableName, tmp_path: Path
) -> None:
    made(spark, name, tmp_path, 1)
    for number in (2, 3):
        spark.sql(f"INSERT INTO {name} VALUES ({number})")
    table = load_table(spark, name)
    newest, _, oldest = (each.id for each in table.metadata.ancestors())
    spark.sql(f"ALTER TABLE {name} CREATE TAG theirs AS OF VERSION {oldest}")
    # A REST catalog would not compare the metadata, and would remove the tag.
    with numbered() as calls, pytest.raises(ConflictError, match="somebody else"):
        remove(table, [oldest], [])
    assert (calls.names, branches(spark, str(name))) == ([], {"main", "theirs"})

    spark.sql(f"ALTER TABLE {name} DROP TAG theirs")
    table = load_table(spark, name)
    wanted = remove(table, [oldest], [], dry_run=True)
    view = iceberg_view(spark)

    def as_rest_catalogs_do(_: Any) -> None:  # noqa: ANN401
        """Commit to metadata that somebody has rolled back since it was compared."""
        now = load_table(spark, name)
        builder = view.TableMetadata.buildFrom(now.current).setBranchSnapshot(oldest, "main")
        for change in wanted.current.changes():
            change.applyTo(builder)
        now.handle.operations().commit(now.current, builder.build())

    with (
        numbered({0: as_rest_catalogs_do}),
        pytest.raises(VerificationError, match="has lost main") as lost_main,
    ):
        remove(table, [oldest], [])
    assert str(table.current.metadataFileLocation()) in str(lost_main.value.hint)
    assert newest in load_table(spark, name).metadata.snapshots


def test_a_spark_connect_client_is_refused(tmp_path: Path) -> None:
    class ConnectSession:
        """As pyspark.sql.connect.session.SparkSession, which has no JVM."""

    client: Any = ConnectSession()
    small_table(tmp_path / "source")
    for act in (delvec.convert, delvec.plan_conversion):
        with pytest.raises(UnsupportedFeatureError, match="Spark Connect") as refused:
            act(client, tmp_path / "source", "lake.doors.connect")
        assert "classic" in str(refused.value.hint)


def test_a_session_lacks_iceberg(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(jvm.cache(spark), "iceberg", raising=False)
    monkeypatch.setattr(catalog, "_LIBRARY", "org.apache.iceberg.Nothing")
    with pytest.raises(MissingDependencyError, match="iceberg-spark-runtime"):
        table_name(spark, "lake.doors.t")


def test_a_catalog_is_found_in_any_thread(spark: SparkSession, tmp_path: Path) -> None:
    """Spark loads a catalog when it is first named, by the settings of the thread's session."""
    prefix = "spark.sql.catalog.fresh"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop"}
    for key, value in {**settings, ".warehouse": str(tmp_path)}.items():
        spark.conf.set(f"{prefix}{key}", value)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(table_name, spark, "fresh.db.t").result()
    assert found == TableName("fresh", ("db",), "t")


def test_a_class_is_compiled_once_by_threads_that_need_it_at_once(spark: SparkSession) -> None:
    """Py4J would call the methods of one class on objects of the other."""
    source = "package delvec; public class Once { public int one() { return 1; } }"
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: jvm.compile_java(spark, "delvec.Once", source), range(4)))
    assert all(each.equals(made[0]) for each in made)
