"""Checkpoints in Parquet, read by the column, and the adds that go into the next one.

A file may be a classic checkpoint, a part of a multi-part one, a v2 checkpoint or one of its
sidecars: all have the same columns, and any of them may be missing. Adds of the next checkpoint are
made piece by piece, with statistics as JSON, as columns or both: memory grows with the largest row
group of the previous checkpoint and the largest commit since, not with the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from delvec.delta.log.actions import (
    STRING_MAP,
    TYPES,
    VECTOR,
    JsonActions,
    Kind,
    adds_schema,
    conform_struct,
)
from delvec.delta.log.paths import SIDECARS, one_array
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.partition_values import partition_column
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import PrimitiveType, StructType, arrow_type
from delvec.delta.skipping.statistics import indexed_columns, is_ordered
from delvec.delta.skipping.statistics_columns import (
    StatisticPath,
    by_head,
    nested_type,
    statistics_columns,
    statistics_to_json,
)
from delvec.errors import FormatError
from delvec.parquet.readable import open_parquet, readable, wants_threads
from delvec.storage import Storage

if TYPE_CHECKING:
    from delvec.delta.log.snapshot import Snapshot

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
_ROWS: Final = 50_000


def sidecar_key(path: str, manifest: str) -> str:
    """Return the key of a sidecar, which is always in the log's own folder."""
    name = unquote(path).rpartition("/")[2]
    if name in ("", ".", ".."):
        raise FormatError("a sidecar of a checkpoint has no name", path=manifest, found=repr(path))
    return f"{SIDECARS}/{name}"


def sidecar_keys(part: JsonActions | ParquetActions) -> list[str]:
    """Return the keys of the sidecars that a file of a checkpoint names."""
    entries = (action.get("sidecar") for action in part.others())
    paths = [each["path"] for each in entries if isinstance(each, dict) and each.get("path")]
    return [sidecar_key(path, part.uri) for path in paths]


class ParquetActions:
    """The actions of one Parquet file of a checkpoint."""

    def __init__(self, storage: Storage, key: str) -> None:
        self._storage, self._key = storage, key
        self._live: NDArray[np.int64] | None = None
        self.uri = storage.uri_of(key)

    def others(self, *, unknown: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the actions that are not of data files, as dictionaries; if asked, all of them."""
        names = [name for name in _OTHERS if self._type(name) is not None]
        if unknown:
            names = [name for name in self._schema.names if name not in TYPES]
        if not names:
            return
        table = self._read(names)
        for name in names:
            column = table.column(name)
            for value in column.filter(column.is_valid()).to_pylist():
                yield {name: plain(value)}

    @property
    def line_count(self) -> int:
        return int(self._file.metadata.num_rows)

    def adds(self, partition_names: Sequence[str]) -> pa.Table:
        """Return the added files: path, vector, size, time and partition values as strings."""
        schema = adds_schema(partition_names)
        if self._type("add", "path") is None:
            return schema.empty_table()
        there = [name for name in schema.names if self._type("add", name) is not None]
        add = self._add(there)
        columns = {name: pc.struct_field(add, [name]) for name in there}
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
        """Return the statistics of the files as JSON, if any; in several arrays if too large."""
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
        return pc.struct_field(value, ["stats_parsed", *path])

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return the whole actions of some live files, by their rows in `adds`."""
        places = self._live_rows()[np.asarray(rows, dtype=np.int64)]
        values: list[Any] = [None] * len(places)
        starts = accumulate((each.num_rows for each in self._groups), initial=0)
        for group, (start, end) in enumerate(pairwise(starts)):
            chosen = np.flatnonzero((places >= start) & (places < end))
            if len(chosen):  # all columns are read, so only where there is a row to take
                found = self._entries(group, places[chosen] - start)
                for index, value in zip(chosen.tolist(), found, strict=True):
                    add = {key: item for key, item in plain(value).items() if item is not None}
                    # An empty map comes as an empty list, like that of an array.
                    maps = {key: add[key] or {} for key in _MAPS if key in add}
                    values[index] = {"add": add | maps}
        return values

    def _entries(self, group: int, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        fields = [f.name for f in self._type("add")]
        wanted = [name for name in fields if name == "stats_parsed" or not name.endswith("_parsed")]
        with self._readable():
            column = self._read_group(group, [f"add.{name}" for name in wanted]).column("add")
            found = column.combine_chunks().take(pa.array(rows))
        values: list[dict[str, Any]] = found.to_pylist()
        if "stats_parsed" in fields:
            # A checkpoint may have statistics as columns alone; an add action has them as JSON.
            texts = statistics_to_json(pc.struct_field(found, "stats_parsed")).to_pylist()
            for value, text in zip(values, texts, strict=True):
                del value["stats_parsed"]
                value["stats"] = value.get("stats") or text
        return values

    @cached_property
    def _groups(self) -> list[pq.RowGroupMetaData]:
        return [self._file.metadata.row_group(at) for at in range(self._file.num_row_groups)]

    def pieces(
        self,
        kind: Kind,
        partition_names: Sequence[str] = (),  # noqa: ARG002 - for sources in JSON
        more: Sequence[str] = (),
    ) -> Iterator[pa.StructArray]:
        """Yield the whole actions of one kind, in order, one row group after the other."""
        if self._type(kind, "path") is None:
            return
        added = [name for name in more if self._type(kind, name) is not None]
        names = [field.name for field in TYPES[kind] if self._type(kind, field.name) is not None]
        columns = [f"{kind}.{name}" for name in (*names, *added)]
        for group in range(len(self._groups)):
            with self._readable():
                column = self._read_group(group, columns).column(kind).combine_chunks()
                found = column.filter(pc.struct_field(column, "path").is_valid())
                whole = conform_struct(found, TYPES[kind])
            yield pa.StructArray.from_arrays(
                [*whole.flatten(), *(pc.struct_field(found, [name]) for name in added)],
                [*(field.name for field in TYPES[kind]), *added],
            )

    def entries(self, kind: Kind, besides: Collection[str]) -> Iterator[pa.StructArray]:
        """Yield all fields of the actions of one kind but some, one row group after the other."""
        if self._type(kind, "path") is None:
            return
        names = [each.name for each in self._type(kind) if each.name not in besides]
        for group in range(len(self._groups)):
            with self._readable():
                found = self._read_group(group, [f"{kind}.{name}" for name in names])
                column = found.column(kind).combine_chunks()
                yield column.filter(pc.struct_field(column, "path").is_valid())

    def bound_names(self, bounds: str) -> list[str]:
        """Return the columns that statistics have bounds of, such as `minValues`."""
        found = self._type("add", "stats_parsed", bounds)
        return [each.name for each in found] if found is not None else []

    def _add(self, fields: Sequence[str]) -> pa.StructArray:
        """Read fields of `add`, one row for each live file."""
        chunks = self._read([f"add.{name}" for name in fields]).column("add")
        column = one_array(chunks.chunks or [pa.array([], chunks.type)], self.uri)
        if {"path", "size"} <= set(fields):
            # A struct of nulls or zeros is no file; one that has bytes has a path.
            has_bytes = pc.greater(pc.struct_field(column, "size"), 0)
            if pc.any(pc.and_(has_bytes, pc.struct_field(column, "path").is_null())).as_py():
                raise FormatError("a file of a checkpoint has no path", path=self.uri)
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
            valid = pc.struct_field(paths, "path").is_valid().to_numpy(zero_copy_only=False)
            self._live = np.flatnonzero(valid)
        return self._live

    def _read(self, columns: Sequence[str]) -> pa.Table:
        with self._readable():
            size = sum(each.total_byte_size for each in self._groups)
            if size > _BYTES_AT_ONCE:
                groups = range(len(self._groups))
                return pa.concat_tables([self._read_group(each, columns) for each in groups])
            return _valid(self._file.read(columns=list(columns), use_threads=wants_threads(size)))

    def _read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        threads = wants_threads(self._groups[group].total_byte_size)
        return _valid(self._file.read_row_group(group, columns=list(columns), use_threads=threads))

    def _type(self, *path: str) -> Any:  # noqa: ANN401
        found: Any = self._schema
        for name in path:
            index = found.get_field_index(name) if hasattr(found, "get_field_index") else -1
            if index < 0:
                return None
            found = found.field(index).type
        return found

    @cached_property
    def _schema(self) -> pa.Schema:
        return self._file.schema_arrow

    @cached_property
    def _file(self) -> pq.ParquetFile:
        source = self._storage.open_input(self._key)
        with self._readable():
            file = open_parquet(
                source, pre_buffer=True, coerce_int96_timestamp_unit="us", **_PLAIN_TYPES
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


@dataclass(frozen=True)
class AddForm:
    """The form of adds that the properties of a table ask for."""

    metadata: Metadata

    @property
    def as_columns(self) -> bool:
        """Whether statistics are columns: by default, as in delta-spark."""
        return self._flag(Property.CHECKPOINT_STATS_AS_STRUCT)

    @property
    def as_json(self) -> bool:
        """Whether statistics are JSON; also where both are off, so that no row count is lost."""
        return self._flag(Property.CHECKPOINT_STATS_AS_JSON) or not self.as_columns

    @property
    def typed_partitions(self) -> bool:
        """Whether partition values are columns too.

        Not if one is a timestamp: its string may lack the zone, and a wrong one prunes files.
        """
        fields = self.metadata.partition_fields
        zoned = any(field.type == PrimitiveType("timestamp") for field in fields)
        return self.as_columns and bool(fields) and not zoned

    @cached_property
    def statistics(self) -> Mapping[StatisticPath, pa.DataType]:
        wanted: dict[StatisticPath, pa.DataType] = {
            ("numRecords",): pa.int64(),
            ("tightBounds",): pa.bool_(),
        }
        for fields in walk(indexed_columns(self.metadata), structs_only=True):
            kind = fields[-1].type
            if isinstance(kind, StructType):
                continue
            path = tuple(each.physical_name for each in fields)
            if is_ordered(kind):
                bound = arrow_type(kind)
                wanted |= {("minValues", *path): bound, ("maxValues", *path): bound}
            wanted |= {("nullCount", *path): pa.int64()}
        return wanted

    @property
    def type(self) -> pa.DataType:
        fields = [field for field in TYPES["add"] if self.as_json or field.name != "stats"]
        if self.as_columns:
            fields.append(pa.field("stats_parsed", nested_type(self.statistics)))
        if self.typed_partitions:
            partitions = self.metadata.partition_fields
            kinds = [(field.physical_name, arrow_type(field.type)) for field in partitions]
            fields.append(pa.field("partitionValues_parsed", pa.struct(kinds)))
        return pa.struct(fields)

    def _flag(self, name: str) -> bool:
        return self.metadata.configuration.get(name, "true").lower() == "true"


def checkpoint_adds(snapshot: Snapshot, form: AddForm) -> Iterator[pa.StructArray]:
    """Yield the live files as adds of a checkpoint, some ten thousand at a time."""
    files, names = snapshot.files, snapshot.partition_names
    for number, source in enumerate(files.sources):
        live, start = files.row[files.source == number], 0
        if not len(live):
            continue
        for piece in source.pieces("add", names, ["stats_parsed"]):
            low, high = np.searchsorted(live, [start, start + len(piece)])
            kept = piece.take(live[low:high] - start)
            for first in range(0, len(kept), _ROWS):
                yield _formed(kept.slice(first, _ROWS), form)
            start += len(piece)


def _valid(table: pa.Table) -> pa.Table:
    """Refuse strings that are not UTF-8, which Arrow reads; takes a tenth of reading them."""
    table.validate(full=True)
    return table


def plain(value: Any) -> Any:  # noqa: ANN401
    """Turn Arrow's maps, which come as lists of pairs, into dictionaries."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, tuple) for item in value) and value:
        return dict(value)
    return value


def _formed(piece: pa.StructArray, form: AddForm) -> pa.StructArray:
    fields = {field.name: pc.struct_field(piece, [field.name]) for field in piece.type}
    fields["dataChange"] = pa.repeat(pa.scalar(False), len(piece))
    parsed = fields.get("stats_parsed")
    if form.as_columns:
        found = statistics_columns(_Piece(fields, form.statistics), form.statistics)
        columns = {
            path: pa.nulls(len(piece), kind) if found[path] is None else found[path]
            for path, kind in form.statistics.items()
        }
        fields["stats_parsed"] = _nested(columns)
    if parsed is not None and fields["stats"].null_count:
        fields["stats"] = pc.coalesce(fields["stats"], statistics_to_json(parsed))
    if form.typed_partitions:
        texts, partitions = fields["partitionValues"], form.metadata.partition_fields
        names = [each.physical_name for each in partitions]
        values = [
            partition_column(pc.map_lookup(texts, name, "first"), each.type)
            for name, each in zip(names, partitions, strict=True)
        ]
        fields["partitionValues_parsed"] = pa.StructArray.from_arrays(values, names)
    kinds = list(form.type)
    return pa.StructArray.from_arrays([fields[field.name] for field in kinds], fields=kinds)


@dataclass
class _Piece:
    """Some adds, as a source of statistics."""

    fields: Mapping[str, pa.Array]
    wanted: Mapping[StatisticPath, pa.DataType]

    def json_statistics(self) -> pa.Array | None:
        # A writer that has all columns, and the row count of every file, has parsed the JSON.
        counts = self.parsed_statistics("numRecords")
        is_counted = counts is not None and not counts.null_count
        if is_counted and all(self.parsed_statistics(*path) is not None for path in self.wanted):
            return None
        return self.fields["stats"]

    def parsed_statistics(self, *path: str) -> pa.Array | None:
        value: Any = self.fields.get("stats_parsed")
        for name in path:
            if value is None or not pa.types.is_struct(value.type):
                return None
            place = value.type.get_field_index(name)
            value = pc.struct_field(value, [place]) if place >= 0 else None
        return value


def _nested(columns: Mapping[StatisticPath, pa.Array]) -> pa.StructArray:
    heads = by_head(columns)
    arrays = [inner[()] if () in inner else _nested(inner) for inner in heads.values()]
    return pa.StructArray.from_arrays(arrays, list(heads))
