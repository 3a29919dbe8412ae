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
from delvec.iceberg.client.content_files import data_file_json
from delvec.iceberg.client.files import snapshot_files
from delvec.iceberg.commit.commit import RowChange
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
from delvec.spark import jvm
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


def test_files_of_a_snapshot_are_found_by_few_and_many_names(
    spark: SparkSession, name: TableName, tmp_path: Path
) -> None:
    files = [file_of(tmp_path, 1, 2, 3), file_of(tmp_path, 4)]
    table = publish(staged(spark, name, None, RowChange(described(tmp_path, *files))), {})
    assert (table.metadata.schema["fields"][0]["id"], set(table.metadata.refs)) == (7, {"main"})
    head = table.metadata.head()
    assert head is not None
    assert len(snapshot_files(table, head.id).data) == 2
    for count in (1, 700):  # few names are a condition, many are joined
        some = pa.array([files[0], *(f"file:/nowhere/{at}" for at in range(count))])
        found = snapshot_files(table, head.id, some).data.to_pylist()
        assert [(row["file_path"], row["record_count"]) for row in found] == [(files[0], 3)]
        assert len(snapshot_files(table, head.id, some[1:]).data) == 0


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
