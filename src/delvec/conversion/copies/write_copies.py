"""Copies of data files that have the field ids which Iceberg needs: the same bytes, another footer.

Rows, row groups, pages, indexes and bloom filters stay where they are, so that deletion vectors
and offsets hold for the copy as well. Nothing is decoded; `delvec.parquet.field_ids` says what is
changed, and why.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
from py4j.protocol import Py4JError

from delvec.errors import ObjectExistsError, StorageError
from delvec.parquet.field_ids import add_ids, encrypted, missing_ids, read_footer, read_schema
from delvec.spark import jvm
from delvec.spark.failures import explained
from delvec.storage.listed_files import open_listed_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

    FieldIds = Mapping[tuple[str, ...], int]

__all__ = ["copy_with_ids", "files_to_copy", "write_copies"]

_REQUESTS_AT_ONCE: Final = 16
_FILES_AT_ONCE: Final = 64
_COPIES_AT_ONCE: Final = 4


def files_to_copy(
    storage: Storage, files: FileSet, ids: FieldIds | None = None
) -> NDArray[np.bool_]:
    """Tell which files Iceberg could not read as they are, since they have some ids and not all.

    The footer of each file is read: one GET up to 64 KiB, 16 side by side. Footers with the same
    schema, as most are, are decoded once; memory grows with the number of different ones.

    Args:
        storage: The source.
        files: Its files.
        ids: The ids that the Iceberg table will have, see `missing_ids`: with them the lists and
            maps of dropped columns do not count, and files whose own ids are others are refused.

    Raises:
        FormatError: A file is no Parquet file, or its ids are not those of the table.
        UnsupportedFeatureError: A file is encrypted.
    """
    known: dict[bytes, bool] = {}

    def judged(start: int) -> list[bool]:
        paths = files.paths.slice(start, _FILES_AT_ONCE).to_pylist()
        sizes = files.sizes[start : start + _FILES_AT_ONCE].tolist()
        return [
            _is_lacking(storage, path, size, ids, known)
            for path, size in zip(paths, sizes, strict=True)
        ]

    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "delvec-footers") as pool:
        parts = list(pool.map(judged, range(0, len(files), _FILES_AT_ONCE)))
    return np.array([each for part in parts for each in part], dtype=np.bool_)


def _is_lacking(
    storage: Storage, path: str, size: int, ids: FieldIds | None, known: dict[bytes, bool]
) -> bool:
    place, key = open_listed_file(storage, path)
    uri = place.uri_of(key)

    def read(start: int, length: int) -> bytes:
        return place.read_range(key, start, length)

    footer = read_footer(read, size or place.size(key), uri)
    for beginning, answer in list(known.items()):
        if footer.startswith(beginning):
            return answer
    schema = read_schema(footer, uri)
    lacking = schema.lacks_child_ids if ids is None else bool(missing_ids(schema, ids, uri))
    known[footer[: schema.end]] = lacking
    return lacking


def write_copies(
    spark: SparkSession, pairs: Sequence[tuple[str, str]], ids: FieldIds
) -> NDArray[np.int64]:
    """Copy files with all their ids, 4 at a time, through the driver; give the size of each copy.

    See `copy_with_ids`. The first failure ends it; copies that are done by then stay.
    """
    hadoop = _Hadoop.of(spark)
    with ThreadPoolExecutor(_COPIES_AT_ONCE, "delvec-copies") as pool:
        sizes = pool.map(lambda pair: _copied(hadoop, pair[0], pair[1], ids), pairs)
        return np.fromiter(sizes, dtype=np.int64, count=len(pairs))


def copy_with_ids(spark: SparkSession, source: str, target: str, ids: FieldIds) -> int:
    """Copy a file, put the ids into it that it lacks, and give the size of the copy.

    The copy is written under a hidden name in the folder of the target and then renamed: under its
    own name it is whole or not there. On S3 this makes the store copy it once more, by itself. If
    the target has that very size and footer already, it is kept, and no more is read than these.

    Args:
        spark: The session; its Hadoop file systems are used.
        source: The file, as Hadoop names it.
        target: The copy.
        ids: See `missing_ids`.

    Raises:
        FormatError: The source is no Parquet file, or its ids are not those of the table.
        UnsupportedFeatureError: It is encrypted.
        ObjectExistsError: Another file has the name of the copy.
        StorageError: The source is gone, or the target cannot be written.
    """
    return _copied(_Hadoop.of(spark), source, target, ids)


def _copied(hadoop: _Hadoop, source: str, target: str, ids: FieldIds) -> int:
    with explained(source):
        size, footer = hadoop.footer(source)
        schema = read_schema(footer, source)
        new = add_ids(footer, schema, missing_ids(schema, ids, source))
        hadoop.require_plain(new, source)
        data = size - len(footer) - 8
        ending = new + len(new).to_bytes(4, "little") + b"PAR1"
        if not hadoop.has(target, data, ending):
            with hadoop.published(target, data, ending) as out:
                hadoop.copy(source, data, out)
        return data + len(ending)


class _Hadoop(NamedTuple):
    """The file systems of a session, and classes of Java: to look one up takes many calls."""

    conf: Any
    path: Any
    bytes: Any
    parquet: Any
    streams: Any

    @classmethod
    def of(cls, spark: SparkSession) -> _Hadoop:
        view, session = jvm.view_of(spark), spark._jsparkSession  # noqa: SLF001
        return cls(
            session.sessionState().newHadoopConf(),
            view.org.apache.hadoop.fs.Path,
            view.java.io.ByteArrayInputStream,
            view.org.apache.parquet.format.Util,
            view.org.apache.commons.io.IOUtils,
        )

    def at(self, name: str) -> tuple[Any, Any]:
        """Give the file system and the path of a name."""
        path = self.path(name)
        return path.getFileSystem(self.conf), path

    def footer(self, name: str) -> tuple[int, bytes]:
        """Give the size and the footer of a file."""
        system, path = self.at(name)
        size = int(system.getFileStatus(path).getLen())
        with closing(system.open(path)) as stream:

            def read(start: int, length: int) -> bytes:
                stream.seek(start)
                return bytes(stream.readNBytes(length))

            return size, read_footer(read, size, name)

    def require_plain(self, footer: bytes, name: str) -> None:
        """Have Java's library read a footer; refuse one that is signed or has secret columns."""
        read = self.parquet.readFileMetaData(self.bytes(footer))
        if read.isSetEncryption_algorithm():
            raise encrypted(name)

    def has(self, name: str, data: int, ending: bytes) -> bool:
        """Tell whether a copy is there already.

        Raises:
            ObjectExistsError: It is another file. Files of a table never change: it stays.
        """
        system, path = self.at(name)
        if not system.exists(path):
            return False
        size = int(system.getFileStatus(path).getLen())
        if size == data + len(ending):
            with closing(system.open(path)) as stream:
                stream.seek(data)
                if bytes(stream.readNBytes(len(ending))) == ending:
                    return True
        raise ObjectExistsError(
            f"another file has the name of a copy: {name} ({size} bytes)",
            uri=name,
            hint="choose another name; this one may be part of a table",
        )

    def copy(self, name: str, length: int, out: Any) -> None:  # noqa: ANN401
        """Copy the first bytes of a file."""
        system, path = self.at(name)
        # Opened anew: a stream that was read backwards makes small requests in object stores.
        with closing(system.open(path)) as stream:
            self.streams.copyLarge(stream, out, 0, length)

    @contextmanager
    def published(self, name: str, data: int, ending: bytes) -> Iterator[Any]:
        """Give a stream for the data of a new file, which gets its name and ending after the block.

        A process that dies leaves at most a file whose name begins with a dot, which no engine
        takes for data.
        """
        system, path = self.at(name)
        aside = self.path(path.getParent(), f".{path.getName()}.{uuid4().hex}.tmp")
        try:
            with closing(system.create(aside, False)) as out:
                yield out
                out.write(ending)
                written = int(out.getPos())
            _require_whole(name, written, data + len(ending))
            if not system.rename(aside, path):
                self._require_twin(name, data, ending)
                system.delete(aside, False)
        except BaseException:
            # What went wrong counts, and not that its remains stay.
            with suppress(Py4JError):
                system.delete(aside, False)
            raise

    def _require_twin(self, name: str, data: int, ending: bytes) -> None:
        """Hold a name that a store refused against a copy that somebody else made meanwhile."""
        if not self.has(name, data, ending):
            raise StorageError(f"the store refused the name of a copy: {name}", uri=name)


def _require_whole(name: str, written: int, expected: int) -> None:
    if written != expected:
        raise StorageError(
            f"a copy is not whole: {name} got {written} bytes, expected {expected}",
            uri=name,
            hint="did somebody change the source meanwhile? Try again",
        )
