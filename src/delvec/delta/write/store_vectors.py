"""Storing new vectors: packed into files of about 2 MiB, which are written in parallel."""

from __future__ import annotations

import secrets
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delvec.delta.schema.properties import (
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    property_number,
)
from delvec.storage.parallel import in_order
from delvec.vector import delta_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.change import Change
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles
    from delvec.vector.delta_file import VectorFile

__all__ = ["random_prefix", "store_vectors"]

_PUTS_AT_ONCE: Final = 8
_LONGEST_PREFIX: Final = 255  # as long as the name of a folder may be
_LETTERS: Final = string.ascii_letters + string.digits


def random_prefix(metadata: Metadata) -> str:
    """Return a random folder name if the table uses them to spread its files, else nothing."""
    if not metadata.is_on(RANDOMIZE_FILE_PREFIXES):
        return ""
    length = property_number(metadata.configuration, RANDOM_PREFIX_LENGTH, 2, _LONGEST_PREFIX)
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def store_vectors(
    storage: Storage, metadata: Metadata, change: Change, uncommitted: UncommittedFiles
) -> Change:
    """Store the vectors of a change that are not stored yet; return it with their descriptors."""
    updates = change.all_vectors
    missing = [index for index, each in enumerate(updates) if each.descriptor is None]
    if not missing:
        return change
    vectors = [vector for index in missing if (vector := updates[index].vector) is not None]
    files = delta_file.pack(vectors, prefix=random_prefix(metadata))
    stored, places, sizes = (
        [e.descriptor for e in updates],
        iter(missing),
        dict(change.vector_files),
    )

    def put(file: VectorFile) -> None:
        storage.write(file.path, file.data)  # the name is new

    def registered() -> Iterator[tuple[VectorFile, int]]:
        for file in files:
            uncommitted.add(file.path)
            sizes[file.path] = len(file.data)
            for descriptor in file.descriptors:
                stored[next(places)] = descriptor
            yield file, 1

    # The files are packed one by one: the budget is how many are in memory.
    for _ in in_order(put, registered(), threads=_PUTS_AT_ONCE, budget=_PUTS_AT_ONCE - 1):
        pass
    return replace(change.with_descriptors(stored), vector_files=sizes)
