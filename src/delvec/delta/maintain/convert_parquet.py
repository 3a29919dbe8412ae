"""CONVERT: a folder of Parquet files becomes a Delta table where it is; no file is written again.

All files below the folder are taken but hidden ones, as delta-spark does; where a stream has
written it, those that its log names, as Spark reads them. Their footers are read,
16 at a time: one request each for a footer of up to 64 KiB. The schema is that of all files
together; the statistics come from the footers.

Memory grows with the files: some kilobytes each for their entries, which are one commit. Footers
are kept up to 64 MiB in all; those beyond are read a second time for the statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import pyarrow.parquet as pq

from delvec.delta.alter.definition import new_table
from delvec.delta.alter.table_state import TableState
from delvec.delta.maintain.parquet_folder import data_files, file_schema, merged, partition_folders
from delvec.delta.read.data_file import has_old_calendar
from delvec.delta.read.footer_statistics import MAX, MIN, file_statistics, read_parquet_footer
from delvec.delta.schema.expressions import require_plain
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.types import StructType
from delvec.delta.skipping.statistics import statistics_json
from delvec.delta.write.change import Change, Operation
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import CheckedOptions, create
from delvec.errors import UnsupportedFeatureError
from delvec.report.format import format_count
from delvec.storage import Storage
from delvec.storage.backend import FileInfo
from delvec.storage.parallel import gather

_FOOTER_BYTES: Final = 64 << 20
_AT_ONCE: Final = 1000
_PLAIN: Final = "/!$&'()*+,;=@-._~"


def convert_to_delta(
    storage: Storage,
    partition_by: object,
    properties: Mapping[str, Any] | None,
    options: CheckedOptions,
) -> WriteReport:
    """Commit version 0 of a table that has all Parquet files of a folder."""
    for name, value in (properties or {}).items():
        if name.lower() == Property.MAPPING_MODE.lower() and str(value).lower() != "none":
            raise UnsupportedFeatureError(
                f"a folder cannot be converted with {name}={value}: its files have columns by their"
                " names",
                feature="columnMapping",
                hint="convert it first, and set the property afterwards",
            )
    files, notes = data_files(storage)
    fields, rows = partition_folders([info.key for info in files], partition_by, storage.root)
    footers = _Footers(storage)
    # Partition columns come last, or in place of columns of the same name.
    last = {each.name.lower(): each for each in fields}
    own = [last.pop(each.name.lower(), each) for each in _schema(footers, files).fields]
    schema = StructType((*own, *last.values()))
    state = new_table(schema, [each.name for each in fields], properties)
    require_plain(storage.root, state.metadata)
    names = [each.physical_name for each in state.metadata.partition_fields]
    bodies = [
        {
            "path": quote(info.key, safe=_PLAIN),
            "partitionValues": dict(zip(names, values, strict=True)),
            "size": info.size,
            "modificationTime": info.modified_ms,
            "dataChange": True,
            "stats": statistics_json(statistics),
        }
        for info, values, statistics in zip(
            files, rows, _statistics(footers, files, state), strict=True
        )
    ]
    parameters = {
        "numFiles": len(bodies),
        "partitionedBy": json.dumps(names),
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    change = Change(
        Operation("CONVERT", parameters, {"numConvertedFiles": len(bodies)}),
        added=tuple(bodies),
        protocol=state.protocol,
        metadata=state.metadata,
    )
    version = create(storage, change, options)
    return WriteReport(
        "CONVERT",
        storage.root,
        version,
        dry_run=options.dry_run,
        files_added=len(bodies),
        bytes_added=sum(info.size for info in files),
        notes=(
            f"{format_count(len(files), 'file')} with {format_count(footers.rows, 'row')}",
            *notes,
        ),
    )


@dataclass
class _Footers:
    """Footers of files, kept as long as there is room for them."""

    storage: Storage
    kept: dict[str, pq.FileMetaData] = field(default_factory=dict)
    rows: int = 0
    held: int = 0

    def read(self, files: Iterable[FileInfo]) -> list[pq.FileMetaData]:
        return gather(self._one, files)

    def _one(self, info: FileInfo) -> pq.FileMetaData:
        footer = self.kept.pop(info.key, None)
        if footer is not None:
            return footer
        return read_parquet_footer(self.storage, info.key, info.size)

    def keep(self, info: FileInfo, footer: pq.FileMetaData) -> None:
        """Keep a footer for the second time that it is needed, if there is room."""
        self.rows += footer.num_rows
        self.held += footer.serialized_size
        if self.held <= _FOOTER_BYTES:
            self.kept[info.key] = footer


def _schema(footers: _Footers, files: Sequence[FileInfo]) -> StructType:
    first: dict[StructType, str] = {}
    for start in range(0, len(files), _AT_ONCE):
        window = files[start : start + _AT_ONCE]
        for info, footer in zip(window, footers.read(window), strict=True):
            footers.keep(info, footer)
            first.setdefault(file_schema(footer, info.key), info.key)
    schemas = iter(first.items())
    schema, _ = next(schemas)
    for more, path in schemas:
        schema = merged(schema, more, path)
    return schema


def _statistics(
    footers: _Footers, files: Sequence[FileInfo], state: TableState
) -> Iterable[dict[str, Any]]:
    tight = state.protocol.has_vectors
    for start in range(0, len(files), _AT_ONCE):
        for footer in footers.read(files[start : start + _AT_ONCE]):
            found = file_statistics(state.metadata, footer, tight_bounds=tight)
            if has_old_calendar(footer.metadata):
                # Bounds of dates are not those that readers see.
                found = {key: value for key, value in found.items() if key not in (MIN, MAX)}
            yield found
