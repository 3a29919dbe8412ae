"""Rows and keys of pandas, polars and Arrow for an Iceberg table; stock Iceberg reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable, IcebergTable
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnknownNameError

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

NAME = "lake.given.t"
ROWS = pa.table({"id": [1, 2], "v": ["a", None]})
GIVEN: dict[str, Callable[[pa.Table], Any]] = {
    "Arrow": lambda rows: rows,
    "pandas": lambda rows: rows.to_pandas(),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows),
}


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.given")
    spark.sql(f"DROP TABLE IF EXISTS {NAME}")
    spark.sql(
        f"CREATE TABLE {NAME} (id BIGINT, v STRING) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3')"
    )
    return IcebergTable.for_name(spark, NAME)


@pytest.mark.parametrize("name", GIVEN)
def test_rows_and_keys_of_other_libraries_are_taken(
    spark: SparkSession, table: IcebergTable, name: str
) -> None:
    given = GIVEN[name]
    table.append(given(ROWS))
    table.upsert(given(pa.table({"id": [2, 3, 4], "v": ["x", "y", "z"]})), keys="id")
    table.delete_keys(given(pa.table({"id": [4], "other": [0]})), "id")
    rows = spark.table(NAME).collect()
    assert sorted(map(tuple, rows)) == [(1, "a"), (2, "x"), (3, "y")]


def test_what_is_no_table_is_refused(table: IcebergTable) -> None:
    with pytest.raises(
        InvalidArgumentError, match="pandas or polars DataFrame, or Arrow"
    ) as caught:
        table.append([1])
    assert "createDataFrame" in str(caught.value.hint)
    with pytest.raises(InvalidArgumentError, match=r"upsert\(\) takes a Spark, pandas"):
        table.upsert([1], keys="id")


def test_a_misspelt_column_is_one_short_error(
    table: IcebergTable, capfd: pytest.CaptureFixture[str]
) -> None:
    table.append(ROWS)
    capfd.readouterr()
    for read in (
        lambda: table.to_df(where="idd = 3"),
        lambda: table.to_df(columns=["idd"]),
        lambda: table.to_arrow(where="idd = 3"),
        lambda: table.delete("idd = 3"),
    ):
        with pytest.raises(InvalidArgumentError, match=r"^there is no column idd") as caught:
            read()
        assert caught.value.hint == "did you mean id?"
        assert len(str(caught.value)) < 100
    assert capfd.readouterr() == ("", "")


def test_paths_and_names_of_the_other_format_say_how_to_open_them(
    spark: SparkSession, table: IcebergTable
) -> None:
    with pytest.raises(InvalidArgumentError, match="is a path") as caught:
        IcebergTable.for_name(spark, "/lake/orders")
    assert "DeltaTable.for_path(spark, '/lake/orders')" in str(caught.value.hint)
    with pytest.raises(TableNotFoundError, match="one of iceberg") as missing:
        DeltaTable.for_name(spark, table.name)
    assert missing.value.hint == f"open it by IcebergTable.for_name(spark, {table.name!r})"


def test_names_of_pyiceberg_are_explained(table: IcebergTable) -> None:
    for name, hint in (("scan", "to_df"), ("refresh", "not needed"), ("vacuum", "expire_snap")):
        with pytest.raises(UnknownNameError, match=f"IcebergTable has no {name}") as caught:
            getattr(table, name)
        assert hint in str(caught.value.hint)
