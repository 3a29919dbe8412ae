"""`delvec demo`: what delvec does, on small data, step by step."""

from __future__ import annotations

import json
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.text import Text

from delvec.cli.demo.anatomy import delta_parts, drawn, puffin_parts
from delvec.cli.demo.convert import show_conversion
from delvec.cli.demo.keys import show_key_deletes
from delvec.cli.demo.maintain import show_maintenance
from delvec.cli.demo.resolve import show_resolving
from delvec.cli.demo.table import DAYS, write_orders
from delvec.cli.demo.writes import show_writes
from delvec.cli.main import command as delvec_command
from delvec.cli.output import Column
from delvec.cli.spark_tables import on_spark as running_spark
from delvec.delta.table import DeltaTable
from delvec.errors import ChecksumError
from delvec.storage import Storage
from delvec.vector import Bitmap, DeletionVector, encode_frame, pack, puffin
from delvec.vector.puffin import read_blob, read_footer, reader_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.cli.output import Output
    from delvec.vector import Descriptor

__all__ = ["command"]

_ROWS = 30
_DELETED = [3, 4, 7, 11, 18, 29]
_DATA_FILE = "orders/part-00000.parquet"
_PUFFIN_FILE = "orders-deletes.puffin"


@delvec_command("demo")
@click.option("--folder", help="Keep the files that the demonstration writes, in this folder.")
@click.option("--spark/--no-spark", "on_spark", default=True, help="Start Spark for its part.")
@click.option("--iceberg/--no-iceberg", default=True, help="With Iceberg's jar, which it gets.")
def command(output: Output, folder: str | None, *, on_spark: bool, iceberg: bool) -> None:
    """Show what a deletion vector is, and tables that are read, written and converted with them."""
    result: dict[str, Any] = {}
    with ExitStack() as stack:
        storage = Storage.open(folder or stack.enter_context(TemporaryDirectory()))
        deleted = _delete_rows(output)
        descriptor = _write_delta(output, storage, deleted, result)
        _write_iceberg(output, storage, deleted, result)
        _compare(output, storage, descriptor, result)
        _damage(output, storage, descriptor, result)
        _sizes(output, result)
        path = f"{storage.root}/orders"
        _table(output, path, result)
        if on_spark:
            written, warehouse = f"{storage.root}/written", f"{storage.root}/warehouse"
            catalog = {"warehouse": warehouse} if iceberg else None
            with running_spark(output, path, catalog) as spark:
                _on_spark(output, spark, path, result)
                show_writes(output, spark, written, result)
                show_maintenance(output, spark, f"{storage.root}/customers", result)
                if iceberg:
                    show_conversion(output, spark, written, result)
                    show_key_deletes(output, spark, result)
                    show_resolving(output, spark, result)
    output.result(result)
    kept = (
        f"The files are in {folder}:" if folder else "`delvec demo --folder demo` keeps the files;"
    )
    output.note(kept, " `delvec inspect FILE` shows what is in one, `delvec files TABLE` a table.")


def _delete_rows(output: Output) -> Bitmap:
    output.heading(f"1. Six of {_ROWS} rows are deleted. The Parquet file is not touched.")
    deleted = Bitmap(_DELETED)
    picture = Text()
    for row, dead in enumerate(deleted.to_mask(0, _ROWS).tolist()):
        picture.append(f"{row}" if dead else "·", "bold red" if dead else "green")
        picture.append(" ")
    output.draw(picture)
    output.note("Where they are is a deletion vector: ", (str(deleted), "bold"))
    return deleted


def _write_delta(
    output: Output, storage: Storage, deleted: Bitmap, result: dict[str, Any]
) -> Descriptor:
    output.heading("2. Delta holds it in a file, and the log points there.")
    [file] = pack([deleted])
    storage.write_if_absent(file.path, file.data)
    descriptor = file.descriptors[0]
    output.note(f"log   {json.dumps(descriptor.to_json())}")
    output.note(f"file  {file.path}\n")
    output.draw(drawn(delta_parts(file.data)))
    result["delta"] = {"file": file.path, "descriptor": descriptor.to_json()}
    result["delta"]["bytes"] = file.data.hex()
    return descriptor


def _write_iceberg(
    output: Output, storage: Storage, deleted: Bitmap, result: dict[str, Any]
) -> None:
    output.heading("3. Iceberg holds it as a blob of a Puffin file.")
    file = puffin.encode([DeletionVector(deleted, _DATA_FILE).to_blob()])
    storage.write(_PUFFIN_FILE, file.data)
    output.note(f"file  {_PUFFIN_FILE}\n")
    output.draw(drawn(puffin_parts(file.data, encode_frame(deleted))))
    result["iceberg"] = {"file": _PUFFIN_FILE, "bytes": file.data.hex()}


def _compare(
    output: Output, storage: Storage, descriptor: Descriptor, result: dict[str, Any]
) -> None:
    output.heading("4. From length to CRC these are the same bytes: a vector moves by copying.")
    in_delta = storage.read_range(str(descriptor.file_path), *descriptor.file_range)
    data = storage.read(_PUFFIN_FILE)
    [blob] = read_footer(reader_of(data), len(data)).blobs
    in_puffin = read_blob(reader_of(data), blob)
    rows = DeletionVector.from_blob(blob, in_puffin).positions.to_numpy().tolist()
    same = in_puffin == in_delta
    answer = ("the same", "bold green") if same else ("different", "bold red")
    output.note(f"{len(in_delta)} bytes of Delta's file, {len(in_puffin)} of Puffin's: ", answer)
    output.note(f"read back from Puffin: rows {' '.join(map(str, rows))}")
    result |= {"same_bytes": same, "deleted_rows": rows}


def _damage(
    output: Output, storage: Storage, descriptor: Descriptor, result: dict[str, Any]
) -> None:
    output.heading("5. A damaged vector is an error; no row comes back, none is lost.")
    start, length = descriptor.file_range
    damaged = bytearray(storage.read_range(str(descriptor.file_path), start, length))
    damaged[40] ^= 1
    try:
        descriptor.decode(bytes(damaged))
    except ChecksumError as error:
        output.note("one bit flipped: ", (error.describe(), "red"))
        result["damage"] = error.describe()


def _sizes(output: Output, result: dict[str, Any]) -> None:
    output.heading("6. Vectors are small: ten million rows, deleted in four ways.")
    rows = 10_000_000
    chance = np.random.default_rng(7)
    cases = {
        "1,000 rows at random": np.sort(chance.choice(rows, 1000, replace=False)),
        "1 % at random": np.flatnonzero(chance.random(rows) < 0.01),
        "every second row": np.arange(0, rows, 2),
        "the first half": np.arange(rows // 2),
    }
    sizes = {name: len(encode_frame(Bitmap(positions))) for name, positions in cases.items()}
    table = [
        {
            "deleted": name,
            "rows": len(positions),
            "bytes": sizes[name],
            "bits_per_row": round(sizes[name] * 8 / len(positions), 3),
        }
        for name, positions in cases.items()
    ]
    titles = {
        "deleted": "deleted",
        "rows": "rows",
        "bytes": "bytes",
        "bits_per_row": "bits per row",
    }
    output.table([Column(key, title) for key, title in titles.items()], table)
    result["sizes"] = table


def _table(output: Output, path: str, result: dict[str, Any]) -> None:
    output.heading("7. A Delta table, read through its vectors; this part needs no JVM.")
    if not DeltaTable.is_delta_table(path):  # it exists in a folder that was kept
        write_orders(path)
    table = DeltaTable.for_path(None, path)
    files = table.arrow_files().select(["path", "row_count", "deleted_rows", "vector_bytes"])
    rows = sorted(files.to_pylist(), key=lambda row: str(row["path"]))
    titles = {
        "path": "file",
        "row_count": "rows",
        "deleted_rows": "deleted",
        "vector_bytes": "bytes of its vector",
    }
    output.table([Column(key, title) for key, title in titles.items()], rows)
    ids = table.to_arrow([("id", "<", 10_010), ("id", ">=", 9_998)], ["id"]).column("id")
    output.note(
        f"version {table.version}: {table.count():,} rows, version 1: {table.count(version=1):,};"
        f" ids around 10,000: {' '.join(map(str, sorted(ids.to_pylist())))}"
    )
    result["table"] = {
        "files": rows,
        "rows": table.count(),
        "rows_before": table.count(version=1),
        "ids": sorted(ids.to_pylist()),
    }


def _on_spark(output: Output, spark: SparkSession, path: str, result: dict[str, Any]) -> None:
    output.heading("8. The same on Spark: a plain .where(...) leaves files out, by the log.")
    from delvec.spark.delta.scan.explain import explain  # noqa: PLC0415

    condition = f"day = '{DAYS[-1]}' and amount < 250"
    df = DeltaTable.for_path(spark, path).to_df().where(condition)
    report = explain(df)
    output.note(('table.to_df().where("', "dim"), condition, ('")', "dim"))
    output.note(str(report).replace(path, "orders"))
    count = df.count()
    from_source = spark.read.format("delvec").load(path).where(condition).count()
    output.note(f'{count:,} rows; the data source spark.read.format("delvec"): {from_source:,}')
    result["spark"] = {**report.to_json(), "rows": count, "rows_of_data_source": from_source}
