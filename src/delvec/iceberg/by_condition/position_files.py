"""Position-delete files of Iceberg's format 2: Parquet files with the positions of deleted rows."""

from __future__ import annotations

import mmap
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.parquet.readable import open_parquet, readable
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Collection

    from delvec.storage import Storage

__all__ = ["read_positions", "write_positions"]

_PATH: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(  # with the ids that Iceberg reserves for these columns
    [
        pa.field("file_path", _PATH, nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
_ROWS_AT_ONCE: Final = 1 << 19


def write_positions(target: Storage, key: str, data_path: str, vector: Bitmap) -> int:
    """Write the deleted rows of one data file as a position-delete file; return its size.

    Positions are streamed. A file of more than some hundred thousand positions goes through a
    temporary file on local disk.

    Args:
        target: The storage.
        key: The name of the new file.
        data_path: The path of the data file, exactly as the manifest has it.
        vector: The positions.
    """
    if vector.cardinality <= _ROWS_AT_ONCE:
        memory = BytesIO()
        _write_rows(memory, data_path, vector)
        content = memory.getbuffer()
        target.write(key, content)
        return content.nbytes
    with TemporaryFile(prefix="delvec-") as file:
        _write_rows(file, data_path, vector)
        file.flush()
        # Closed with its last user: closing a memory map that is still exported is an error.
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        target.write(key, content)
        return content.nbytes


def _write_rows(file: IO[bytes], data_path: str, vector: Bitmap) -> None:
    name = pa.array([data_path], pa.string())
    with pq.ParquetWriter(
        file,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        store_schema=False,
    ) as writer:
        for positions in vector.batches(_ROWS_AT_ONCE):
            paths = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), name)
            batch = pa.record_batch([paths, pa.array(positions)], schema=_SCHEMA)
            writer.write_batch(batch)


def read_positions(source: Storage, key: str, data_paths: Collection[str]) -> dict[str, Bitmap]:
    """Return the positions that a position-delete file has for some data files.

    Row groups are read one after the other; memory grows with the positions that are found.

    Args:
        source: The storage.
        key: The file, which is Parquet.
        data_paths: Paths of data files, exactly as manifests have them.
    """
    wanted = pa.array(sorted(data_paths), pa.string())
    found: dict[str, Bitmap] = {}
    readable_file = readable(source.uri_of(key))
    with source.open_input(key) as file, readable_file, open_parquet(file) as parquet:
        for batch in parquet.iter_batches(columns=["file_path", "pos"]):
            paths = batch.column(0).cast(pa.string())
            chosen = batch.filter(pc.is_in(paths, value_set=wanted))
            paths = chosen.column(0).cast(pa.string())
            for path in paths.unique().to_pylist():
                positions = chosen.column(1).filter(pc.equal(paths, path)).to_numpy()
                new = Bitmap(positions)
                found[path] = found[path] | new if path in found else new
    return found
