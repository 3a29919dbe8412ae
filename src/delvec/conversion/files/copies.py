"""Which data files of the source the target shares, and copies of those that Iceberg cannot read.

With column mapping, Delta's writers assign field ids to the columns of a file but none to the
elements of arrays and maps. Iceberg then fails for lack of an id, whatever the table's metadata
says. A copy has the same bytes and a footer with all ids: rows, row groups, pages, indexes and
bloom filters stay at their offsets, so deletion vectors hold for the copy as well. Nothing is
decoded; `delvec.parquet.field_ids` explains what is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError

from delvec.conversion.schema.iceberg_schema import TargetSchema, ids_by_path
from delvec.errors import ObjectExistsError, StorageError, UnsupportedFeatureError
from delvec.parquet.field_ids import add_ids, encrypted, missing_ids, read_footer, read_schema
from delvec.report.hints import argument, format_hint
from delvec.spark import jvm
from delvec.spark.failures import translate_errors
from delvec.storage.listed_files import open_listed_file, spark_path
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

    FieldIds = Mapping[tuple[str, ...], int]

_FILES_PER_TASK: Final = 64
_PARALLEL_COPIES: Final = 4
_FOLDER: Final = "data/copies"
_DIGITS: Final = 40
_SAMPLE: Final = 32
_PLANNED: Final = "table:"  # prefix of paths below the target, wherever that is


def place(
    files: FileSet,
    shared: pa.Array,
    target_paths: pa.Array,
    location: str | None,
    schema: TargetSchema,
    storage: Storage,
    *,
    may_copy: bool,
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Decide which files are shared and which are copied; return all paths, and which are copies.

    The paths of the target decide for most files; a copy that it does not have is not used again.
    The footers of new files are read where a table has column mapping and arrays or maps. In other
    tables files have no field ids, or should not: files that came from an Iceberg table may have
    ids of their own. There the footers of a sample of at most 32 files per snapshot are read, and
    those of all files if one of them has such ids.
    """
    copies = copy_paths(shared)
    is_shared = pc.is_in(shared, value_set=target_paths).to_numpy(zero_copy_only=False)
    at = pc.index_in(copies, value_set=planned_paths(target_paths, location))
    copied = at.is_valid().to_numpy(zero_copy_only=False) & ~is_shared
    new = np.flatnonzero(~is_shared & ~copied)
    if not schema.nested_without_ids and not _sample_has_foreign_ids(files, new, schema, storage):
        new = new[:0]
    if len(new):
        lacking = files_to_copy(storage, files.select(new), field_ids(schema))
        if lacking.any() and not may_copy:
            _refuse(files, int(new[lacking.argmax()]))
        copied[new] = lacking
    return pc.if_else(pa.array(copied), pc.coalesce(target_paths.take(at), copies), shared), copied


def files_to_copy(
    storage: Storage, files: FileSet, ids: FieldIds | None = None
) -> NDArray[np.bool_]:
    """Tell which files Iceberg cannot read as they are, since they have some field ids but not all.

    The footer of each file is read: one GET up to 64 KiB, 16 in parallel. Footers with the same
    schema, as most are, are decoded once; memory grows with the number of different schemas.
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


def write_copies(
    spark: SparkSession, pairs: Sequence[tuple[str, str]], ids: FieldIds
) -> NDArray[np.int64]:
    """Copy files, add the ids that they lack, 4 in parallel, and return the size of each copy.

    A copy is written under a hidden name in the folder of the target and then renamed: under its
    own name it is complete or absent. On S3 the rename makes the store copy it once more. If the
    target already has that size and footer, it is kept, and only these are read. The first error
    ends all; copies that are complete by then stay.
    """
    hadoop = _Hadoop.of(spark)
    sizes = gather(lambda pair: _copied(hadoop, *pair, ids), pairs, _PARALLEL_COPIES)
    return np.array(sizes, dtype=np.int64)


def copy_paths(shared: pa.Array) -> pa.Array:
    """Return the planned paths of the copies of files; the same file always has the same one.

    In the target a copy has the id of the run that wrote it in its name, see `resolve_paths`.
    """
    names = [sha256(path.encode()).hexdigest()[:_DIGITS] for path in shared.to_pylist()]
    return pa.array([f"{_PLANNED}{_FOLDER}/{name}.parquet" for name in names], pa.string())


def planned_paths(paths: pa.Array, location: str | None) -> pa.Array:
    """Return paths by which files are compared: copies in the target have their planned path."""
    if location is None or not len(paths):
        return paths
    pattern, planned = copy_pattern(location)
    return pc.replace_substring_regex(paths, pattern, planned % r"\1")


def resolve_paths(paths: pa.Array, location: str, run: str, *, prefix: str = "") -> pa.Array:
    """Return paths with the names of copies that a conversion is going to write.

    A copy is never written under a name that was used before: `clean_target` may be about to delete
    an old one that no snapshot refers to.
    """
    if not len(paths) or not pc.any(pc.starts_with(paths, prefix + _PLANNED)).as_py():
        return paths
    folder = _folder(location).replace("\\", "\\\\")
    pattern = rf"^{prefix}{_PLANNED}(.*)\.parquet$"
    return pc.replace_substring_regex(paths, pattern, rf"{prefix}{folder}\1-{run}.parquet")


def copy_pattern(location: str) -> tuple[str, str]:
    """Return a regular expression for the copies of a target, and what makes it a planned path.

    The expression is one for Java and for Arrow. Early copies have no id of a run in their names.
    """
    folder = re.escape(f"{_folder(location)}{_FOLDER}/")
    pattern = rf"^{folder}([0-9a-f]{{{_DIGITS}}})(?:-[0-9a-f-]{{36}})?\.parquet$"
    return pattern, f"{_PLANNED}{_FOLDER}/%s.parquet"


def field_ids(schema: TargetSchema) -> dict[tuple[str, ...], int]:
    return dict(ids_by_path(schema.name_mapping()))


def _sample_has_foreign_ids(
    files: FileSet, new: NDArray[np.int64], schema: TargetSchema, storage: Storage
) -> bool:
    """Tell whether a file of a sample has ids of its own in a table without column mapping."""
    if not len(new):
        return False
    sample = np.unique(np.linspace(0, len(new) - 1, _SAMPLE).astype(np.int64))
    lacking = files_to_copy(storage, files.select(new[sample]), field_ids(schema))
    # With column mapping, arrays and maps here have structs as elements and values only: Iceberg
    # finds these by the ids of their fields.
    return files.metadata.mapping_mode == "none" and bool(lacking.any())


def _refuse(files: FileSet, row: int) -> None:
    raise UnsupportedFeatureError(
        f"Iceberg cannot read data files of {files.root} that have field ids for their columns and"
        f" none inside arrays and maps, the first is {files.paths[row].as_py()}",
        feature="column mapping with arrays or maps",
        needed_by=files.root,
        hint=format_hint(
            "pass {}: such files are copied, byte for byte, with the ids that they lack; or rewrite"
            " them with delta.enableIcebergCompatV2",
            argument(copy_files=True),
        ),
    )


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


def _copied(hadoop: _Hadoop, source: str, target: str, ids: FieldIds) -> int:
    with translate_errors(source):
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
        path = self.path(name)
        return path.getFileSystem(self.conf), path

    def footer(self, name: str) -> tuple[int, bytes]:
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
        # Opened again: after seeking backwards, streams of object stores make small requests.
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


def _folder(location: str) -> str:
    return spark_path(location, "").rstrip("/") + "/"
