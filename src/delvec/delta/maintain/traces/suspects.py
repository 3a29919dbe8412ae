"""The files whose rows are searched: all that are there, whatever the log says of them.

Files are made into objects a few thousand at a time; see `files` and `history` for the memory that
all of them take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.file_set import DataFile
from delvec.delta.maintain.traces.files import inside_names
from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.errors import DelvecError, ObjectNotFoundError
from delvec.storage.listed_files import is_absolute, open_listed_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from delvec.delta.maintain.traces.files import StoredFiles
    from delvec.delta.maintain.traces.history import LogHistory
    from delvec.delta.maintain.traces.report import PlaceKind
    from delvec.vector import Descriptor

__all__ = ["Suspect", "Suspects", "folder_values", "is_inner_log"]

_AT_ONCE: Final = 4096
# A log below another folder than the table's own makes that folder a table of its own.
_INNER_TABLE: Final = r"^(?P<folder>.+?)/_delta_log/"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file to search.

    Attributes:
        kind: What its rows are if they match; those of a live file may also be deleted by vector.
        file: The file, without a vector and a row count, so that all its rows are read.
        modified_ms: When it was written, in milliseconds since 1970.
        version: The last version that the log names it in; None if the log does not.
        descriptor: The vector of a live file.
    """

    kind: PlaceKind
    file: DataFile
    modified_ms: int
    version: int | None = None
    descriptor: Descriptor | None = None


@dataclass(frozen=True)
class Suspects:
    """All files that may hold matching rows.

    Attributes:
        stored: What is below the table's folder.
        history: What the log says.
    """

    stored: StoredFiles
    history: LogHistory

    def __iter__(self) -> Iterator[Suspect]:
        yield from self._live()
        stored = self.stored.select(self.stored.sizes > 0)
        data = stored.of("data")
        yield from self._unused(
            data.select(~_among(data.paths, self._live_names)), "removed", "orphan"
        )
        yield from self._unused(stored.of("change"), "change", "change")
        yield from self._unused(stored.of("hidden"), "hidden", "hidden")
        yield from self._outside()

    @cached_property
    def _live_names(self) -> pa.Array:
        files = self.history.snapshot.files
        return inside_names(files.paths, files.root)

    @cached_property
    def _inner_tables(self) -> tuple[str, ...]:
        found = pc.extract_regex(self.stored.paths, _INNER_TABLE).drop_null()
        folders = pc.struct_field(found, "folder").unique().to_pylist()
        return tuple(f"{each}/" for each in folders)

    def _live(self) -> Iterator[Suspect]:
        """Yield all live files: statistics of the log may be wrong, or of live rows alone."""
        snapshot, names = self.history.snapshot, self._live_names
        for start in range(0, len(names), _AT_ONCE):
            window = np.arange(start, min(start + _AT_ONCE, len(names)))
            files = snapshot.files.data_files(window)
            paths = names.take(pa.array(window)).to_pylist()
            for path, file in zip(paths, files, strict=True):
                plain = replace(file, path=path, descriptor=None, row_count=None)
                kind: PlaceKind = "outside" if is_absolute(path) else "live"
                yield Suspect(
                    kind, plain, file.modification_time, snapshot.version, file.descriptor
                )

    def _unused(self, files: StoredFiles, known: PlaceKind, other: PlaceKind) -> Iterator[Suspect]:
        """Yield files that are not live, by whether the log names them."""
        named = _among(files.paths, self.history.names)
        for start in range(0, len(files), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(files)))
            yield from self._named(files.select(rows[named[rows]]), known)
            rest = files.select(rows[~named[rows]])
            for path, size, modified in rest.entries():
                file = DataFile(path, size, self._values(path, {}), None, None, modified)
                yield Suspect(self._kind(path, other), file, modified)

    def _named(self, files: StoredFiles, kind: PlaceKind) -> Iterator[Suspect]:
        last = self.history.last_actions(files.paths)
        columns = (
            *(files.paths.to_pylist(), files.sizes.tolist(), files.modified.tolist()),
            *(last["version"].to_pylist(), last["kind"].to_pylist()),
            last["partitionValues"].to_pylist(),
        )
        for path, size, modified, version, action, logged in zip(*columns, strict=True):
            values = self._values(path, dict(logged or ()))
            file = DataFile(path, size, values, None, None, modified)
            # A remove ends the versions that have the file.
            at = version - 1 if action == "remove" else version
            yield Suspect(kind, file, modified, at)

    def _outside(self) -> Iterator[Suspect]:
        """Yield the files of other tables that were live, and are not any more."""
        storage, names = self.history.snapshot.storage, self.history.names
        full = names.filter(pc.match_substring_regex(names, "^/|://"))
        for path in full.filter(pa.array(~_among(full, self._live_names))).to_pylist():
            size = 0
            try:
                place, key = open_listed_file(storage, path)
                size = place.size(key)
            except ObjectNotFoundError:
                continue
            except DelvecError:
                pass  # reported when it is read
            [last] = self.history.last_actions(pa.array([path])).to_pylist()
            values = self._values(path, dict(last["partitionValues"] or ()))
            at = last["version"] - (last["kind"] == "remove")
            yield Suspect("outside", DataFile(path, size, values, None, None, 0), 0, at)

    def _kind(self, path: str, kind: PlaceKind) -> PlaceKind:
        return "outside" if path.startswith(self._inner_tables) else kind

    def _values(self, path: str, logged: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return partition values by physical name: those of the log, else of the folders."""
        names = self._physical_names
        if not names or all(logged.get(physical) is not None for physical in names.values()):
            return dict(logged)
        folders = folder_values(path)
        values = {names.get(name, name): value for name, value in folders.items()}
        # A remove may lack its values, which then are read as nulls.
        return values | {
            name: value for name, value in logged.items() if value is not None or name not in values
        }

    @cached_property
    def _physical_names(self) -> dict[str, str]:
        """The physical names of the partition columns of all times, by their names."""
        return {
            field.name: field.physical_name
            for epoch in reversed(self.history.epochs)
            for field in epoch.metadata.partition_fields
        }


def is_inner_log(path: str) -> bool:
    """Return whether a file is one of the log of a table inside of the table's folder."""
    return "/_delta_log/" in path


def folder_values(path: str) -> dict[str, str | None]:
    """Return the partition values in the names of folders, as Hive writes them.

    >>> folder_values("day=2024-01-31/name=a%3Db/part-0.parquet")
    {'day': '2024-01-31', 'name': 'a=b'}
    """
    parts = [folder.partition("=") for folder in path.split("/")[:-1]]
    return {
        unquote(name): None if value == HIVE_NULL else unquote(value)
        for name, sign, value in parts
        if sign
    }


def _among(paths: pa.Array, names: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.is_in(paths, value_set=names).to_numpy(zero_copy_only=False)
    return mask
