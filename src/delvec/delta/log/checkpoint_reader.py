"""Checkpoints in Parquet: columns are read when asked for, rows of files stay Arrow.

A file may be a classic checkpoint, a part of a multi-part one, a v2 checkpoint or one of its
sidecars: all have the same columns, and any of them may be missing.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.delta.log.action_columns import STRING_MAP, TYPES, VECTOR, conform_struct
from delvec.delta.log.json_actions import adds_schema
from delvec.delta.log.names import SIDECARS
from delvec.delta.log.paths import one_array
from delvec.delta.stats.to_json import statistics_to_json
from delvec.errors import FormatError
from delvec.parquet.readable import open_parquet, readable
from delvec.parquet.threads import wants_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from delvec.delta.log.action_columns import Kind
    from delvec.storage import Storage

__all__ = ["ParquetActions", "sidecar_key"]

_MAPS: Final = ("partitionValues", "tags")
# Arrow's own types for JSON, UUIDs and the like are not wanted. Before version 21 there is no such
# argument, and such columns are plain.
_PLAIN_TYPES: Final[dict[str, bool]] = (
    {"arrow_extensions_enabled": False} if int(pa.__version__.partition(".")[0]) >= 21 else {}
)
# A file of more bytes is read by row groups: one Arrow array holds at most 2 GiB of strings, and
# Arrow reads no structs in several arrays.
_BYTES_AT_ONCE: Final = 1 << 30
# The actions of a checkpoint all differ: no compression makes them smaller than this.
_ROWS_PER_BYTE: Final = 64
_BATCH_ROWS: Final = 65_536
_OTHERS: Final = ("protocol", "metaData", "txn", "domainMetadata", "sidecar", "checkpointMetadata")


def sidecar_key(path: str, manifest: str) -> str:
    """Return the key of a sidecar, which is always in the log's own folder."""
    name = unquote(path).rpartition("/")[2]
    if name in ("", ".", ".."):
        raise FormatError("a sidecar of a checkpoint has no name", path=manifest, found=repr(path))
    return f"{SIDECARS}/{name}"


class ParquetActions:
    """The actions of one Parquet file of a checkpoint."""

    def __init__(self, storage: Storage, key: str) -> None:
        self._storage, self._key = storage, key
        self._live: NDArray[np.int64] | None = None
        self.uri = storage.uri_of(key)

    def others(self) -> Iterator[dict[str, Any]]:
        """Yield the actions that are not of data files, as dictionaries."""
        names = [name for name in _OTHERS if self._type(name) is not None]
        if not names:
            return
        table = self._read(names)
        for name in names:
            column = table.column(name)
            for value in column.filter(column.is_valid()).to_pylist():
                yield {name: _plain(value)}

    @property
    def line_count(self) -> int:
        """How many actions there are."""
        return int(self._file.metadata.num_rows)

    def adds(self, partition_names: Sequence[str]) -> pa.Table:
        """Return the added files: path, vector, size, time and partition values as strings."""
        schema = adds_schema(partition_names)
        if self._type("add", "path") is None:
            return schema.empty_table()
        there = [name for name in schema.names if self._type("add", name) is not None]
        add = self._add(there)
        columns = {name: _child(add, name) for name in there}
        if "partitionValues" in columns:
            # Other writers may have large strings, or dictionaries of them.
            texts = self._cast(columns["partitionValues"], STRING_MAP)
            values = [pc.map_lookup(texts, name, "first") for name in partition_names]
            columns["partitionValues"] = pa.StructArray.from_arrays(values, list(partition_names))
        arrays = [
            self._cast(columns[f.name], f.type) if f.name in columns else pa.nulls(len(add), f.type)
            for f in schema
        ]
        return pa.table(arrays, schema=schema)

    def _cast(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        with self._readable():
            return conform_struct(column, kind) if kind == VECTOR else column.cast(kind)

    def json_statistics(self) -> pa.Array | pa.ChunkedArray | None:
        """Return the statistics of the files as JSON, or None if the checkpoint has none.

        In several arrays if they take more than one can hold.
        """
        if self._type("add", "stats") is None:
            return None
        texts = pc.struct_field(self._read(["add.stats"]).column("add"), "stats")
        rows = self._live_rows()
        if len(rows) < len(texts):
            is_live = np.zeros(len(texts), dtype=np.bool_)
            is_live[rows] = True
            texts = texts.filter(pa.array(is_live))
        texts = self._cast(texts, pa.string())
        return texts.combine_chunks() if texts.nbytes < _BYTES_AT_ONCE else texts

    def parsed_statistics(self, *path: str) -> pa.Array | None:
        """Return one column of `stats_parsed`, or None if there is none."""
        if self._type("add", "stats_parsed", *path) is None:
            return None
        value = self._add([".".join(("stats_parsed", *path))])
        for name in ("stats_parsed", *path):
            value = _child(value, name)
        return value

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return the whole actions of some live files, by their rows in `adds`."""
        places = self._live_rows()[np.asarray(rows, dtype=np.int64)]
        values: list[Any] = [None] * len(places)
        for group, start in enumerate(self._group_starts):
            inside = (places >= start) & (places < start + self._group_rows(group))
            chosen = np.flatnonzero(inside)
            if len(chosen):  # all columns are read, so only where there is a row to take
                found = self._entries(group, places[chosen] - start)
                for index, value in zip(chosen.tolist(), found, strict=True):
                    values[index] = value
        return [
            {
                "add": {
                    # An empty map comes as an empty list, like that of an array.
                    key: item or {} if key in _MAPS else item
                    for key, item in _plain(value).items()
                    if item is not None
                }
            }
            for value in values
        ]

    def _entries(self, group: int, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return the adds of some rows of a row group."""
        fields = [f.name for f in self._type("add") if not f.name.endswith("_parsed")]
        has_parsed = self._type("add", "stats_parsed") is not None
        columns = [f"add.{name}" for name in (*fields, *(["stats_parsed"] if has_parsed else []))]
        with self._readable():
            column = self._read_group(group, columns).column("add")
            found = column.combine_chunks().take(pa.array(rows))
        values = [
            {name: value for name, value in entry.items() if name != "stats_parsed"}
            for entry in found.to_pylist()
        ]
        if has_parsed:
            # A checkpoint may have statistics as columns alone; an add action has them as JSON.
            texts = statistics_to_json(_child(found, "stats_parsed")).to_pylist()
            for value, text in zip(values, texts, strict=True):
                value["stats"] = value.get("stats") or text
        return values

    @cached_property
    def _group_starts(self) -> list[int]:
        """The first row of each row group."""
        counts = [self._group_rows(group) for group in range(self._file.num_row_groups)]
        return [0, *accumulate(counts)][:-1]

    def _group_rows(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).num_rows)

    def _group_bytes(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).total_byte_size)

    def pieces(
        self,
        kind: Kind,
        partition_names: Sequence[str] = (),  # noqa: ARG002 - for sources in JSON
        more: Sequence[str] = (),
    ) -> Iterator[pa.StructArray]:
        """Yield the whole actions of one kind, in order, one row group after the other.

        Args:
            kind: Which actions.
            partition_names: The columns of the partitions.
            more: Further fields, returned as they are where the file has them.
        """
        if self._type(kind, "path") is None:
            return
        added = [name for name in more if self._type(kind, name) is not None]
        names = [field.name for field in TYPES[kind] if self._type(kind, field.name) is not None]
        columns = [f"{kind}.{name}" for name in (*names, *added)]
        for group in range(self._file.num_row_groups):
            with self._readable():
                column = self._read_group(group, columns).column(kind)
                column = column.combine_chunks()
                found = column.filter(_child(column, "path").is_valid())
                whole = conform_struct(found, TYPES[kind])
            yield pa.StructArray.from_arrays(
                [*whole.flatten(), *(_child(found, name) for name in added)],
                [*(field.name for field in TYPES[kind]), *added],
            )

    def _add(self, fields: Sequence[str]) -> pa.StructArray:
        """Read fields of `add`, one row for each live file."""
        chunks = self._read([f"add.{name}" for name in fields]).column("add")
        column = one_array(chunks.chunks or [pa.array([], chunks.type)], self.uri)
        rows = self._live_rows(column if "path" in fields else None)
        # Writers put all adds together; a slice of them costs nothing, a million picked rows 0.5 s.
        if len(rows) and int(rows[-1] - rows[0]) + 1 == len(rows):
            return column.slice(int(rows[0]), len(rows))
        with self._readable():
            return column.take(rows)

    def _live_rows(self, adds: pa.StructArray | None = None) -> NDArray[np.int64]:
        """Return the rows of the file that are adds; read from its paths if those are not given."""
        if self._live is None:
            paths = self._read(["add.path"]).column("add") if adds is None else adds
            valid = _child(paths, "path").is_valid().to_numpy(zero_copy_only=False)
            self._live = np.flatnonzero(valid)
        return self._live

    def _read(self, columns: Sequence[str]) -> pa.Table:
        with self._readable():
            groups = range(self._file.num_row_groups)
            size = sum(map(self._group_bytes, groups))
            if size > _BYTES_AT_ONCE:
                return pa.concat_tables([self._read_group(each, columns) for each in groups])
            return _valid(self._file.read(columns=list(columns), use_threads=wants_threads(size)))

    def _read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        threads = wants_threads(self._group_bytes(group))
        return _valid(self._file.read_row_group(group, columns=list(columns), use_threads=threads))

    def _type(self, *path: str) -> Any:  # noqa: ANN401
        """Return the Arrow type of a column, None if there is none."""
        found: Any = None
        inside: Any = self._schema
        for name in path:
            index = inside.get_field_index(name) if hasattr(inside, "get_field_index") else -1
            if index < 0:
                return None
            found = inside.field(index).type
            inside = found
        return found

    @cached_property
    def _schema(self) -> pa.Schema:
        return self._file.schema_arrow

    @cached_property
    def _file(self) -> pq.ParquetFile:
        source = self._storage.open_input(self._key)
        with self._readable():
            file = open_parquet(
                source,
                pre_buffer=True,
                coerce_int96_timestamp_unit="us",
                **_PLAIN_TYPES,
            )
            self._require_rows(file, source.size())
        return file

    def _require_rows(self, file: pq.ParquetFile, size: int) -> None:
        """Refuse a file that claims rows which it does not have: Arrow makes room for all at once.

        Each row is another action, so that a byte for each is little. Where there is less, the rows
        are counted, in batches, before anything is made of them.
        """
        groups = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
        claimed = file.metadata.num_rows
        found = sum(groups)
        if max(claimed, *groups, 0) > size and found == claimed <= _ROWS_PER_BYTE * size:
            first = file.schema_arrow.names[:1]
            found = sum(len(each) for each in file.iter_batches(_BATCH_ROWS, columns=first))
        if found != claimed or min([claimed, *groups]) < 0 or claimed > _ROWS_PER_BYTE * size:
            raise FormatError(
                "a checkpoint claims more rows than it has",
                path=self.uri,
                expected=f"{claimed} rows",
                found=f"{size} bytes" if found == claimed else f"{found} rows",
                hint="if all commits are still there, move the checkpoint elsewhere and try again",
            )

    def _readable(self) -> AbstractContextManager[None]:
        return readable(
            self.uri,
            "a checkpoint cannot be read",
            hint="if all commits are still there, move the checkpoint elsewhere and try again",
        )


def _valid(table: pa.Table) -> pa.Table:
    """Refuse strings that are not UTF-8, which Arrow reads; takes a tenth of reading them."""
    table.validate(full=True)
    return table


def _child(value: pa.StructArray, name: str) -> pa.Array:
    """Return a field of a struct, null where the struct is null.

    Arrow takes a name that begins with a dot for a path, unless it is in a list.
    """
    return pc.struct_field(value, [name])


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Turn Arrow's maps, which come as lists of pairs, into dictionaries."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, tuple) for item in value) and value:
        return dict(value)
    return value
