"""All files that are physically below a table's folder, and those whose rows are searched.

One listing of the whole folder: a LIST for each thousand files of an object store, for each folder
of a disk. Folders without files are not seen. Memory grows with the files, by their names and 16
bytes each; they are made into objects a few thousand at a time. A scan reads them whole, whatever
the log says of them: with no vector and no statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.actions import adds_schema
from delvec.delta.log.file_set import DataFile, FileSet, LooseEntries
from delvec.delta.log.paths import CHANGES, LOG, SIDECARS, UUID, NameRules, among, inside_names
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.partition_values import folder_values
from delvec.delta.traces.history import LogHistory
from delvec.delta.traces.report import PlaceKind
from delvec.delta.vacuum.candidates import table_of
from delvec.errors import DelvecError, ObjectNotFoundError
from delvec.storage import FileInfo, Storage
from delvec.storage.backend import is_absolute
from delvec.storage.listed_files import file_columns, open_listed_file
from delvec.vector import Descriptor

FileKind = Literal["log", "change", "vector", "checksum", "data"]
# Where files are that no action names by its path.
_USUAL: Final = (LOG, SIDECARS, f"{LOG}/_staged_commits", CHANGES)
# The first that fits is the kind of a file; what fits none is `data`.
_KINDS: Final[tuple[tuple[FileKind, str], ...]] = (
    # Hadoop's checksums of the bytes of another file, which hold none of its values.
    ("checksum", r"(^|/)\.[^/]+\.crc$"),
    ("log", rf"^{LOG}/"),
    ("change", rf"^{CHANGES}/"),
    ("vector", rf"^([^/_.][^/]*/)?deletion_vector_{UUID}\.bin$"),
)
_AT_ONCE: Final = 4096


@dataclass(frozen=True)
class StoredFiles:
    """Files as they were listed, one row each in every column.

    Paths are relative to the table's folder, times in milliseconds since 1970, kinds numbers in
    `_KINDS`.
    """

    paths: pa.Array
    sizes: NDArray[np.int64]
    modified: NDArray[np.int64]
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.paths)

    def of(self, kind: FileKind) -> StoredFiles:
        return self.select(self.are(kind))

    def are(self, *kinds: FileKind) -> NDArray[np.bool_]:
        names = [name for name, _ in _KINDS] + ["data"]
        return np.isin(self.kinds, [names.index(each) for each in kinds])

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> StoredFiles:
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return StoredFiles(
            self.paths.take(pa.array(rows)), self.sizes[rows], self.modified[rows], self.kinds[rows]
        )

    def entries(self) -> Iterator[tuple[str, int, int]]:
        return zip(self.paths.to_pylist(), self.sizes.tolist(), self.modified.tolist(), strict=True)


def stored_files(storage: Storage) -> StoredFiles:
    return _stored(_listed(storage, ""))


def behind_links(storage: Storage, stored: StoredFiles, names: pa.Array) -> StoredFiles | None:
    """Return files in folders that a listing of a disk skips, since links lead to them.

    Looked at are folders of which nothing was listed: of the log, and of files that it names.
    None if there are no such files.
    """
    if is_absolute(storage.root) and not storage.root.startswith("/"):
        return None  # object stores have no links
    unlisted = names.filter(pc.invert(pc.is_in(names, value_set=stored.paths)))
    inside = [path for path in _folders(unlisted) if not is_absolute(path)]
    listed = {above for path in _folders(stored.paths) for above in _down_to(path)}
    skipped = {
        next((each for each in _down_to(path) if each not in listed), None)
        for path in (*inside, *_USUAL)
    }
    found: dict[str, FileInfo] = {}
    for folder in sorted(each for each in skipped if each):
        found |= {each.key: each for each in _listed(storage, f"{folder}/")}
    new = _stored(found.values())
    new = new.select(~among(new.paths, stored.paths))
    return new if len(new) else None


def joined(first: StoredFiles, second: StoredFiles) -> StoredFiles:
    return StoredFiles(
        pa.concat_arrays([first.paths, second.paths]),
        np.concatenate([first.sizes, second.sizes]),
        np.concatenate([first.modified, second.modified]),
        np.concatenate([first.kinds, second.kinds]),
    )


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file to search."""

    # What its rows are if they match; those of a live file may also be deleted by vector.
    kind: PlaceKind
    file: DataFile  # the file, without a vector and a row count, so that all its rows are read
    modified_ms: int
    # The last version that the log names it in; None if the log does not.
    version: int | None = None
    descriptor: Descriptor | None = None  # the vector of a live file


@dataclass(frozen=True)
class Suspects:
    """All files that may hold matching rows: of the table's folder, and of the log."""

    stored: StoredFiles
    history: LogHistory

    def __iter__(self) -> Iterator[Suspect]:
        yield from self._live()
        stored = self.stored.select(self.stored.sizes > 0)
        data = stored.of("data")
        unused = data.select(~among(data.paths, self._live_names))
        yield from self._unused(unused, "removed", "orphan")
        yield from self._unused(stored.of("change"), "change", "change")
        yield from self._outside()

    @cached_property
    def _live_names(self) -> pa.Array:
        files = self.history.snapshot.files
        return inside_names(files.paths, files.root)

    @cached_property
    def _inner_tables(self) -> tuple[str, ...]:
        paths = self.stored.paths
        may_be = pc.match_substring_regex(paths, r"/_delta_log/|\.metadata\.json")
        marks = paths.filter(may_be).to_pylist()
        return tuple({f"{table}/" for path in marks if (table := table_of(path)) is not None})

    @cached_property
    def _rules(self) -> NameRules:
        return NameRules.of(self.history.snapshot.metadata)

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
                written, vector = file.modification_time, file.descriptor
                yield Suspect(kind, plain, written, snapshot.version, vector)

    def _unused(self, files: StoredFiles, known: PlaceKind, other: PlaceKind) -> Iterator[Suspect]:
        """Yield files that are not live, by whether the log names them."""
        named = among(files.paths, self.history.names)
        for start in range(0, len(files), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(files)))
            yield from self._named(files.select(rows[named[rows]]), known)
            for path, size, modified in files.select(rows[~named[rows]]).entries():
                file = DataFile(path, size, self._values(path, {}), None, None, modified)
                yield Suspect(self._kind(path, other), file, modified)

    def _named(self, files: StoredFiles, kind: PlaceKind) -> Iterator[Suspect]:
        for (path, size, modified), (values, at) in zip(
            files.entries(), self._last(files.paths), strict=True
        ):
            file = DataFile(path, size, values, None, None, modified)
            yield Suspect(self._kind(path, kind), file, modified, at)

    def _last(self, paths: pa.Array) -> Iterator[tuple[dict[str, str | None], int]]:
        """Yield partition values of files that the log names, and the last version of each."""
        last = self.history.last_actions(paths)
        columns = (
            last[name].to_pylist() for name in ("path", "version", "kind", "partitionValues")
        )
        for path, version, kind, logged in zip(*columns, strict=True):
            # A remove ends the versions that have the file.
            yield self._values(path, dict(logged or ())), version - (kind == "remove")

    def _outside(self) -> Iterator[Suspect]:
        """Yield the files of other tables that were live, and are not any more."""
        storage, names = self.history.snapshot.storage, self.history.names
        full = names.filter(pc.match_substring_regex(names, "^/|://"))
        for path in full.filter(pa.array(~among(full, self._live_names))).to_pylist():
            size = 0
            try:
                place, key = open_listed_file(storage, path)
                size = place.size(key)
            except ObjectNotFoundError:
                continue
            except DelvecError:
                pass  # reported when it is read
            [(values, at)] = self._last(pa.array([path]))
            yield Suspect("outside", DataFile(path, size, values, None, None, 0), 0, at)

    def _kind(self, path: str, kind: PlaceKind) -> PlaceKind:
        """Return the kind of a file that is not live: a vacuum leaves some names alone."""
        if path.startswith(self._inner_tables):
            return "outside"
        return "hidden" if self._rules.is_hidden(path) else kind

    def _values(self, path: str, logged: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return partition values by physical name: those of the log, else of the folders."""
        names = self._physical_names
        if not names or all(logged.get(physical) is not None for physical in names.values()):
            return dict(logged)
        values = {names.get(name, name): value for name, value in folder_values(path)}
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


def plain_files(metadata: Metadata, root: str, files: Sequence[DataFile]) -> FileSet:
    """Return files as those of a definition of the table; all their rows are live."""
    names = [field.physical_name for field in metadata.partition_fields]
    rows = [
        {
            "path": file.path,
            "size": file.size,
            "modificationTime": file.modification_time,
            "partitionValues": {name: file.partition_values.get(name) for name in names},
        }
        for file in files
    ]
    table = pa.Table.from_pylist(rows, adds_schema(names)).combine_chunks()
    paths = table["path"].combine_chunks()
    return FileSet.of_one(LooseEntries(), metadata, root, paths, table.drop_columns(["path"]))


def _folders(paths: pa.Array) -> list[str]:
    folders = pc.replace_substring_regex(paths, "/?[^/]*$", "").unique().to_pylist()
    return [each for each in folders if each]


def _down_to(folder: str) -> Iterator[str]:
    """Yield the folders that lead to one, and that one.

    >>> list(_down_to("a/b"))
    ['a', 'a/b']
    """
    parts = folder.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _listed(storage: Storage, prefix: str) -> Iterator[FileInfo]:
    for info in storage.list(prefix, recursive=True):
        # A name that is not UTF-8 becomes one that no file has: its file is found unreadable.
        yield info._replace(key=info.key.encode(errors="backslashreplace").decode())


def _stored(infos: Iterable[FileInfo]) -> StoredFiles:
    table = file_columns(infos)
    paths = table["path"].combine_chunks()
    kinds = np.full(len(paths), len(_KINDS), dtype=np.int8)
    for number, (_, pattern) in reversed(list(enumerate(_KINDS))):
        fits = pc.match_substring_regex(paths, pattern).to_numpy(zero_copy_only=False)
        kinds[fits] = number
    modified = table["modified"].cast(pa.int64()).to_numpy()
    return StoredFiles(paths, table["bytes"].to_numpy(), modified, kinds)
