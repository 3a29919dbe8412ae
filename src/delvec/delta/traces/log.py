"""The values of a condition in the files of a log: commits, checkpoints, sidecars, checksum files.

Every file of the log is read, side by side; JSON that cannot mention a value is not parsed. Places
that can be of other rows only are left out. Memory grows with the largest file: with the names,
partition values and the statistics of one column.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.actions import STRING_MAP, JsonActions
from delvec.delta.log.checkpoint_reader import ParquetActions, plain
from delvec.delta.log.file_set import FileSet, LooseEntries
from delvec.delta.log.paths import (
    LAST_CHECKPOINT,
    LOG,
    canonicalize_paths,
    inside_names,
    latest_version,
)
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.partition_values import folder_values
from delvec.delta.skipping.statistics_columns import StatisticsSource, statistics_columns
from delvec.delta.traces.files import StoredFiles
from delvec.delta.traces.history import LogHistory
from delvec.delta.traces.report import LogState, PlaceKind, Schedule, TracePlace
from delvec.delta.traces.texts import (
    BOUNDS,
    FILES,
    OWN,
    STATISTICS,
    checksum_actions,
    hint_actions,
    texts_of,
)
from delvec.delta.traces.values import NamedValues
from delvec.documents import parse_json
from delvec.errors import DelvecError, FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.storage import Storage
from delvec.storage.parallel import gather

_THREADS: Final = 4
_LARGEST_TEXT: Final = 64 << 20
_PARQUET: Final = b"PAR1"
_PARTITIONS: Final = "partition values"
# What is read as columns, or holds no value.
_NOT_LOOSE: Final = ("partitionValues_parsed", "stats_parsed", "deletionVector")
_NUMBERS: Final = OWN["add"]


@dataclass(frozen=True)
class Mention:
    """A file of the log that mentions a value of the condition."""

    key: str
    # The data files whose entries do, None for texts of the file's own, and what mentions it.
    found: Sequence[tuple[str | None, str]] = ()
    failure: str = ""  # instead, why the file cannot be read


@dataclass(frozen=True)
class LogSearch:
    """What is searched for in the files of a log."""

    storage: Storage
    values: Sequence[NamedValues]

    @cached_property
    def probes(self) -> tuple[bytes, ...] | None:
        """Bytes of which one is in every line that mentions a value; None if there are none."""
        found = [each.probes for each in self.values]
        return None if None in found else tuple(x for each in found if each for x in each)

    def mentions(self, keys: Sequence[str]) -> list[Mention]:
        """Search files of a log; return those that mention a value."""
        found = gather(self._mention, keys, _THREADS)
        return [each for each in found if each is not None]

    def texts(self, actions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str | None, str]]:
        """Yield the data file of each action that has a value in a text, if any, and what it is."""
        for action in actions:
            bodies = (action[kind] for kind in FILES if isinstance(action.get(kind), Mapping))
            path = next(
                (each["path"] for each in bodies if isinstance(each.get("path"), str)), None
            )
            for what, text, is_written in texts_of(action, self._names):
                if any(each.is_in_text(text, is_written=is_written) for each in self.values):
                    yield path, what

    def is_in(self, actions: Iterable[Mapping[str, Any]]) -> bool:
        return any(True for _ in self.texts(actions))

    def _mention(self, key: str) -> Mention | None:
        try:
            found = list(self._found(key))
        except ObjectNotFoundError:
            return None  # cleaned up since the log was listed
        except (FormatError, InvalidArgumentError) as error:  # the latter for its name
            return Mention(key, failure=error.describe())
        return Mention(key, found) if found else None

    def _found(self, key: str) -> Iterator[tuple[str | None, str]]:
        """Yield the data files whose entries mention values, None for texts, and what does."""
        if key.endswith(".parquet"):
            yield from self._in_parquet(key)
            return
        uri, data = self.storage.uri_of(key), self.storage.read(key)
        if key == LAST_CHECKPOINT:
            yield from self.texts(hint_actions(_hint(data)))
        elif key.endswith((".json", ".crc")):
            JsonActions(uri, data)  # what is not a text is refused
            if self.probes is None or any(each in data for each in self.probes):
                if key.endswith(".crc"):
                    value = parse_json(data, "a checksum file of the log", path=uri)
                    data = "\n".join(map(json.dumps, checksum_actions(value))).encode()
                yield from self._in_json(JsonActions(uri, data))
        elif data.startswith(_PARQUET):  # such as what a writer left that was killed
            yield from self._in_parquet(key)
        else:
            is_in = _in_text(data, self.values)
            if is_in is None:
                raise FormatError("not a file of a log: it could hold anything", path=uri)
            yield from [(None, "a text")] if is_in else ()

    def _in_json(self, actions: JsonActions) -> Iterator[tuple[str | None, str]]:
        yield from self._named(self.texts(actions.actions_with(self.probes)))
        fields = [("path", pa.string()), ("stats", pa.string())]
        fields += [("partitionValues", pa.struct([(name, pa.string()) for name in self._names]))]
        table = actions.columns(pa.schema([(kind, pa.struct(fields)) for kind in FILES]))
        for kind in FILES:
            entries = table.column(kind).combine_chunks().drop_null()
            if not len(entries):
                continue
            paths, stats, partitions = (pc.struct_field(entries, [name]) for name, _ in fields)
            by_name = {name: pc.struct_field(partitions, [name]) for name in self._names}
            yield from self._in_entries(paths, LooseEntries(stats), by_name)

    def _in_parquet(self, key: str) -> Iterator[tuple[str | None, str]]:
        source = ParquetActions(self.storage, key)
        is_of_files = source.adds(()).num_rows or any(map(len, source.pieces("remove")))
        if source.line_count and not is_of_files and not any(True for _ in source.others()):
            # Such as rows of a table.
            raise FormatError("not a file of a log: it could hold anything", path=source.uri)
        yield from self.texts(source.others(unknown=True))
        for kind in FILES:
            for piece in source.entries(kind, _NOT_LOOSE):
                rows = self._may_mention(piece)
                yield from self._named(self.texts({kind: plain(row)} for row in rows.to_pylist()))
        yield from self._in_checkpoint(source)

    def _named(self, found: Iterator[tuple[str | None, str]]) -> Iterator[tuple[str | None, str]]:
        """Yield files by the names that they have elsewhere."""
        for path, what in found:
            yield None if path is None else self._inside(pa.array([path]))[0], what

    def _inside(self, paths: pa.Array) -> list[str]:
        root = self.storage.root
        names: list[str] = inside_names(canonicalize_paths(paths, root), root).to_pylist()
        return names

    def _may_mention(self, entries: pa.StructArray) -> pa.StructArray:
        """Return the entries with a text that has a probe, or with a field that is no string."""
        if self.probes is None:
            return entries
        mask = np.zeros(len(entries), dtype=np.bool_)
        for name in (each.name for each in entries.type if each.name != "partitionValues"):
            column = pc.struct_field(entries, [name])
            if not pa.types.is_string(column.type):
                is_number = pa.types.is_primitive(column.type)
                mask |= False if is_number and name in _NUMBERS else _is_filled(column)
                continue
            for probe in self.probes:
                fits = pc.fill_null(pc.match_substring(column, probe.decode()), False)
                mask |= fits.to_numpy(zero_copy_only=False)
        return entries.filter(pa.array(mask))

    def _in_other_bounds(
        self, source: ParquetActions, paths: pa.Array
    ) -> Iterator[tuple[str, str]]:
        """Yield data files with a value as the bound of any column."""
        for bounds in BOUNDS:
            for name in source.bound_names(bounds):
                column = source.parsed_statistics(bounds, name)
                for leaf in () if column is None else _leaf_columns(column):
                    for each in self.values:
                        yield from self._chosen(paths, STATISTICS, each.among(leaf, cut=False))

    def _in_checkpoint(self, source: ParquetActions) -> Iterator[tuple[str, str]]:
        names = self._names
        adds = source.adds(names)
        if adds.num_rows:
            columns = adds.combine_chunks()
            partitions = columns["partitionValues"].combine_chunks() if names else None
            by_name = {name: pc.struct_field(partitions, [name]) for name in names}
            paths = columns["path"].combine_chunks()
            yield from self._in_entries(paths, source, by_name)
            yield from self._in_other_bounds(source, paths)
            if source.bound_names("minValues"):  # JSON beside columns may say something else
                yield from self._in_entries(paths, LooseEntries(source.json_statistics()), by_name)
        for removes in source.pieces("remove"):
            maps = pc.struct_field(removes, "partitionValues").cast(STRING_MAP)
            by_name = {name: pc.map_lookup(maps, name, "first") for name in names}
            yield from self._in_entries(pc.struct_field(removes, "path"), None, by_name)

    @cached_property
    def _names(self) -> list[str]:
        return sorted({each.physical[0] for each in self.values if len(each.physical) == 1})

    def _in_entries(
        self, paths: pa.Array, source: StatisticsSource | None, partitions: dict[str, pa.Array]
    ) -> Iterator[tuple[str, str]]:
        """Yield the data files of entries that mention values, and where."""
        root = self.storage.root
        for each in self.values:
            found = []
            if source is not None:
                bounds = {(name, *each.physical): each.arrow for name in BOUNDS}
                columns = statistics_columns(source, bounds).values()
                found += [(STATISTICS, each.among(col)) for col in columns if col is not None]
            if len(each.physical) == 1 and len(paths):
                texts = partitions[each.physical[0]]
                found.append((_PARTITIONS, each.among_partitions(texts)))
                by_folder = _in_folders(each, texts, canonicalize_paths(paths, root))
                found.append((_PARTITIONS, by_folder))
            for what, mask in found:
                yield from self._chosen(paths, what, mask)

    def _chosen(
        self, paths: pa.Array, what: str, mask: NDArray[np.bool_]
    ) -> Iterator[tuple[str, str]]:
        if mask.any():
            yield from ((path, what) for path in self._inside(paths.filter(pa.array(mask))))


def search_text(
    storage: Storage, key: str, size: int, values: Sequence[NamedValues]
) -> bool | None:
    """Return whether a file of no known format is a text that mentions a value.

    None if it is not a text, or too large to search, or if nobody knows how a text would spell a
    value.
    """
    if size > _LARGEST_TEXT:
        return None
    try:
        data = storage.read(key)
    except ObjectNotFoundError:
        return False
    except DelvecError:
        return None
    return _in_text(data, values)


def binary_places(
    search: LogSearch, stored: StoredFiles, schedule: Schedule
) -> Iterator[TracePlace]:
    """Yield files of vectors and checksums in whose bytes a value is, as a text."""
    files = list(stored.entries())
    of_vectors = stored.are("vector").tolist()

    def is_in(file: tuple[str, int, int]) -> bool:
        try:
            text = search.storage.read(file[0]).decode(errors="replace")
        except ObjectNotFoundError:
            return False
        return any(each.is_in_text(text) for each in search.values)

    found = gather(is_in, files, _THREADS)
    for (path, size, modified), is_vector, is_found in zip(files, of_vectors, found, strict=True):
        if is_found:
            steps = schedule.deleted() if is_vector else schedule.of("hidden", modified)
            yield TracePlace("text", path, None, size, None, "bytes that are no text", steps)


def log_places(
    search: LogSearch,
    history: LogHistory,
    stored: StoredFiles,
    places: Sequence[TracePlace],
    schedule: Schedule,
) -> list[TracePlace]:
    """Return the files of the log that mention a value of the condition.

    Statistics and partition values of a file that is there, and has no row that matches, are those
    of other rows: they count for nothing.
    """
    values, files = search.values, history.snapshot.files
    if not values:
        return []
    sizes = {path: size for path, size, _ in stored.of("log").entries()}
    mentions = search.mentions(list(sizes))
    innocent = _Innocent(stored, {place.path for place in places if place.kind != "footer"})
    in_texts = (each for mention in mentions for each in mention.found if not _is_column(each))
    named = {path for path, _ in in_texts if path is not None}
    state = LogState(
        is_live=_is_live(files, values, innocent),
        has_live_rows=any(place.kind == "live" for place in places),
        is_defined=search.is_in(definition(history.snapshot)),
        has_application=search.is_in({"txn": {"appId": x}} for x in history.snapshot.transactions),
        is_named=not named.isdisjoint(inside_names(files.paths, files.root).to_pylist()),
        removed_ms=_removal_time(history, values, named),
    )
    found = []
    for each in mentions:
        what = innocent.without(each.found)
        if not what and not each.failure:
            continue
        kind: PlaceKind = "unreadable" if each.failure else "log"
        detail = each.failure or ", ".join(sorted(what))
        version, size = _version(each.key), sizes[each.key]
        versions = None if version is None else (version, version)
        steps = schedule.log(version, state)
        found.append(TracePlace(kind, each.key, None, size, versions, detail, steps))
    return found


def definition(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield the definition of a table, which every checkpoint of a version holds."""
    yield {"metaData": snapshot.metadata.to_json()}
    for name, text in snapshot.domains.items():
        yield {"domainMetadata": {"domain": name, "configuration": text}}


def _hint(data: bytes) -> Any:  # noqa: ANN401
    """Return the hint to the last checkpoint; one that is damaged as a text."""
    try:
        return parse_json(data, "the hint to the last checkpoint")
    except FormatError:
        return {"text": data.decode(errors="replace")}


def _leaf_columns(column: pa.Array) -> Iterator[pa.Array]:
    if not pa.types.is_struct(column.type):
        yield column
        return
    for place in range(column.type.num_fields):
        yield from _leaf_columns(pc.struct_field(column, [place]))


def _is_filled(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values are neither null nor an empty map."""
    mask: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_map(column.type):
        mask = mask & (np.diff(column.offsets.to_numpy()) > 0)
    return mask


def _in_folders(each: NamedValues, texts: pa.Array, paths: pa.Array) -> NDArray[np.bool_]:
    """Return which entries without a partition value have one in the names of their folders."""
    mask = np.zeros(len(paths), dtype=np.bool_)
    lacking = pc.and_(texts.is_null(), pc.match_substring(paths, "="))
    rows = np.flatnonzero(pc.fill_null(lacking, False).to_numpy(zero_copy_only=False))
    for row, path in zip(rows.tolist(), paths.take(pa.array(rows)).to_pylist(), strict=True):
        folders = dict(folder_values(path))
        mask[row] = any(
            name in folders and each.is_partition(folders[name])
            for name in (each.physical[0], *each.names)
        )
    return mask


def _in_text(data: bytes, values: Sequence[NamedValues]) -> bool | None:
    if not data:
        return False
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if any(each.is_in_free_text(text) for each in values):
        return True
    is_open = not values or not all(each.has_spelling for each in values)
    return None if is_open or "\0" in text else False


def _is_column(found: tuple[str | None, str]) -> bool:
    return found[1] in (STATISTICS, _PARTITIONS)


class _Innocent:
    """Files that are there and have no row that matches."""

    def __init__(self, stored: StoredFiles, guilty: set[str]) -> None:
        self._stored, self._guilty = stored, pa.array(sorted(guilty), pa.string())

    def without(self, found: Sequence[tuple[str | None, str]]) -> set[str]:
        """Return what mentions a value: a text, or a column of the entry of another file."""
        are = self.are([path for path, _ in found]).tolist()
        pairs = zip(found, are, strict=True)
        return {each[1] for each, is_such in pairs if not (is_such and _is_column(each))}

    def are(self, paths: Iterable[str | None]) -> NDArray[np.bool_]:
        names = pa.array(list(paths), pa.string())
        there = pc.is_in(names, value_set=self._stored.paths)
        mask = pc.and_not(there, pc.is_in(names, value_set=self._guilty))
        innocent: NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
        return innocent


def _is_live(files: FileSet, values: Sequence[NamedValues], innocent: _Innocent) -> bool:
    """Return whether entries of live files mention a value."""
    partitions = {field.physical_name for field in files.metadata.partition_fields}
    mentioned = np.zeros(len(files), dtype=np.bool_)
    for each in values:
        if each.physical[0] in partitions:
            mentioned |= each.among_partitions(files.partition_strings(each.physical[0]))
            continue
        bounds = {(name, *each.physical): each.arrow for name in BOUNDS}
        for column in files.statistics(bounds).values():
            if column is not None:
                mentioned |= each.among(column)
    names = inside_names(files.paths.filter(pa.array(mentioned)), files.root)
    return bool((~innocent.are(names.to_pylist())).any())


def _removal_time(
    history: LogHistory, values: Sequence[NamedValues], named: set[str]
) -> int | None:
    """Return when the last file was removed whose tombstone has a value.

    That is a partition value, or a text of those that are named. Checkpoints keep a tombstone until
    it expires. None without such a file; the present if one is still live.
    """
    names = {field.physical_name for field in history.snapshot.metadata.partition_fields}
    removes = history.actions.filter(pc.equal(history.actions["kind"], "remove"))
    masks = [pc.is_in(removes["path"], value_set=pa.array(sorted(named), pa.string()))]
    is_live = False
    for each in values:
        if each.physical[0] in names:
            maps = removes["partitionValues"].combine_chunks()
            found = each.among_partitions(pc.map_lookup(maps, each.physical[0], "first"))
            masks.append(pa.array(found))
            live = history.snapshot.files.partition_strings(each.physical[0])
            is_live = is_live or bool(each.among_partitions(live).any())
    times = [t for mask in masks for t in removes["time"].filter(mask).drop_null().to_pylist()]
    return max([*times, *([int(time.time() * 1000)] if is_live else [])], default=None)


def _version(key: str) -> int | None:
    """Return the last version that a file of the log is about; None for a sidecar."""
    folder, _, name = key.rpartition("/")
    return latest_version(name) if folder in (LOG, f"{LOG}/_staged_commits") else None
