"""Local disk, by plain system calls.

Not by obstore, whose version 0.12 cannot address files that end in `#1`, fails to list a folder
with a control character in a name, stages its writes as `<name>#1`, which Hadoop takes for a data
file if the writer is killed, and never syncs. Here a write is staged in a hidden file, synced, then
linked (put-if-absent) or renamed (overwrite) to its name, and the folder is synced, which costs
about 0.5 ms.

Symbolic links: the root may be one or be behind one. Reads follow links, as Spark's do. Writes and
deletes behind a link that leads out of the root are refused, and listings do not descend into
linked folders, so nothing outside the root is ever changed or listed.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from delvec.errors import ObjectNotFoundError, StorageError
from delvec.storage.counts import FileInfo
from delvec.storage.failures import explained, truncated
from delvec.storage.spans import cut, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delvec.storage.counts import Counter
    from delvec.storage.location import Location

    Span = tuple[int, int]

__all__ = ["STAGED_PREFIX", "Disk"]

STAGED_PREFIX = ".delvec-staged-"
"""The prefix of the files in which local writes are staged; a killed writer may leave one.

Hadoop, and so Spark and Delta, ignore names that begin with a dot.
"""

# A folder that is not empty, or gone, or that nobody may remove: it does no harm.
_NOT_REMOVED = (
    errno.ENOTEMPTY,
    errno.EEXIST,
    errno.ENOENT,
    errno.EBUSY,
    errno.EACCES,
    errno.EPERM,
)

_LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)


class Disk:
    """Local disk, by system calls; the errors are the operating system's."""

    def __init__(self, location: Location, counter: Counter) -> None:
        self._root = Path(location.path)
        self._counter = counter

    def read(self, key: str) -> bytes:
        with self._opened(key) as (file, size):
            return self.pread(file, key, (0, size))

    def read_spans(self, key: str, spans: Sequence[Span]) -> Sequence[bytes]:
        with self._opened(key) as (file, size):
            for start, end in spans:
                if end > size:
                    raise truncated(str(self._root / key), (start, end), size)
            merged = merge(spans, 0)
            blocks = [self.pread(file, key, span) for span in merged]
            return [cut(merged, blocks, span) for span in spans]

    def open(self, key: str, _size: int | None = None) -> _OpenFile:
        with ExitStack() as stack:
            file, size = stack.enter_context(self._opened(key))
            return _OpenFile(self, key, file, size, stack.pop_all())

    def stat(self, key: str) -> FileInfo:
        self._counter.add(heads=1)
        return self._info(key, (self._root / key).stat())

    def put(self, key: str, data: memoryview, *, replace: bool) -> None:
        path = self._inside(key)
        self._counter.add(puts=1)
        if not replace and path.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        _make_folder(path.parent)
        staged = path.parent / f"{STAGED_PREFIX}{uuid4().hex}"
        try:
            _write_through(staged, data)
            _drop_checksum(path)
            if replace:
                staged.replace(path)
            else:
                _link(staged, path)
        finally:
            staged.unlink(missing_ok=True)
        _sync_folder(path.parent)
        self._counter.add(bytes_written=data.nbytes)

    def list(
        self,
        prefix: str,
        floor: str,
        *,
        recursive: bool,
        on_odd: Callable[[str], None] | None = None,
    ) -> Iterator[FileInfo]:
        # Folders sort by their name with the slash: that is the order of the whole keys.
        for name in sorted(self._scan(prefix)):
            key = prefix + name
            if name.endswith("/"):
                if recursive:
                    yield from self.list(key, floor, recursive=True, on_odd=on_odd)
            elif key >= floor:
                try:
                    # A Path would take twice as long.
                    info = self._info(key, os.stat(f"{self._root}/{key}"))  # noqa: PTH116
                except OSError as error:
                    # Deleted since, a pipe, or a link: to a folder, to nothing, or in circles.
                    if error.errno not in _LEADS_NOWHERE:
                        raise
                    if on_odd is not None and os.path.lexists(f"{self._root}/{key}"):
                        on_odd(key)
                    continue
                yield info

    def _scan(self, prefix: str) -> Sequence[str]:
        """Return the names in a folder; those of folders end in a slash, links are no folders."""
        self._counter.add(lists=1)
        try:
            with explained(str(self._root / prefix)), os.scandir(self._root / prefix) as scan:
                # Not the entries: a million of them would take 300 MB more.
                return [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in scan]
        except ObjectNotFoundError:
            return ()  # An absent folder is an empty one, as in an object store.

    def delete(self, keys: Sequence[str]) -> None:
        checked: set[str] = set()
        for key in keys:
            path, folder = self._root / key, key.rpartition("/")[0]
            if folder not in checked:  # looking for links takes far longer than deleting
                self._inside(key)
                checked.add(folder)
            self._counter.add(deletes=1)
            try:
                with explained(str(path)):
                    path.unlink()
            except ObjectNotFoundError:
                continue
            _drop_checksum(path)

    def delete_folder(self, folder: str) -> None:
        path = self._inside(folder)
        self._counter.add(deletes=1)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)

    def folders(self, prefix: str) -> Sequence[str]:
        return [prefix + name[:-1] for name in self._scan(prefix) if name.endswith("/")]

    def remove_empty_folders(self, is_kept: Callable[[str], bool]) -> Iterator[str]:
        for folder in self.folders(""):
            yield from self._remove_if_empty(folder, is_kept)

    def _remove_if_empty(self, folder: str, is_kept: Callable[[str], bool]) -> Iterator[str]:
        if is_kept(folder):
            return
        for below in self.folders(f"{folder}/"):
            yield from self._remove_if_empty(below, is_kept)
        try:
            (self._root / folder).rmdir()
        except OSError as error:
            if error.errno not in _NOT_REMOVED:
                raise
        else:
            yield folder

    def _inside(self, key: str) -> Path:
        """Return the path of a file to change; refuse it if links lead out of the root."""
        path = self._root / key
        # Not Path.resolve: it fails on links that go in circles.
        root, folder = map(os.path.realpath, (self._root, path.parent))
        if not Path(folder).is_relative_to(root):
            raise StorageError(
                f"{path} is behind a symbolic link that leads out of {self._root}: not changed",
                uri=str(path),
            )
        return path

    def _info(self, key: str, status: os.stat_result) -> FileInfo:
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a file", key)
        etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
        return FileInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, etag)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        """Open a file and yield its descriptor and size."""
        self._counter.add(gets=1)
        # Without O_NONBLOCK, opening a named pipe would wait for a writer forever.
        file = os.open(self._root / key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield file, self._info(key, os.fstat(file)).size
        finally:
            os.close(file)

    def pread(self, file: int, key: str, span: Span) -> bytes:
        start, end = span
        parts = []
        while start < end:  # One call returns 2 GiB at most.
            part = os.pread(file, end - start, start)
            if not part:
                raise truncated(str(self._root / key), span, start)
            parts.append(part)
            start += len(part)
        self._counter.add(bytes_read=end - span[0])
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True)
class _OpenFile:
    """An open file that is read range by range."""

    disk: Disk
    key: str
    file: int
    size: int
    stack: ExitStack

    def read_spans(self, spans: Sequence[Span]) -> Sequence[bytes]:
        return [self.disk.pread(self.file, self.key, span) for span in spans]

    def close(self) -> None:
        self.stack.close()


def _drop_checksum(path: Path) -> None:
    """Remove Hadoop's checksum file: its checksums are those of the replaced file."""
    try:
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # Then there is none.
            raise


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise StorageError(f"{folder} is a file, not a folder", uri=str(folder)) from error
    _sync_folder(folder.parent)


def _write_through(path: Path, data: memoryview) -> None:
    # Not tempfile, whose files only their owner can read.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(staged: Path, path: Path) -> None:
    try:
        os.link(staged, path)
    except FileExistsError:
        # NFS may link, lose the reply, retry and then report this. See open(2), O_EXCL.
        if staged.stat().st_nlink == 1:
            raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise StorageError(
            f"the file system of {path} has no hard links, without which delvec cannot put a file "
            "there only if it is absent",
            uri=str(path),
            hint="keep the table on a local disk or in an object store",
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the file system can."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(file)
