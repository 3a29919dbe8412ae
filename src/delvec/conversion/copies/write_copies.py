"""Copies of data files with the field ids that Iceberg needs: the same bytes, another footer.

Rows, row groups, pages, indexes and bloom filters stay at their offsets, so deletion vectors and
offsets hold for the copy as well. Nothing is decoded; `delvec.parquet.field_ids` explains what is
changed.
"""

from __future__ import annotations

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
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

    FieldIds = Mapping[tuple[str, ...], int]

__all__ = ["copy_with_ids", "files_to_copy", "write_copies"]

_FILES_PER_TASK: Final = 64
_PARALLEL_COPIES: Final = 4


def files_to_copy(
    storage: Storage, files: FileSet, ids: FieldIds | None = None
) -> NDArray[np.bool_]:
    """Tell which files Iceberg cannot read as they are, since they have some field ids but not all.

    The footer of each file is read: one GET up to 64 KiB, 16 in parallel. Footers with the same
    schema, as most are, are decoded once; memory grows with the number of different schemas.

    Args:
        storage: The source.
        files: Its files.
        ids: The ids of the Iceberg table, see `missing_ids`: with them the lists and maps of
            dropped columns do not count, and files with other ids are refused.

    Raises:
        FormatError: A file is not a Parquet file, or its ids are not those of the table.
        UnsupportedFeatureError: A file is encrypted.
    """
    known: dict[bytes, bool] = {}

    def lacking(start: int) -> list[bool]:
        paths = files.paths.slice(start, _FILES_PER_TASK).to_pylist()
        sizes = files.sizes[start : start + _FILES_PER_TASK].tolist()
        return [
            _is_lacking(storage, path, size, ids, known)
            for path, size in zip(paths, sizes, strict=True)
        ]

    parts = gather(lacking, range(0, len(files), _FILES_PER_TASK))
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
    """Copy files with all ids, 4 in parallel, through the driver; return the size of each copy.

    See `copy_with_ids`. The first error ends it; copies that are complete by then stay.
    """
    hadoop = _Hadoop.of(spark)
    sizes = gather(lambda pair: _copied(hadoop, *pair, ids), pairs, _PARALLEL_COPIES)
    return np.array(sizes, dtype=np.int64)


def copy_with_ids(spark: SparkSession, source: str, target: str, ids: FieldIds) -> int:
    """Copy a file, add the ids that it lacks, and return the size of the copy.

    The copy is written under a hidden name in the folder of the target and then renamed: under its
    own name it is complete or absent. On S3 the rename makes the store copy it once more. If the
    target already has that size and footer, it is kept, and only these are read.

    Args:
        spark: The session; its Hadoop file systems are used.
        source: The file, as Hadoop names it.
        target: The copy.
        ids: See `missing_ids`.

    Raises:
        FormatError: The source is not a Parquet file, or its ids are not those of the table.
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
    """The file systems of a session, and Java classes, whose lookup takes many calls."""

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
        """Return the file system and the path of a name."""
        path = self.path(name)
        return path.getFileSystem(self.conf), path

    def footer(self, name: str) -> tuple[int, bytes]:
        """Return the size and the footer of a file."""
        system, path = self.at(name)
        size = int(system.getFileStatus(path).getLen())
        with closing(system.open(path)) as stream:

            def read(start: int, length: int) -> bytes:
                stream.seek(start)
                return bytes(stream.readNBytes(length))

            return size, read_footer(read, size, name)

    def require_plain(self, footer: bytes, name: str) -> None:
        """Parse a footer with Java's library; refuse one that is signed or encrypted in part."""
        read = self.parquet.readFileMetaData(self.bytes(footer))
        if read.isSetEncryption_algorithm():
            raise encrypted(name)

    def has(self, name: str, data: int, ending: bytes) -> bool:
        """Tell whether a copy exists already.

        Raises:
            ObjectExistsError: Another file has its name. It is kept: files of a table never change.
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
        # Opened anew: after seeking backwards, streams of object stores make small requests.
        with closing(system.open(path)) as stream:
            self.streams.copyLarge(stream, out, 0, length)

    @contextmanager
    def published(self, name: str, data: int, ending: bytes) -> Iterator[Any]:
        """Yield a stream for the data of a new file; it gets its ending and name after the block.

        A process that dies leaves at most a file whose name begins with a dot, which no engine
        reads as data.
        """
        system, path = self.at(name)
        temporary = self.path(path.getParent(), f".{path.getName()}.{uuid4().hex}.tmp")
        try:
            with closing(system.create(temporary, False)) as out:
                yield out
                out.write(ending)
                written = int(out.getPos())
            _require_complete(name, written, data + len(ending))
            if not system.rename(temporary, path):
                self._require_twin(name, data, ending)
                system.delete(temporary, False)
        except BaseException:
            # The first error matters more than a file that stays.
            with suppress(Py4JError):
                system.delete(temporary, False)
            raise

    def _require_twin(self, name: str, data: int, ending: bytes) -> None:
        """Accept that a store refused a name if somebody else made the same copy meanwhile."""
        if not self.has(name, data, ending):
            raise StorageError(f"the store refused the name of a copy: {name}", uri=name)


def _require_complete(name: str, written: int, expected: int) -> None:
    if written != expected:
        raise StorageError(
            f"a copy is incomplete: {name} got {written} bytes, expected {expected}",
            uri=name,
            hint="did somebody change the source meanwhile? Try again",
        )
