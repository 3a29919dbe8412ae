"""The class through which all other packages read and write files of tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.storage.backend import (
    Counter,
    FileInfo,
    Location,
    RequestCounts,
    checked_key,
    is_absolute,
    locate,
    locate_decoded,
    translate_errors,
)
from delvec.storage.disk import Disk
from delvec.storage.fence import Fence, Places, split_by_place
from delvec.storage.input_file import InputFile
from delvec.storage.object_store import Bucket
from delvec.storage.options import merge_options, options_from_hadoop

if TYPE_CHECKING:
    Span = tuple[int, int]
    Data = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Storage:
    """Objects below one root, on local disk or in an object store.

    Immutable, picklable and safe to share between threads. A pickled copy carries the root, the
    options and the fence, opens its own connection, and counts its own requests.

    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> storage = Storage.open(folder.name)
    >>> storage.write("a/1.bin", b"0123456789")
    >>> storage.write_if_absent("a/2.bin", b"")
    >>> storage.read_ranges("a/1.bin", [(0, 2), (8, 2)])
    (b'01', b'89')
    >>> [info.key for info in storage.list("a", start_from="2")]
    ['a/2.bin']
    >>> storage.delete(["a/2.bin", "never there"])
    >>> storage.exists("a/2.bin")
    False
    >>> storage.requests.puts, storage.requests.gets
    (2, 1)
    >>> folder.cleanup()
    """

    root: str
    _options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    _places: Places = field(default_factory=Places, repr=False)
    fence: Fence | None = field(default=None, repr=False)
    _counter: Counter = field(default_factory=Counter, repr=False, compare=False)

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None = None,
        *,
        hadoop: Callable[[str], str | None] | None = None,
        allow_paths: Sequence[Sequence[str] | str | None] = (),
    ) -> Storage:
        """Open a path, or a `file:`, `s3:`, `s3a:`, `s3n:`, `gs:`, `abfss:`, `abfs:` or `az:` URI.

        No request is made. Paths and the keys in URIs of object stores are literal, only `file:`
        URIs are percent-decoded.

        Args:
            uri: The root; it need not exist.
            storage_options: obstore's options, in any of its or deltalake's spellings. They are
                for the bucket or container of the root; those of another that files of the table
                lead to are in a dictionary of their own: `{"s3://other": {...}}`.
            hadoop: Returns values of a Hadoop configuration, for options that are not given.
            allow_paths: Lists of prefixes. If there is one, files outside of the root are opened
                only if each list has a prefix of theirs.
        """
        location = locate(os.fspath(uri))
        options, named = split_by_place(storage_options or {}, location)
        places = Places(tuple(sorted(options.items())), named, hadoop)
        if hadoop is not None:
            options = merge_options(options_from_hadoop(location.root, hadoop), options)
        fence = Fence.around(location, *allow_paths)
        storage = cls(location.root, tuple(sorted(options.items())), places, fence)
        storage._backend  # noqa: B018 - reject wrong options here, not at the first read
        return storage

    @classmethod
    def open_file(
        cls,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None = None,
        *,
        hadoop: Callable[[str], str | None] | None = None,
    ) -> tuple[Storage, str]:
        """Open the folder of a single file; return it with the key of the file.

        >>> Storage.open_file("file:///lake/a%20b.bin")
        (Storage(root='/lake'), 'a b.bin')
        """
        location = locate(os.fspath(uri))
        folder, _, name = location.path.rpartition("/")
        if not name:
            raise InvalidArgumentError(f"{os.fspath(uri)!r} names no file")
        root = location._replace(path=folder or ("/" if location.scheme == "file" else "")).root
        return cls.open(root, storage_options, hadoop=hadoop), checked_key(name)

    @property
    def options(self) -> dict[str, str]:
        """The options, with those taken from the session's configuration; contain secrets.

        Those of other places are among them, as far as they are known.
        """
        return {**dict(self._options), **self._places.flat()}

    @property
    def given_options(self) -> dict[str, str]:
        """The options that were given, as `storage_options`; without those of a session."""
        return {**dict(self._places.given), **self._places.flat(found=False)}

    def admit(self, path: str) -> Location:
        """Return where a file is that the table names; refuse one that it must not lead to.

        Everything that metadata of a table name passes here, before it is opened by anybody.

        Args:
            path: A key, or an absolute path or URI, decoded.

        Raises:
            FormatError: It is on another kind of store, or in another place that nobody has named,
                or beyond the fence.
        """
        own = locate(self.root)
        location = locate_decoded(path if is_absolute(path) else self.uri_of(path))
        if location.kind != own.kind:
            raise FormatError(
                "the table names a file on another kind of store",
                path=self.root,
                expected=f"a path on {own.kind}",
                found=repr(path)[:200],
            )
        if self.fence is not None:
            self.fence.require(location)
        if location.home != own.home:
            self._places.options_of(location, own)
        return location

    def open_elsewhere(self, path: str) -> tuple[Storage, str]:
        """Open the folder of a file that the table names by an absolute path; see `admit`."""
        location = self.admit(path)
        folder, _, name = location.path.rpartition("/")
        root = location._replace(path=folder or ("/" if location.scheme == "file" else "")).root
        own = locate(self.root)
        options = self._options
        if location.home != own.home:
            options = tuple(sorted(self._places.options_of(location, own).items()))
        return _opened(root, options, self.fence), checked_key(name)

    def narrowed(self, prefixes: Sequence[str] | str | None) -> Storage:
        """Return the same storage, with one more list of prefixes for its fence."""
        if prefixes is None:
            return self
        more = Fence.around(locate(self.root), prefixes)
        if more is not None and self.fence is not None:
            more = replace(more, lists=self.fence.lists + more.lists)
        return replace(self, fence=more, _counter=Counter())

    @property
    def requests(self) -> RequestCounts:
        """The requests made so far, by this object alone."""
        return self._counter.counts

    def uri_of(self, key: str) -> str:
        """Return the full name of a key, unescaped.

        >>> Storage.open("s3a://lake/orders/", {"region": "eu-west-1"}).uri_of("part=a%20b/1")
        's3a://lake/orders/part=a%20b/1'
        """
        return f"{self.root.rstrip('/')}/{checked_key(key)}"

    def read(self, key: str) -> bytes:
        """Read a whole object: one GET."""
        with translate_errors(self.uri_of(key)):
            return self._backend.read(key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read exactly `length` bytes from `start`: one GET. See `read_ranges`."""
        return self.read_ranges(key, [(start, length)])[0]

    def read_ranges(self, key: str, ranges: Iterable[Span]) -> tuple[bytes, ...]:
        """Read several (start, length) ranges of one object; return them in the given order.

        Ranges at most 1 MiB apart share a GET, and the GETs run in parallel; local disk opens the
        file once. Lengths are compared with the size of the object before anything is read into
        memory. An empty range costs nothing.

        Raises:
            TruncatedError: A range ends beyond the end of the object.
        """
        spans = [(start, start + length) for start, length in ranges]
        if any(not 0 <= start <= end for start, end in spans):
            raise InvalidArgumentError(f"a range of {self.uri_of(key)} is negative")
        with translate_errors(self.uri_of(key)):
            wanted = [span for span in spans if span[0] < span[1]]
            found = iter(self._backend.read_spans(key, wanted) if wanted else ())
        return tuple(next(found) if start < end else b"" for start, end in spans)

    def open_input(self, key: str, size: int | None = None) -> InputFile:
        """Open an object as a seekable, read-only file, as `pyarrow.parquet` takes one.

        On local disk this counts as one GET, whatever is read. In an object store every read is a
        GET, none is made here, and a missing object is noticed by the first read.

        Args:
            key: The object.
            size: Its size in bytes, if known: saves a HEAD in an object store.
        """
        uri = self.uri_of(key)
        with translate_errors(uri):
            return InputFile(self._backend.open(key, size), uri)

    def stat(self, key: str) -> FileInfo:
        """Return size, modification time and etag: one HEAD."""
        with translate_errors(self.uri_of(key)):
            return self._backend.stat(key)

    def size(self, key: str) -> int:
        """Return the size in bytes: one HEAD."""
        return self.stat(key).size

    def exists(self, key: str) -> bool:
        """Return whether there is an object of that name; a folder is not one. One HEAD."""
        try:
            self.stat(key)
        except ObjectNotFoundError:
            return False
        return True

    def write(self, key: str, data: Data) -> None:
        """Put an object, replacing an existing one; readers see the old or the new, never a mix.

        One PUT up to 32 MiB, beyond that one per 16 MiB plus two.
        """
        with translate_errors(self.uri_of(key)):
            self._backend.put(key, memoryview(data).cast("B"), replace=True)

    def write_if_absent(self, key: str, data: Data) -> None:
        """Put an object unless there is one of that name; of several writers exactly one succeeds.

        One PUT, atomic: a writer that dies leaves the whole object or none. In an object store a
        put whose reply was lost may be retried and then fail because of itself, so a caller that
        must know compares the existing object after `ObjectExistsError`.

        Raises:
            ObjectExistsError: There is an object of that name.
        """
        with translate_errors(self.uri_of(key)):
            self._backend.put(key, memoryview(data).cast("B"), replace=False)

    def list(
        self,
        folder: str = "",
        *,
        start_from: str | None = None,
        recursive: bool = False,
        on_odd: Callable[[str], None] | None = None,
    ) -> Iterator[FileInfo]:
        """Yield the files of a folder, or of all below it, sorted by key (by code point).

        Keys are relative to the root, hidden files included; a missing folder is empty. Pages are
        fetched as they are consumed. In S3, Hadoop's markers of the folders below may appear as
        empty files.

        Args:
            folder: The folder, the root by default.
            start_from: Skip names (relative to the folder) that sort before this one.
            recursive: Descend into the folders below.
            on_odd: Is called with the key of each entry on local disk that is left out: a link to
                a folder, to nothing or in circles, a pipe. Object stores have none.
        """
        folder = folder.rstrip("/")
        prefix = f"{checked_key(folder)}/" if folder else ""
        floor = prefix + checked_key(start_from) if start_from else ""

        def listed() -> Iterator[FileInfo]:
            with translate_errors(f"{self.root.rstrip('/')}/{prefix}"):
                yield from self._backend.list(prefix, floor, recursive=recursive, on_odd=on_odd)

        return listed()

    def folders(self, folder: str = "") -> tuple[str, ...]:
        """Return the keys of the folders in a folder, sorted; without those behind links.

        One request for each 1000 files and folders there, all of which are held in memory if it is
        an object store.
        """
        folder = folder.rstrip("/")
        prefix = f"{checked_key(folder)}/" if folder else ""
        with translate_errors(f"{self.root.rstrip('/')}/{prefix}"):
            return tuple(sorted(self._backend.folders(prefix)))

    def make_folder(self, folder: str) -> None:
        """Make a folder on local disk, for another program to write to; object stores have none.

        Raises:
            StorageError: It is behind a link that leads out of the root.
        """
        checked = checked_key(folder.rstrip("/"))
        with translate_errors(self.uri_of(checked)):
            self._backend.make_folder(checked)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored. S3 takes 1000 per request."""
        checked = [checked_key(key) for key in keys]
        with translate_errors(self.root):
            if checked:
                self._backend.delete(checked)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and all below it, hidden files too; a missing folder is ignored.

        In an object store, one listing and one delete per 1000 objects. On local disk no link is
        followed, and the folder itself is removed too.
        """
        checked = checked_key(folder.rstrip("/"))
        with translate_errors(self.uri_of(checked)):
            self._backend.delete_folder(checked)

    def remove_empty_folders(self, is_kept: Callable[[str], bool]) -> tuple[str, ...]:
        """Remove the empty folders below the root, deepest first; return their keys.

        A folder becomes empty when all folders in it are removed. Object stores have no folders.
        On local disk no link is followed.

        Args:
            is_kept: Tells by the key of a folder whether it is kept, with all below it.
        """
        with translate_errors(self.root):
            return tuple(self._backend.remove_empty_folders(is_kept))

    @cached_property
    def _backend(self) -> Disk | Bucket:
        location = locate(self.root)
        if location.scheme == "file":
            return Disk(location, self._counter, self.fence)
        return Bucket(location, dict(self._options), self._counter)

    def __reduce__(self) -> tuple[object, ...]:
        return Storage, (self.root, self._options, self._places, self.fence)


@lru_cache(maxsize=256)
def _opened(root: str, options: tuple[tuple[str, str], ...], fence: Fence | None) -> Storage:
    """Open a folder once: many files of a clone are in few folders."""
    return Storage(root, options, fence=fence)
