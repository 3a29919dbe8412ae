"""Iceberg tables that a Delta table is converted to, and their rows as readers see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec.conversion.apply import ConversionReport
from delvec.conversion.planning.options import Verify
from tests.delta.rows import same_rows
from tests.spark.delta import spark_tables


@dataclass(frozen=True)
class Target:
    """How a table is converted; PyIceberg reads only vectors in real Puffin files."""

    choices: Mapping[str, Any] = field(default_factory=dict)
    in_pyiceberg: bool = True


TARGETS = {
    "v2": Target({"format_version": 2}),
    "repacked": Target(),
    "referenced": Target({"vectors": "reference"}, in_pyiceberg=False),
    "history": Target({"history": "per-version"}),
}


def by_spark(spark: SparkSession, name: str, version: int | None = None) -> DataFrame:
    """Read the newest rows, or those with the tag of a version."""
    if version is None:
        return spark.table(name)
    return spark.sql(f"SELECT * FROM {name} VERSION AS OF 'delta-version-{version}'")


def static_table(spark: SparkSession, name: str) -> StaticTable:
    """Open a table of a Hadoop catalog in PyIceberg, by its newest metadata."""
    location = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'")
    row = location.first()
    assert row is not None
    folder = Path(row["data_type"].removeprefix("file:")) / "metadata"
    number = (folder / "version-hint.text").read_text().strip()
    metadata = folder / f"v{number}.metadata.json"
    return StaticTable.from_metadata(f"file://{metadata}")


def check_pyiceberg(spark: SparkSession, name: str, expected: pa.Table) -> None:
    """Hold what PyIceberg reads against rows; lists and maps of structs are never null to it."""
    for number, column in enumerate(expected.schema):
        if _holds_structs(column.type):
            values = [each or [] for each in expected[number].to_pylist()]
            expected = expected.set_column(number, column, pa.array(values, column.type))
    assert same_rows(static_table(spark, name).scan().to_arrow(), expected)


def _holds_structs(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return bool(pa.types.is_struct(kind.value_type))
    return pa.types.is_map(kind) and bool(pa.types.is_struct(kind.item_type))


def check_equal(
    spark: SparkSession,
    source: Path,
    name: str,
    target: Target,
    *,
    verify: Verify = "rows",
    pyiceberg: bool = True,
    copy_files: bool = False,
) -> ConversionReport:
    """Convert a table; all of Iceberg's readers must see what delta-spark sees."""
    report = delvec.convert(
        spark, source, name, verify=verify, copy_files=copy_files, **target.choices
    )
    expected = spark_tables.as_delta_spark_reads(spark, source, report.version).toArrow()
    assert same_rows(by_spark(spark, name).toArrow(), expected)
    if target.in_pyiceberg and pyiceberg:
        check_pyiceberg(spark, name, expected)
    return report
