"""Loading the deletion vectors of data files: few requests, side by side, everything checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from delvec.delta.log.file_set import DataFile, FileSet
from delvec.errors import DelvecError, FormatError, ObjectNotFoundError, TruncatedError
from delvec.storage import Storage
from delvec.storage.listed_files import are_absolute, open_listed_file
from delvec.storage.parallel import gather
from delvec.vector import Bitmap, Descriptor


def load_vectors(storage: Storage, files: Sequence[DataFile]) -> list[Bitmap | None]:
    """Load the vector of each file, None for a file without one.

    The vectors in one `.bin` file that lie close together come with one GET; 16 `.bin` files are
    read side by side. Memory grows with the vectors: a few bytes for each deleted row at most.
    """
    found: list[Bitmap | None] = [None] * len(files)
    groups: dict[str, list[tuple[int, Descriptor]]] = {}
    for index, file in enumerate(files):
        if file.descriptor is not None:
            try:
                home = file.descriptor.file_path or ""  # the log itself holds the vector
            except FormatError as error:
                raise locate_error(error, file.path, storage.root) from None
            groups.setdefault(home, []).append((index, file.descriptor))

    def load(group: tuple[str, list[tuple[int, Descriptor]]]) -> None:
        home, members = group
        chosen = [(files[index], descriptor) for index, descriptor in members]
        for (index, _), vector in zip(members, _load_group(storage, home, chosen), strict=True):
            found[index] = vector

    gather(load, groups.items())
    return found


def admit_files(storage: Storage, files: FileSet) -> None:
    """Refuse data files and vectors that a table must not lead to; see `Storage.admit`.

    For names that are given to Spark, tasks or another table; Python itself opens no other anyway.
    """
    paths = files.paths
    if storage.fence is None or "://" in storage.root:
        # Only links lead out of a folder, and object stores have none.
        paths = paths.filter(are_absolute(paths))
    for path in paths.to_pylist():
        storage.admit(path)
    for home in files.absolute_vectors:
        try:
            storage.admit(home)
        except FormatError as error:  # noqa: PERF203 - of few files, each once
            rows = (row for row, each in enumerate(files.vectors.to_pylist()) if _is_at(each, home))
            raise locate_error(error, files.paths[next(rows)].as_py(), files.root) from None


def load_vector(storage: Storage, path: str, descriptor: Descriptor | None) -> Bitmap:
    """Load the vector of one data file; an empty one without a descriptor."""
    [vector] = load_vectors(storage, [DataFile(path, 0, {}, descriptor, None, 0)])
    return Bitmap() if vector is None else vector


def entry_vector(storage: Storage, path: str, entry: Mapping[str, Any]) -> Bitmap:
    """Load the vector that an action of the log names for a data file; see `load_vector`."""
    value = entry.get("deletionVector")
    return load_vector(storage, path, None if value is None else Descriptor.from_json(value))


class LazyVectors(Mapping[int, Bitmap]):
    """Vectors of a file set by row: some known, the others loaded together at the first use."""

    def __init__(
        self,
        storage: Storage,
        files: FileSet,
        numbers: Sequence[int],
        known: Mapping[int, Bitmap] | None = None,
    ) -> None:
        self._storage, self._files, self._numbers = storage, files, numbers
        self._known = dict(known or {})
        self._all = dict.fromkeys([*numbers, *self._known])

    @cached_property
    def _vectors(self) -> dict[int, Bitmap]:
        loaded = load_vectors(self._storage, self._files.data_files(self._numbers))
        pairs = zip(self._numbers, loaded, strict=True)
        return {number: vector or Bitmap() for number, vector in pairs} | self._known

    def __getitem__(self, number: int) -> Bitmap:
        return self._vectors[number]

    def __contains__(self, number: object) -> bool:
        return number in self._all

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def locate_error(
    error: DelvecError, path: str, table: str, *, instead: str = "read an older version"
) -> DelvecError:
    """Add the table and the data file of a deletion vector to the error about it, and a hint."""
    error.message = f"{error.message} (the deletion vector of {path} in {table})"
    error.hint = error.hint or (
        "without the vector nobody can tell which rows are deleted: restore it from a copy, or"
        f" {instead}"
    )
    return error


def _is_at(vector: Mapping[str, Any] | None, home: str) -> bool:
    if vector is None or vector["storageType"] != "p":
        return False
    return Descriptor("p", vector["pathOrInlineDv"], None, 0, 0).file_path == home


def _load_group(
    storage: Storage, home: str, files: Sequence[tuple[DataFile, Descriptor]]
) -> Iterable[Bitmap]:
    frames: Sequence[bytes | None] = [None] * len(files)
    if home:
        try:
            place, key = open_listed_file(storage, home)
        except FormatError as error:
            raise locate_error(error, files[0][0].path, storage.root) from None
        ranges = [descriptor.file_range for _, descriptor in files]
        try:
            frames = place.read_ranges(key, ranges)
        except (ObjectNotFoundError, TruncatedError) as error:
            size = place.size(key) if place.exists(key) else 0
            culprit = next((at for at, each in enumerate(ranges) if sum(each) > size), 0)
            raise locate_error(error, files[culprit][0].path, storage.root) from None
    for (file, descriptor), frame in zip(files, frames, strict=True):
        try:
            vector = descriptor.decode(frame)
            _require_fit(vector, descriptor, file)
        except FormatError as error:
            raise locate_error(error, file.path, storage.root) from None
        yield vector


def _require_fit(vector: Bitmap, descriptor: Descriptor, file: DataFile) -> None:
    if file.row_count is not None and vector.max is not None and vector.max >= file.row_count:
        raise FormatError(
            "a deletion vector marks a row that its file does not have",
            path=descriptor.file_path,
            expected=f"rows below {file.row_count}",
            found=f"row {vector.max}",
        )
