"""The readers of Iceberg tables that exist as wheels, each as a function of a metadata file.

`python -m tests.readers.readers READER METADATA FILE` reads a table with one of them, in a process
of its own, and writes the rows to an Arrow file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from pyarrow import feather

# ruff: noqa: PLC0415 - each child process imports the one that it runs


def _static(metadata: Path) -> Any:  # noqa: ANN401
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(f"file://{metadata}")


def by_pyiceberg(metadata: Path) -> pa.Table:
    return _static(metadata).scan().to_arrow()


def by_duckdb(metadata: Path) -> pa.Table:
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg"):
        connection.execute(f"LOAD '{_duckdb_extension(name)}'")
    return connection.execute("SELECT * FROM iceberg_scan(?)", [str(metadata)]).to_arrow_table()


def _duckdb_extension(name: str) -> Path:
    """Find an extension in its wheel: DuckDB itself would download it."""
    package = find_spec(f"duckdb_extension_{name}")
    assert package is not None
    assert package.origin is not None
    [found] = Path(package.origin).parent.rglob("*.duckdb_extension")
    return found


def by_polars(metadata: Path) -> pa.Table:
    return _polars(metadata, "native")


def by_polars_with_pyiceberg(metadata: Path) -> pa.Table:
    return _polars(metadata, "pyiceberg")


def _polars(metadata: Path, reader: Literal["native", "pyiceberg"]) -> pa.Table:
    import polars as pl

    scan = pl.scan_iceberg(f"file://{metadata}", reader_override=reader)
    return scan.collect().to_arrow()


def by_datafusion(metadata: Path) -> pa.Table:
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    context = SessionContext()
    table = IcebergDataFusionTable(
        identifier=["db", "t"], metadata_location=f"file://{metadata}", file_io_properties={}
    )
    context.register_table("t", table)
    return context.sql("SELECT * FROM t").to_arrow_table()


def by_daft(metadata: Path) -> pa.Table:
    import daft

    return daft.read_iceberg(_static(metadata)).to_arrow()


def by_flink(metadata: Path) -> pa.Table:
    from tests.readers import flink

    return flink.read(metadata)


READERS: Final[dict[str, tuple[tuple[str, ...], Callable[[Path], pa.Table]]]] = {
    "Flink": (("apache-flink-libraries",), by_flink),
    "PyIceberg": (("pyiceberg",), by_pyiceberg),
    "DuckDB": (("duckdb",), by_duckdb),
    "Polars": (("polars",), by_polars),
    "Polars, by PyIceberg": (("polars", "pyiceberg"), by_polars_with_pyiceberg),
    "DataFusion": (("datafusion", "pyiceberg-core"), by_datafusion),
    "Daft": (("daft",), by_daft),
}


def title(reader: str) -> str:
    packages, _ = READERS[reader]
    return " + ".join(f"{package} {version(package)}" for package in packages)


if __name__ == "__main__":
    reader, metadata, file = sys.argv[1:]
    feather.write_feather(READERS[reader][1](Path(metadata)), file)
