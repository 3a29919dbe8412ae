"""Delta tables with deletion vectors, converted in each form: what the readers are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import feather
from pyspark.sql import SparkSession

import delvec
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of

_COLUMNS: Final = "id BIGINT, name STRING, price DECIMAL(9, 2), day DATE, at TIMESTAMP"
_ROWS: Final = (
    "SELECT id, if(id % 5 = 0, null, concat('n', id)), cast(id / 4 AS DECIMAL(9, 2)),"
    " date_add(DATE'2026-01-30', cast(id / 1000 AS INT)), timestamp_micros(id * 1000003)"
    " FROM range({start}, {end}, 1, 1)"
)


@dataclass(frozen=True)
class Source:
    """How a Delta table is created."""

    title: str
    timestamps: str = "TIMESTAMP_MICROS"
    partitioned_by: tuple[str, ...] = ()
    mapping: str = "none"


SOURCES: Final = {
    "int64": Source("INT64 timestamps"),
    "int96": Source("INT96 timestamps", "INT96"),
    "partitioned": Source("partitioned", partitioned_by=("day",)),
    "mapped": Source("column mapping", mapping="name"),
}
FORMS: Final[dict[str, tuple[str, Mapping[str, object]]]] = {
    "v2": ("format 2", {"format_version": 2}),
    "v3": ("format 3", {"format_version": 3}),
    "v3-reference": ("format 3, by reference", {"format_version": 3, "vectors": "reference"}),
}


@dataclass(frozen=True)
class Converted:
    """A target: what it is a conversion of, its newest metadata and the rows that it must have."""

    source: str
    form: str
    metadata: Path
    expected: Path
    by_spark: Path


def convert_tables(spark: SparkSession, folder: Path) -> list[Converted]:
    """Create all sources, and convert each in all forms to a Hadoop catalog."""
    # Readers find files by URIs, and some of them take no path without a scheme.
    spark.conf.set("spark.sql.catalog.readers", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.readers.type", "hadoop")
    spark.conf.set("spark.sql.catalog.readers.warehouse", f"file://{folder}/readers")
    found = []
    for source in SOURCES:
        path = folder / "delta" / source
        _create(spark, path, SOURCES[source])
        expected = folder / f"{source}.arrow"
        _write(spark_tables.as_delta_spark_reads(spark, path).toArrow(), expected)
        for form, (_, choices) in FORMS.items():
            name = f"readers.db.{source}_{form}".replace("-", "_")
            delvec.convert(spark, path, name, verify="rows", **choices)  # type: ignore[arg-type]
            rows = folder / f"{source}-{form}.arrow"
            _write(spark.table(name).toArrow(), rows)
            found.append(Converted(source, form, _metadata(spark, name), expected, rows))
    return found


def _create(spark: SparkSession, path: Path, source: Source) -> None:
    """Write three files, or partitions: of the first two rows are deleted, of one of them twice."""
    settings = {"spark.sql.parquet.outputTimestampType": source.timestamps}
    with settings_of(spark, settings):
        properties = {"delta.columnMapping.mode": source.mapping}
        spark_tables.create(
            spark, path, _COLUMNS, partitioned_by=source.partitioned_by, properties=properties
        )
        spark_tables.sql(
            spark,
            path,
            *(
                f"INSERT INTO {{T}} {_ROWS.format(start=start, end=start + 1000)}"
                for start in (0, 1000, 2000)
            ),
            "DELETE FROM {T} WHERE id < 2000 AND id % 7 = 0",
            "UPDATE {T} SET name = 'changed' WHERE id < 1000 AND id % 11 = 0",
        )


def _metadata(spark: SparkSession, name: str) -> Path:
    """Find the newest metadata of a table in a Hadoop catalog."""
    row = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").first()
    assert row is not None
    folder = Path(row["data_type"].removeprefix("file:")) / "metadata"
    number = (folder / "version-hint.text").read_text().strip()
    return folder / f"v{number}.metadata.json"


def _write(rows: pa.Table, path: Path) -> None:
    feather.write_feather(rows, path)
