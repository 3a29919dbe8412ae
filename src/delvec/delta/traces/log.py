"""The values of a condition in the files of a log: commits, checkpoints, sidecars, checksum files.

Every file of the log is read, side by side; JSON that cannot mention a value is not parsed. Places
that can be of other rows only are left out. Memory grows with the largest file: with the names,
partition values and the statistics of one column.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.actions import STRING_MAP, JsonActions
from delvec.delta.log.checkpoint_reader import ParquetActions
from delvec.delta.log.file_set import FileSet, LooseEntries
from delvec.delta.log.paths import LAST_CHECKPOINT, LOG, canonicalize_paths, latest_version
from delvec.delta.schema.partition_values import folder_values
from delvec.delta.skipping.statistics_columns import StatisticsSource, statistics_columns
from delvec.delta.traces.files import StoredFiles, inside_names
from delvec.delta.traces.report import PlaceKind, Schedule, TracePlace
from delvec.documents import parse_json
from delvec.errors import DelvecError, FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.traces.history import LogHistory
    from delvec.delta.traces.values import NamedValues
    from delvec.storage import Storage

_THREADS: Final = 4
_LARGEST_TEXT: Final = 64 << 20
_PARQUET: Final = b"PAR1"
_KINDS: Final = ("add", "remove", "cdc")
_STATISTICS, _PARTITIONS = "statistics", "partition values"
# What is said of an action that is about no file, and which of its parts are searched.
_TEXTS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "commitInfo": ("the text of an operation", ("operationParameters", "userMetadata")),
    "metaData": ("table metadata", ("name", "description", "configuration")),
    "domainMetadata": ("table metadata", ("configuration",)),
    "txn": ("table metadata", ("appId",)),
}


@dataclass(frozen=True)
class Mention:
    """A file of the log that mentions a value of the condition.

    Attributes:
        texts: What texts in it mention a value.
        paths: The data files whose entries do, and where: in statistics, or partition values.
        failure: Instead, why the file cannot be read.
    """

    key: str
    texts: set[str] = field(default_factory=set)
    paths: Sequence[tuple[str, str]] = ()
    failure: str = ""


def search_log(
    storage: Storage, keys: Sequence[str], values: Sequence[NamedValues]
) -> list[Mention]:
    """Search files of a log for values; return those that mention one."""

    def search(key: str) -> Mention | None:
        try:
            texts, paths = _search(storage, key, values)
        except ObjectNotFoundError:
            return None  # cleaned up since the log was listed
        except (FormatError, InvalidArgumentError) as error:  # the latter for its name
            return Mention(key, failure=error.describe())
        return Mention(key, texts, paths) if texts or paths else None

    return [each for each in gather(search, keys, _THREADS) if each is not None]


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


def log_places(
    history: LogHistory,
    stored: StoredFiles,
    values: Sequence[NamedValues],
    places: Sequence[TracePlace],
    schedule: Schedule,
) -> list[TracePlace]:
    """Return the files of the log that mention a value of the condition.

    Statistics and partition values of a file that is there, and has no row that matches, are those
    of other rows: they count for nothing.
    """
    if not values:
        return []
    storage, log = history.snapshot.storage, stored.of("log")
    sizes = {path: size for path, size, _ in log.entries() if path != LAST_CHECKPOINT}
    mentions = search_log(storage, list(sizes), values)
    innocent = _Innocent(stored, {place.path for place in places})
    is_live = _is_live(history.snapshot.files, values, innocent)
    has_live_rows = any(place.kind == "live" for place in places)
    times = _partition_times(history, values)
    found = []
    for each in mentions:
        what = {kind for path, kind in innocent.without(each.paths)} | each.texts
        if not what and not each.failure:
            continue
        kind: PlaceKind = "unreadable" if each.failure else "log"
        detail = each.failure or ", ".join(sorted(what))
        version, size = _version(each.key), sizes[each.key]
        versions = None if version is None else (version, version)
        steps = schedule.log(version, times, is_live=is_live, has_live_rows=has_live_rows)
        found.append(TracePlace(kind, each.key, None, size, versions, detail, steps))
    return found


def _search(
    storage: Storage, key: str, values: Sequence[NamedValues]
) -> tuple[set[str], list[tuple[str, str]]]:
    """Return what texts of a file mention values, and the data files whose entries do."""
    uri, root = storage.uri_of(key), storage.root
    if key.endswith(".parquet"):
        return _in_parquet(storage, key, values)
    data = storage.read(key)
    if not key.endswith((".json", ".crc")):  # such as what a writer left that was killed
        if data.startswith(_PARQUET):
            return _in_parquet(storage, key, values)
        is_in = _in_text(data, values)
        if is_in is None:
            raise FormatError("not a file of a log: it could hold anything", path=uri)
        return {"a text"} if is_in else set(), []
    actions = JsonActions(uri, data)  # what is not a text is refused
    if not any(each.probes is None or any(x in data for x in each.probes) for each in values):
        return set(), []
    if key.endswith(".crc"):
        data = _as_actions(parse_json(data, "a checksum file of the log", path=uri))
        actions = JsonActions(uri, data)
    return _in_actions(actions.others(), values), list(_in_json(actions, values, root))


def _in_parquet(
    storage: Storage, key: str, values: Sequence[NamedValues]
) -> tuple[set[str], list[tuple[str, str]]]:
    source = ParquetActions(storage, key)
    others = list(source.others())
    is_of_files = source.adds(()).num_rows or any(map(len, source.pieces("remove")))
    if source.line_count and not others and not is_of_files:  # such as rows of a table
        raise FormatError("not a file of a log: it could hold anything", path=source.uri)
    return _in_actions(others, values), list(_in_checkpoint(source, values, storage.root))


def _as_actions(value: Any) -> bytes:  # noqa: ANN401
    """Return what a checksum file holds as the lines of a commit."""
    if not isinstance(value, dict):
        return b""
    actions = [{"add": each} for each in value.get("allFiles") or ()]
    actions += [{"metaData": value["metadata"]}] if value.get("metadata") else []
    for kind, name in (("setTransactions", "txn"), ("domainMetadata", "domainMetadata")):
        actions += [{name: each} for each in value.get(kind) or ()]
    return "\n".join(map(json.dumps, actions)).encode()


def _in_actions(actions: Iterable[dict[str, Any]], values: Sequence[NamedValues]) -> set[str]:
    found = set()
    for action in actions:
        for kind, (what, parts) in _TEXTS.items():
            body = action.get(kind)
            if isinstance(body, dict) and any(
                each.is_in_text(text)
                for part in parts
                for text in _strings(body.get(part))
                for each in values
            ):
                found.add(what)
    return found


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _in_json(
    actions: JsonActions, values: Sequence[NamedValues], root: str
) -> Iterator[tuple[str, str]]:
    names = sorted({each.physical[0] for each in values if len(each.physical) == 1})
    fields = [("path", pa.string()), ("stats", pa.string())]
    fields += [("partitionValues", pa.struct([(name, pa.string()) for name in names]))]
    table = actions.columns(pa.schema([(kind, pa.struct(fields)) for kind in _KINDS]))
    for kind in _KINDS:
        entries = table.column(kind).combine_chunks().drop_null()
        if not len(entries):
            continue
        paths, stats, partitions = (pc.struct_field(entries, [name]) for name, _ in fields)
        by_name = {name: pc.struct_field(partitions, [name]) for name in names}
        yield from _in_entries(paths, LooseEntries(stats), by_name, values, root)


def _in_checkpoint(
    source: ParquetActions, values: Sequence[NamedValues], root: str
) -> Iterator[tuple[str, str]]:
    names = sorted({each.physical[0] for each in values if len(each.physical) == 1})
    adds = source.adds(names)
    if adds.num_rows:
        columns = adds.combine_chunks()
        partitions = columns["partitionValues"].combine_chunks() if names else None
        by_name = {name: pc.struct_field(partitions, [name]) for name in names}
        paths = columns["path"].combine_chunks()
        yield from _in_entries(paths, source, by_name, values, root)
    for removes in source.pieces("remove"):
        maps = pc.struct_field(removes, "partitionValues").cast(STRING_MAP)
        by_name = {name: pc.map_lookup(maps, name, "first") for name in names}
        yield from _in_entries(pc.struct_field(removes, "path"), None, by_name, values, root)


def _in_entries(
    paths: pa.Array,
    source: StatisticsSource | None,
    partitions: dict[str, pa.Array],
    values: Sequence[NamedValues],
    root: str,
) -> Iterator[tuple[str, str]]:
    """Yield the data files of entries that mention values, and where."""
    for each in values:
        found = []
        if source is not None:
            bounds = {(name, *each.physical): each.arrow for name in ("minValues", "maxValues")}
            columns = statistics_columns(source, bounds).values()
            found += [(_STATISTICS, each.among(column)) for column in columns if column is not None]
        if len(each.physical) == 1 and len(paths):
            texts = partitions[each.physical[0]]
            found.append((_PARTITIONS, each.among_partitions(texts)))
            found.append((_PARTITIONS, _in_folders(each, texts, canonicalize_paths(paths, root))))
        for what, mask in found:
            if mask.any():
                chosen = inside_names(canonicalize_paths(paths.filter(pa.array(mask)), root), root)
                yield from ((path, what) for path in chosen.to_pylist())


def _in_folders(each: NamedValues, texts: pa.Array, paths: pa.Array) -> NDArray[np.bool_]:
    """Return which entries without a partition value have one in the names of their folders."""
    mask = np.zeros(len(paths), dtype=np.bool_)
    lacking = pc.and_(texts.is_null(), pc.match_substring(paths, "="))
    rows = np.flatnonzero(pc.fill_null(lacking, False).to_numpy(zero_copy_only=False))
    for row, path in zip(rows.tolist(), paths.take(pa.array(rows)).to_pylist(), strict=True):
        folders = dict(folder_values(path))
        mask[row] = any(
            name in folders and each.is_partition(folders[name])
            for name in (each.physical[0], each.name)
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


class _Innocent:
    """Files that are there and have no row that matches."""

    def __init__(self, stored: StoredFiles, guilty: set[str]) -> None:
        self._stored, self._guilty = stored, pa.array(sorted(guilty), pa.string())

    def without(self, paths: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the entries that are not of such files."""
        kept = ~self.are([path for path, _ in paths])
        return [each for each, is_kept in zip(paths, kept.tolist(), strict=True) if is_kept]

    def are(self, paths: Iterable[str]) -> NDArray[np.bool_]:
        """Return which of some files are such."""
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
        bounds = {(name, *each.physical): each.arrow for name in ("minValues", "maxValues")}
        for column in files.statistics(bounds).values():
            if column is not None:
                mentioned |= each.among(column)
    names = inside_names(files.paths.filter(pa.array(mentioned)), files.root)
    return bool((~innocent.are(names.to_pylist())).any())


def _partition_times(history: LogHistory, values: Sequence[NamedValues]) -> int | None:
    """Return when the last file was removed that has a value as its partition value.

    Checkpoints keep its tombstone, and the value in it, until that expires. None without such a
    file; the present if one is still live.
    """
    names = {field.physical_name for field in history.snapshot.metadata.partition_fields}
    removes = history.actions.filter(pc.equal(history.actions["kind"], "remove"))
    times = []
    for each in values:
        if each.physical[0] not in names:
            continue
        maps = removes["partitionValues"].combine_chunks()
        found = each.among_partitions(pc.map_lookup(maps, each.physical[0], "first"))
        times += removes["time"].filter(pa.array(found)).drop_null().to_pylist()
        live = history.snapshot.files.partition_strings(each.physical[0])
        times += [int(time.time() * 1000)] if each.among_partitions(live).any() else []
    return max(times, default=None)


def _version(key: str) -> int | None:
    """Return the last version that a file of the log is about; None for a sidecar."""
    folder, _, name = key.rpartition("/")
    return latest_version(name) if folder in (LOG, f"{LOG}/_staged_commits") else None
