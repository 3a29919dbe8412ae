"""Local disk, by plain system calls.

Not by obstore, whose version 0.12 cannot address files that end in `#1`, fails to list a folder
with a control character in a name, stages its writes as `<name>#1`, which Hadoop takes for a data
file if the writer is killed, and never syncs. Here a write is staged in a hidden file, synced, then
linked (put-if-absent) or renamed (overwrite) to its name, and the folder is synced, which costs
about 0.5 ms.

Symbolic links: the root may be one or be behind one. Reads follow links, as Spark's do, unless a
fence forbids where they lead. Writes and deletes behind a link that leads out of the root are
refused, and listings do not descend into linked folders, so nothing outside the root is ever
changed or listed. What is changed is named relative to an open folder, which was opened from the
root step by step: a folder that somebody swaps for a link meanwhile is not followed either.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from posixpath import split
from typing import TYPE_CHECKING
from uuid import uuid4

from delvec.errors import ObjectNotFoundError, StorageError
from delvec.storage.backend import Counter, FileInfo, Location, translate_errors, truncated
from delvec.storage.input_file import Source, cut, merge
from delvec.storage.listed_files import folder_key

if TYPE_CHECKING:
    from delvec.storage.fence import Fence

    Span = tuple[int, int]

STAGED_PREFIX = ".delvec-staged-"
"""The prefix of the files in which local writes are staged; a killed writer may leave one.

Hadoop, and so Spark and Delta, ignore names that begin with a dot.
"""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # or a link now
# A folder that is not empty, or gone, or that nobody may remove: it does no harm.
_NOT_REMOVED = (*_GONE, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES, errno.EPERM)
# Each is entered from the root: what is nested deeper, and by nobody honest, stays.
_DEEPEST = 100
# In Linux a folder can be passed through that may not be read.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_READABLE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LEADS_NOWHERE = (*_GONE, errno.ENAMETOOLONG)


class Disk:
    """Local disk, by system calls; the errors are the operating system's."""

    def __init__(self, location: Location, counter: Counter, fence: Fence | None = None) -> None:
        self._root = Path(location.path)
        self._counter = counter
        self._fence = fence

    def read(self, key: str) -> bytes:
        with self._opened(key) as (file, size):
            return self._pread(file, key, (0, size))

    def read_spans(self, key: str, spans: Sequence[Span]) -> Sequence[bytes]:
        with self._opened(key) as (file, size):
            for start, end in spans:
                if end > size:
                    raise truncated(str(self._root / key), (start, end), size)
            merged = merge(spans, 0)
            blocks = [self._pread(file, key, span) for span in merged]
            return [cut(merged, blocks, span) for span in spans]

    def open(self, key: str, _size: int | None = None) -> Source:
        with ExitStack() as stack:
            file, size = stack.enter_context(self._opened(key))
            close = stack.pop_all().close
        return Source(size, lambda spans: [self._pread(file, key, each) for each in spans], close)

    def stat(self, key: str) -> FileInfo:
        self._counter.add(heads=1)
        return self._info(key, (self._root / key).stat())

    def put(self, key: str, data: memoryview, *, replace: bool) -> None:
        self._counter.add(puts=1)
        folder, name = split(key)
        with self._entered(folder, make=True) as parent:
            if not replace and _is_there(name, parent):
                raise FileExistsError(errno.EEXIST, "exists", key)
            staged = f"{STAGED_PREFIX}{uuid4().hex}"
            try:
                _write_through(staged, parent, data)
                _drop_checksum(name, parent)
                if replace:
                    os.replace(staged, name, src_dir_fd=parent, dst_dir_fd=parent)
                else:
                    _link(staged, self._root / key, parent)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(staged, dir_fd=parent)
            _sync(".", parent)
        self._counter.add(bytes_written=data.nbytes)

    def list(
        self,
        prefix: str,
        floor: str,
        *,
        recursive: bool,
        on_odd: Callable[[str], None] | None = None,
    ) -> Iterator[FileInfo]:
        # Not recursive: folders may be nested deeper than calls of Python.
        stack = [(prefix, iter(self._scan(prefix, on_odd)))]
        while stack:
            folder, names = stack[-1]
            for name in names:
                key = folder + name
                if name.endswith("/"):
                    if recursive:
                        stack.append((key, iter(self._scan(key, on_odd))))
                        break
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
            else:
                stack.pop()

    def _scan(self, prefix: str, on_odd: Callable[[str], None] | None = None) -> Sequence[str]:
        """Return the names in a folder; those of folders end in a slash, links are no folders.

        They are sorted as whole keys are, folders by their name with the slash.
        """
        self._counter.add(lists=1)
        path = f"{self._root}/{prefix}"
        try:
            with translate_errors(path), os.scandir(path) as scan:
                # Not the entries: a million of them would take 300 MB more.
                names = [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in scan]
        except ObjectNotFoundError:
            return ()  # An absent folder is an empty one, as in an object store.
        except StorageError as error:
            # The system takes so long a name only step by step.
            if getattr(error.__cause__, "errno", None) != errno.ENAMETOOLONG:
                raise
            if on_odd is not None:
                on_odd(prefix.rstrip("/"))
            return ()
        return sorted(names)

    def delete(self, keys: Sequence[str]) -> None:
        # Opening a folder takes longer than deleting a file: once for files that follow each other.
        for folder, group in groupby(map(split, keys), itemgetter(0)):
            names = [name for _, name in group]
            self._counter.add(deletes=len(names))
            with (
                translate_errors(str(self._root / folder)),
                suppress(FileNotFoundError, NotADirectoryError),  # Then its files are not there.
                self._entered(folder) as parent,
            ):
                self._delete(folder, names, parent)

    def _delete(self, folder: str, names: Sequence[str], parent: int) -> None:
        for name in names:
            try:
                os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                continue
            except OSError:
                with translate_errors(str(self._root / folder / name)):
                    raise
            _drop_checksum(name, parent)

    def delete_folder(self, folder: str) -> None:
        self._counter.add(deletes=1)
        above, name = split(folder)
        with suppress(FileNotFoundError), self._entered(above) as parent:
            if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
                _delete_tree(name, parent)

    def make_folder(self, folder: str) -> None:
        with self._entered(folder, make=True):
            pass

    def folders(self, prefix: str) -> Sequence[str]:
        return [prefix + name[:-1] for name in self._scan(prefix) if name.endswith("/")]

    def remove_empty_folders(self, is_kept: Callable[[str], bool]) -> Sequence[str]:
        found = [""]
        for folder in found:  # It grows: folders come after those they are in.
            if folder.count("/") < _DEEPEST:
                below = self.folders(f"{folder}/" if folder else "")
                found += [each for each in below if not is_kept(each)]
        removed = []
        for above, group in groupby(map(split, found[:0:-1]), itemgetter(0)):
            with _unless_in_use(), _closing(self._walk(above)) as parent:
                for _, name in group:
                    with _unless_in_use():
                        os.rmdir(name, dir_fd=parent)
                        removed.append(f"{above}/{name}" if above else name)
        return removed

    @contextmanager
    def _entered(self, folder: str, *, make: bool = False) -> Iterator[int]:
        """Open a folder to change what is in it.

        A link that leads to a folder below the root is honest: that one is opened by its own name.
        """
        path = self._root / folder
        try:
            descriptor = self._walk(folder, make=make)
        except NotADirectoryError as error:
            if not make:
                raise
            raise _not_a_folder(path) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            real = folder_key(str(self._root), str(path))
            if real in (None, folder):
                raise StorageError(
                    f"{path} is behind a symbolic link that leads out of {self._root}: not changed",
                    uri=str(path),
                    hint="replace the link by the folder it leads to, or open the table there",
                ) from error
            descriptor = self._walk(real, make=make)
        with _closing(descriptor):
            yield descriptor

    def _walk(self, folder: str, *, make: bool = False) -> int:
        """Open a folder from the root step by step; no link is followed, whenever it was put."""
        if make and not self._root.is_dir():
            _make_folder(self._root)
        here = os.open(self._root, _FOLDER)
        for name in folder.split("/") if folder else ():
            try:
                below = _step(name, here, make=make)
            finally:
                os.close(here)
            here = below
        return here

    def _info(self, key: str, status: os.stat_result) -> FileInfo:
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a file", key)
        etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
        return FileInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, etag)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        self._counter.add(gets=1)
        # Without O_NONBLOCK, opening a named pipe would wait for a writer forever.
        try:
            file = os.open(self._root / key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:  # A socket.
                raise
            raise FileNotFoundError(errno.ENOENT, "not a file", key) from error
        try:
            if self._fence is not None:
                self._fence.require(_location_of(file, self._root / key))
            yield file, self._info(key, os.fstat(file)).size
        finally:
            os.close(file)

    def _pread(self, file: int, key: str, span: Span) -> bytes:
        start, end = span
        parts = []
        while start < end:  # One call returns 2 GiB at most.
            try:
                part = os.pread(file, end - start, start)
            except MemoryError as error:  # A sparse file has any size and takes no disk.
                raise StorageError(
                    f"{self._root / key} has more bytes than fit into memory",
                    uri=str(self._root / key),
                ) from error
            if not part:
                raise truncated(str(self._root / key), span, start)
            parts.append(part)
            start += len(part)
        self._counter.add(bytes_read=end - span[0])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _step(name: str, parent: int, *, make: bool = False) -> int:
    """Open a folder in an open one; that a link has its name is ELOOP, as in any other system."""
    try:
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):  # Somebody else was faster.
                os.mkdir(name, dir_fd=parent)
            _sync(".", parent)
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
            raise OSError(errno.ELOOP, "a symbolic link", name) from None
        raise


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _unless_in_use() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_REMOVED:
            raise


def _delete_tree(name: str, parent: int) -> None:
    """Delete a folder and all below it; no link is followed."""
    with _closing(_step(name, parent)) as folder:
        with _closing(os.open(".", _READABLE, dir_fd=folder)) as listed, os.scandir(listed) as scan:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
        for below, is_folder in found:
            if is_folder:
                _delete_tree(below, folder)
            else:
                os.unlink(below, dir_fd=folder)
    os.rmdir(name, dir_fd=parent)


def _is_there(name: str, parent: int) -> bool:
    """Return whether a name is taken; also by a link that leads nowhere."""
    try:
        os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    return True


def _location_of(file: int, path: Path) -> Location:
    """Return where an open file is, which nobody can swap any more; its path if that is unknown."""
    known = f"/proc/self/fd/{file}"
    return Location("file", "", os.readlink(known) if os.path.islink(known) else str(path))  # noqa: PTH114, PTH115


def _drop_checksum(name: str, parent: int) -> None:
    """Remove Hadoop's checksum file: its checksums are those of the replaced file."""
    try:
        os.unlink(f".{name}.crc", dir_fd=parent)
    except FileNotFoundError:
        pass
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
        raise _not_a_folder(folder) from error
    _sync(folder.parent)


def _not_a_folder(path: Path) -> StorageError:
    return StorageError(f"{path} is a file, not a folder", uri=str(path))


def _write_through(name: str, parent: int, data: memoryview) -> None:
    # Not tempfile, whose files only their owner can read.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=parent), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(staged: str, path: Path, parent: int) -> None:
    try:
        os.link(staged, path.name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        # NFS may link, lose the reply, retry and then report this. See open(2), O_EXCL.
        if os.lstat(staged, dir_fd=parent).st_nlink == 1:
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


def _sync(folder: Path | str, parent: int | None = None) -> None:
    """Make the names in a folder durable, where the file system can."""
    with _closing(os.open(folder, _READABLE, dir_fd=parent)) as file:
        try:
            os.fsync(file)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
