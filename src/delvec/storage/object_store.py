"""Object stores, by obstore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError, GenericError
from obstore.store import AzureStore, GCSStore, S3Store

from delvec.documents import time_ms
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError
from delvec.storage.backend import (
    S3_SCHEMES,
    Counter,
    FileInfo,
    Location,
    cause_of,
    translate_errors,
    truncated,
)
from delvec.storage.input_file import Source, cut, merge
from delvec.storage.options import split_options
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta

    Span = tuple[int, int]

_MERGE_GAP = 1 << 20  # Ranges closer than this are read in one request, as obstore does.
_PARTS_FROM = 32 << 20  # Larger objects are uploaded in parts: one request would time out.
_PART_SIZE = 16 << 20
_PAGE = 1000  # Keys that S3, Azure and Google list, and S3 deletes, per request at most.
_LAST = "\U0010ffff"


class Bucket:
    """An object store, by obstore; the errors are obstore's."""

    def __init__(self, location: Location, options: Mapping[str, str], counter: Counter) -> None:
        self._root = location.root
        self._prefix = f"{location.path}/" if location.path else ""
        self._store = _open_store(location, options)
        self._counter = counter

    def read(self, key: str) -> bytes:
        self._counter.add(gets=1)
        result = self._store.get(self._prefix + key)
        return self._body(key, result.bytes(), (0, result.meta["size"]))

    def read_spans(self, key: str, spans: Sequence[Span]) -> Sequence[bytes]:
        merged = merge(spans, _MERGE_GAP)
        blocks = gather(lambda span: self._read_span(key, span), merged, threads=8)
        return [cut(merged, blocks, span) for span in spans]

    def open(self, key: str, size: int | None) -> Source:
        known = self.stat(key).size if size is None else size
        return Source(known, partial(self.read_spans, key), lambda: None)  # nothing stays open

    def stat(self, key: str) -> FileInfo:
        self._counter.add(heads=1)
        return self._info(self._store.head(self._prefix + key))

    def put(self, key: str, data: memoryview, *, replace: bool) -> None:
        in_parts = replace and data.nbytes > _PARTS_FROM
        self._counter.add(puts=-(-data.nbytes // _PART_SIZE) + 2 if in_parts else 1)
        self._store.put(
            self._prefix + key,
            data,
            mode="overwrite" if replace else "create",
            use_multipart=in_parts,
            chunk_size=_PART_SIZE,
        )
        self._counter.add(bytes_written=data.nbytes)

    def list(
        self,
        prefix: str,
        floor: str,
        *,
        recursive: bool,
        on_odd: object = None,  # noqa: ARG002 - there are objects, and nothing else
    ) -> Iterator[FileInfo]:
        if not (recursive or floor):
            infos = map(self._info, self._in_folder(prefix)["objects"])
            # Without the folder's own marker, which Hadoop writes.
            yield from sorted(info for info in infos if info.key.startswith(prefix))
            return
        offset, leapt = self._before(floor), ""
        while True:
            for info in self._pages(prefix, offset):
                folder, slash, _ = info.key[len(prefix) :].partition("/")
                if slash and not recursive:
                    if folder == leapt:
                        continue
                    # Skip the files of this folder: `_delta_log/_sidecars` may have many.
                    offset, leapt = f"{self._prefix}{prefix}{folder}/{_LAST}", folder
                    break
                if info.key >= floor:
                    yield info
            else:
                return

    def delete(self, keys: Sequence[str]) -> None:
        paths = [self._prefix + key for key in keys]
        in_bulk = isinstance(self._store, S3Store)
        self._counter.add(deletes=-(-len(paths) // _PAGE) if in_bulk else len(paths))
        try:
            with translate_errors(self._root):
                self._store.delete(paths)
        except ObjectNotFoundError:
            # Google and Azure fail at a missing object, maybe before they reach the others.
            for key, path in zip(keys, paths, strict=True):
                self._counter.add(deletes=1)
                with suppress(ObjectNotFoundError), translate_errors(f"{self._root}/{key}"):
                    self._store.delete(path)

    def delete_folder(self, folder: str) -> None:
        keys = [info.key for info in self.list(f"{folder}/", "", recursive=True)]
        if keys:
            self.delete(keys)

    def make_folder(self, folder: str) -> None:
        pass

    def folders(self, prefix: str) -> Sequence[str]:
        found = self._in_folder(prefix)["common_prefixes"]
        return [path[len(self._prefix) :].rstrip("/") for path in found]

    def remove_empty_folders(self, is_kept: Callable[[str], bool]) -> Iterator[str]:  # noqa: ARG002
        yield from ()

    def _read_span(self, key: str, span: Span) -> bytes:
        if span[1] >= 1 << 63:  # More than HTTP clients and stores can express.
            raise truncated(f"{self._root}/{key}", span, self.stat(key).size)
        self._counter.add(gets=1)
        try:
            result = self._store.get(self._prefix + key, options={"range": span})
        except GenericError as error:
            # Stores reject a range that begins beyond the end, each with its own error.
            size = self.stat(key).size
            if span[1] > size:
                raise truncated(f"{self._root}/{key}", span, size) from error
            raise
        if result.range != span:  # Truncated, by the response header, before any byte is read.
            raise truncated(f"{self._root}/{key}", span, result.meta["size"])
        return self._body(key, result.bytes(), span)

    def _body(self, key: str, body: Any, span: Span) -> bytes:  # noqa: ANN401 - obstore.Bytes
        data = bytes(body)
        self._counter.add(bytes_read=len(data))
        if len(data) != span[1] - span[0]:
            raise truncated(f"{self._root}/{key}", span, span[0] + len(data))
        return data

    def _before(self, floor: str) -> str:
        """Return a name just before `floor`: obstore lists the names after an offset."""
        offset = (self._prefix + floor)[:-1] if floor else ""
        parent, _, name = offset.rpartition("/")
        return parent if name in ("", ".", "..") else offset

    def _pages(self, prefix: str, offset: str) -> Iterator[FileInfo]:
        stream = self._store.list(
            self._prefix + prefix or None, offset=offset or None, chunk_size=_PAGE
        )
        self._counter.add(lists=1)
        last = ""
        for number, page in enumerate(stream):
            self._counter.add(lists=min(number, 1))
            for info in map(self._info, page):
                if info.key > last:
                    last = info.key
                    yield info
                elif info.size:  # Else the marker `x/` of a folder, whose slash obstore removes.
                    raise UnsupportedFeatureError(
                        f"{self._root} lists its objects out of order, so that a log could be read "
                        "with a gap",
                        feature="listing in order of names",
                    )

    def _in_folder(self, prefix: str) -> ListResult[Sequence[ObjectMeta]]:
        result = self._store.list_with_delimiter(self._prefix + prefix or None)
        listed = len(result["objects"]) + len(result["common_prefixes"])
        self._counter.add(lists=max(1, -(-listed // _PAGE)))
        return result

    def _info(self, meta: ObjectMeta) -> FileInfo:
        age = time_ms(meta["last_modified"])
        return FileInfo(meta["path"][len(self._prefix) :], meta["size"], age, meta["e_tag"])


def _open_store(location: Location, options: Mapping[str, str]) -> S3Store | GCSStore | AzureStore:
    config, client, retry = split_options(location.scheme, options)
    settings: dict[str, Any] = {
        "config": config,
        "client_options": client or None,
        "retry_config": retry or None,
    }
    try:
        if location.scheme in S3_SCHEMES:
            return S3Store(location.place, **settings)
        if location.scheme == "gs":
            return GCSStore(location.place, **settings)
        return AzureStore.from_url(f"{location.scheme}://{location.place}", **settings)
    except (BaseError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{location.root} cannot be opened: {cause_of(error)}",
            hint="see https://developmentseed.org/obstore for the options of a store",
        ) from error
