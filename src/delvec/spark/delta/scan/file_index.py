"""Files of a Delta table for Spark's own Parquet reader, chosen when a query is planned.

`FileLister.java` is the FileIndex that Spark asks, and asks Python. It gets the filters of the
query, so that a plain `.where(...)` prunes files by the log. Partition filters are enforced here
exactly; data filters only rule files out by statistics, and Spark applies them to the rows again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.vectors import admit_files
from delvec.delta.schema.traversal import find
from delvec.delta.skipping.predicate import And, Predicate
from delvec.errors import DelvecError, FormatError
from delvec.spark import jvm
from delvec.spark.delta.scan.conditions import PartitionFilters, translate
from delvec.spark.delta.scan.vectors import ScanPart, load_bits
from delvec.storage import Storage
from delvec.storage.listed_files import full_name, open_listed_file, spark_path

# The hidden constant columns of a file: its vector as bits, its number, its full name.
Hidden = Literal["vector", "number", "file"]
_LARGE: Final = 16 << 30  # the bytes from which on the size of a file is looked up
_NUMBERS: Final = count(1)
_BY_NAME: Final[WeakValueDictionary[str, FileIndex]] = WeakValueDictionary()


class FileIndex:
    """A part of a version's files, as Spark asks for them: the Python half of a FileLister.

    Memory on the driver grows with the files, and during a query with the vectors of those that
    are read: one bit for each row up to the last deleted one.
    """

    def __init__(  # noqa: PLR0913
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        part: ScanPart,
        hidden: tuple[Hidden, ...],
        time_zone: str,
        hidden_name: Callable[[Hidden], str],
        why: str,
        *,
        follows: bool = False,
        is_whole: bool = False,
    ) -> None:
        admit_files(snapshot.storage, part.files)
        self._spark, self.snapshot = spark, snapshot
        self._part, self._files = part, part.files
        self.hidden, self._time_zone, self._hidden_name = hidden, time_zone, hidden_name
        self.follows, self.why = follows, why
        self.last = Listing()
        self.name = f"delvec scan {next(_NUMBERS)} of {snapshot.table} version {snapshot.version}"
        _BY_NAME[self.name] = self
        # What says which rows there are: those of a version, or of this object alone.
        version = snapshot.table, snapshot.metadata.id, snapshot.version
        kind = bool(part.files.has_vector.any()), hidden, time_zone, follows
        self._content = repr((*version, *kind)) if is_whole else self.name

    def java(self, schema: Any) -> Any:  # noqa: ANN401
        """Make the JVM's half; `schema` is that of the constant columns, in Java."""
        sizes = self._files.sizes
        for row in np.flatnonzero(sizes > _LARGE).tolist():
            _require_size(self.snapshot.storage, self._files.paths[row].as_py(), int(sizes[row]))
        spark = self._spark
        path = jvm.java_class(spark, "org.apache.hadoop.fs.Path")
        root = path(spark_path(self.snapshot.table, ""))
        arguments = root, schema, int(sizes.sum()), self.name, self._content
        jvm.allow_calls_back(spark)
        self._lister = jvm.load_java(spark, "delvec.spark", "FileLister", *arguments)
        self._lister.ask(self)
        names = self._hidden_name("file"), self._hidden_name("number")
        self._partitions = PartitionFilters(
            spark, self.snapshot, self._part, self._lister, self._time_zone, names
        )
        return self._lister

    class Java:
        """The Java interface that this implements, as Py4J wants it declared."""

        implements: Final = ["java.util.function.BiFunction"]

    def apply(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: ANN401
        """Answer the JVM; by an error's message, since Py4J would bury it in a traceback."""
        try:
            return self.list_files(partition_filters, data_filters)
        except DelvecError as error:
            return str(error)

    def list_files(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: ANN401
        """Return the files that a query has to read, as Spark's own objects."""
        partition, data = list(jvm.items(partition_filters)), list(jvm.items(data_filters))
        chosen, listing = self._pruned(partition, data)
        vectors: list[bytes] = []
        if "vector" in self.hidden:
            files, numbers = self._files.select(chosen), self._part.numbers[chosen]
            part = ScanPart(files, numbers, self._part.vectors)
            vectors = load_bits(self.snapshot.storage, part)
        size = sum(map(len, vectors))
        self.last = replace(listing, vectors=len(vectors), vector_bytes=size)
        groups = self._grouped(chosen, vectors)
        return self._lister.directories(pickle.dumps(groups, protocol=4), self._partitions.rows)

    def _pruned(
        self, partition: Sequence[Any], data: Sequence[Any]
    ) -> tuple[NDArray[np.int64], Listing]:
        files, total = self._files, len(self._files)
        kept = self._partitions.matching(partition)
        in_partitions = int(kept.sum())
        predicate = And(tuple(self.understood(each) for each in data))
        if data and in_partitions:
            within = files.select(kept)
            matching = within.may_match(predicate, self._time_zone)
            kept[np.flatnonzero(kept)[~matching]] = False
        chosen = np.flatnonzero(kept)
        return chosen, Listing(
            total=total,
            bytes_total=int(files.sizes.sum()),
            by_partition=total - in_partitions,
            by_statistics=in_partitions - len(chosen),
            read=len(chosen),
            bytes_read=int(files.sizes[chosen].sum()),
        )

    def understood(self, expression: Any) -> Predicate:  # noqa: ANN401
        """Return what is understood of a condition of Spark on columns of this scan."""

        def logical(physical: tuple[str, ...]) -> tuple[str, ...] | None:
            found = find(self.snapshot.metadata.schema, physical, physical=True)
            return None if found is None else tuple(each.name for each in found)

        return translate(self._spark, expression, logical)

    def _grouped(self, chosen: NDArray[np.int64], vectors: Sequence[bytes]) -> list[Any]:
        """Return (partition values, hidden values, files) for files that share their constants."""
        files, root = self._files.select(chosen), self.snapshot.table
        paths = files.paths.to_pylist()
        if len(chosen) and files.sizes.min() <= 0:
            # Spark reads as much of a file as the log says that there is.
            raise FormatError(
                f"the log has no size for {paths[int(files.sizes.argmin())]}",
                path=root,
                expected="its bytes",
                found=int(files.sizes.min()),
                hint="to_arrow() reads it",
            )
        if self.snapshot.storage.fence is not None:
            admit_files(self.snapshot.storage, files)  # again: where links lead may have changed
        sizes, times = files.sizes.tolist(), files.modification_times.tolist()
        entries = list(zip([spark_path(root, path) for path in paths], sizes, times, strict=True))
        groups = self._partitions.groups[chosen].tolist()
        if not self.hidden:
            shared: dict[int, list[Any]] = {}
            for group, entry in zip(groups, entries, strict=True):
                shared.setdefault(group, []).append(entry)
            return [(group, (), members) for group, members in shared.items()]
        constants = {
            "vector": vectors,
            "number": self._part.numbers[chosen].tolist(),
            "file": [full_name(root, path) for path in paths],
        }
        hidden = zip(*(constants[kind] for kind in self.hidden), strict=True)
        return [
            (group, values, [entry])
            for group, values, entry in zip(groups, hidden, entries, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Listing:
    """How files were pruned when a query was planned.

    Attributes:
        total: Files of the version, or of this part of it.
        bytes_total: Their size.
        by_partition: Files pruned by their partition values.
        by_statistics: Files pruned by their statistics.
        read: Files that Spark has to read.
        bytes_read: Their size.
        vectors: How many of them have a vector, which was loaded.
        vector_bytes: The bytes of these vectors on their way to the tasks.
    """

    total: int = 0
    bytes_total: int = 0
    by_partition: int = 0
    by_statistics: int = 0
    read: int = 0
    bytes_read: int = 0
    vectors: int = 0
    vector_bytes: int = 0


def find_index(name: str) -> FileIndex | None:
    """Return the index that a plan shows under a name; None if there is none of this process."""
    return _BY_NAME.get(name)


def _require_size(storage: Storage, path: str, size: int) -> None:
    """Refuse a file that has other bytes than the log says: Spark cuts it into splits by them."""
    place, key = open_listed_file(storage, path)
    found = place.size(key)
    if found != size:
        raise FormatError(
            "the file does not have as many bytes as the log says",
            path=place.uri_of(key),
            expected=size,
            found=found,
            hint="`delvec check` names all such files; to_arrow() reads them",
        )
