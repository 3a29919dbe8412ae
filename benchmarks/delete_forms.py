"""`python -m benchmarks.delete_forms`: what a million deleted keys take in each form.

Whole rows in Parquet are what engines write that delete by row; Iceberg's own loader reads them as
it reads key-only files, and its heap is measured. delvec's loader reads key-only files into sorted
numbers and vectors into bitmaps.
"""

from __future__ import annotations

import gc
import time
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.delta import folder, session
from delvec.iceberg.client.files import from_content_file
from delvec.iceberg.deletes.equality_files import Scope, delete_json, encode_files
from delvec.iceberg.deletes.key_vectors import encode_key_vectors, read_key_vector, vector_metrics
from delvec.report.format import format_size
from delvec.spark import jvm
from delvec.spark.input.key_values import KeyColumn
from delvec.spark.input.keys import Keys
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COUNT = 1_000_000
COLUMNS = 10
KEY = KeyColumn(1, "id", "long", required=False)
LOADER = """
package delvec;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.hadoop.HadoopInputFile;
import org.apache.hadoop.conf.Configuration;

public class DeleteLoading implements java.util.function.Function {
  public Object kept;

  public Object apply(Object file) {
    return HadoopInputFile.fromLocation(((DeleteFile) file).location(), new Configuration());
  }

  public long[] load(String path, long bytes, long rows, Schema schema) {
    DeleteFile file =
        FileMetadata.deleteFileBuilder(PartitionSpec.unpartitioned())
            .ofEqualityDeletes(new int[] {1})
            .withPath(path)
            .withFormat("parquet")
            .withFileSizeInBytes(bytes)
            .withRecordCount(rows)
            .build();
    List files = new ArrayList();
    files.add(file);
    kept = null;
    long before = used();
    long start = System.nanoTime();
    kept = new BaseDeleteLoader(this).loadEqualityDeletes(files, schema);
    long nanos = System.nanoTime() - start;
    return new long[] {nanos, used() - before, ((Set) kept).size()};
  }

  private static long used() {
    for (int i = 0; i < 3; i++) {
      System.gc();
    }
    return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
  }
}
"""


def distributions() -> dict[str, NDArray[np.int64]]:
    """Return keys as they come: counted up, every tenth, every thousandth, ids with a time."""
    random = np.random.default_rng(3)
    millis = np.sort(random.integers(0, 86_400_000, COUNT)) + 1_700_000_000_000
    return {
        "sequential": np.arange(COUNT),
        "1 of 10": np.sort(random.permutation(10 * COUNT)[:COUNT]),
        "1 of 1,000": np.unique(random.integers(0, 1000 * COUNT, COUNT + 1000))[:COUNT],
        "snowflake ids": np.unique((millis << 22) | random.integers(0, 1 << 22, COUNT)),
    }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the best time of three runs."""
    seconds = []
    for _ in range(3):
        gc.collect()
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def whole_rows(keys: NDArray[np.int64]) -> bytes:
    """Return the rows of the keys in Parquet: ten columns, in no order."""
    random = np.random.default_rng(4)
    columns = {"id": pa.array(random.permutation(keys))}
    for number in range(1, COLUMNS):
        numbers = pa.array(random.integers(0, 1 << 40, len(keys)))
        columns[f"c{number}"] = numbers.cast(pa.string()) if number % 3 == 0 else numbers
    table = pa.table(columns)
    named = table.schema.field(0).with_metadata({b"PARQUET:field_id": b"1"})
    sink = BytesIO()
    pq.write_table(table.cast(table.schema.set(0, named)), sink, compression="zstd")
    return sink.getvalue()


def key_file(keys: Keys) -> bytes:
    [file] = encode_files(keys)
    return bytes(file.data)


def key_vector(keys: Keys) -> bytes:
    return bytes(encode_key_vectors([keys], 0).data)


def iceberg_loader() -> Callable[[str, int, int], tuple[float, int]]:
    """Return a function that loads a file by Iceberg's own loader: seconds, and bytes of heap."""
    spark = session()
    [made] = jvm.compile_java(spark, "delvec.DeleteLoading", LOADER).getConstructors()
    loader = made.newInstance(jvm.array_of(spark, jvm.view_of(spark).java.lang.Object, []))
    schema = jvm.view_of(spark).org.apache.iceberg.SchemaParser.fromJson(
        '{"type":"struct","schema-id":0,"fields":'
        '[{"id":1,"name":"id","required":false,"type":"long"}]}'
    )

    def load(path: str, length: int, rows: int) -> tuple[float, int]:
        runs = [list(loader.load(path, length, rows, schema)) for _ in range(3)]
        assert all(found == rows for *_, found in runs), runs
        return min(nanos for nanos, *_ in runs) / 1e9, runs[-1][1]

    return load


def numbers_of(data: bytes) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = pq.read_table(pa.py_buffer(data)).column(0).to_numpy()
    return numbers


def main() -> None:
    """Print the table."""
    load = iceberg_loader()
    root = folder() / "forms"
    root.mkdir(exist_ok=True)
    storage = Storage.open(root)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("1 M keys", "form", "bytes", "encode", "loaded by", "load", "memory"):
        numeric = title in ("bytes", "encode", "load", "memory")
        table.add_column(title, justify="right" if numeric else "left")
    for name, values in distributions().items():
        keys = Keys.of(values, (KEY,))
        rows, parquet, vector = (
            timed(partial(whole_rows, values)),
            timed(partial(key_file, keys)),
            timed(partial(key_vector, keys)),
        )
        for form, (data, seconds) in (("whole rows", rows), ("keys", parquet)):
            path = f"{uuid4()}.parquet"
            storage.write(path, data)
            taken, heap = load(str(root / path), len(data), len(keys))
            encoded = f"{len(data):,}", f"{seconds:.2f} s"
            table.add_row(name, form, *encoded, "Iceberg", f"{taken:.3f} s", format_size(heap))
        read = partial(numbers_of, parquet[0])
        table.add_row(
            name, "", "", "", "delvec", f"{timed(read)[1]:.3f} s", format_size(8 * len(keys))
        )
        path = f"{uuid4()}-edv.puffin"
        storage.write(path, vector[0])
        entry = delete_json(
            path, len(vector[0]), len(keys), (KEY,), Scope(0), [vector_metrics(keys)]
        )
        bitmap, taken = timed(partial(read_key_vector, storage, from_content_file(entry, 1)))
        assert bitmap.cardinality == len(keys)
        encoded = f"{len(vector[0]):,}", f"{vector[1]:.2f} s"
        held = format_size(bitmap.byte_size)
        table.add_row(name, "EDV", *encoded, "delvec", f"{taken:.3f} s", held)
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
