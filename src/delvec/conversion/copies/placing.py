"""Data files that cannot be shared: the target has copies of them.

With column mapping, writers of Delta give ids to the columns of a file but none to what is inside
arrays and maps. Iceberg then finds no id where it looks for one and fails, whatever the table says.
A copy has the same bytes and a footer with all ids; see `delvec.conversion.copies.write_copies`.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.copies.write_copies import files_to_copy
from delvec.conversion.schema.name_mapping import ids_by_path
from delvec.errors import UnsupportedFeatureError
from delvec.storage.listed_files import spark_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.conversion.planning.target_files import Holdings
    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

__all__ = ["PLANNED", "copy_names", "field_ids", "place", "resolved", "resolved_holdings"]

_FOLDER: Final = "data/copies"
_DIGITS: Final = 40
_SAMPLE: Final = 32
PLANNED: Final = "planned:"
"""Begins the key of a vector that an earlier step of the same plan will write."""

_UNKNOWN: Final = "table:"  # begins names below a table whose place only its catalog knows


def copy_names(shared: pa.Array, location: str | None) -> pa.Array:
    """Name the copies of files: always the same for the same file, so that one is found again.

    Args:
        shared: What the target would call the files themselves.
        location: Where the target is; None if it is not there yet.
    """
    start = _UNKNOWN if location is None else spark_path(location, "")
    start = start if start.endswith((":", "/")) else start + "/"
    names = [sha256(path.encode()).hexdigest()[:_DIGITS] for path in shared.to_pylist()]
    return pa.array([f"{start}{_FOLDER}/{name}.parquet" for name in names], pa.string())


def resolved(paths: pa.Array, location: str) -> pa.Array:
    """Put the place of a table into names that were made before it was known."""
    if not len(paths) or not pc.any(pc.starts_with(paths, _UNKNOWN)).as_py():
        return paths
    return pc.replace_substring_regex(paths, f"^{_UNKNOWN}", _start(location))


def resolved_holdings(held: Holdings, location: str) -> Holdings:
    """Do so for all names of holdings."""
    keys = pc.replace_substring_regex(
        held.keys, f"^{PLANNED}{_UNKNOWN}", PLANNED + _start(location)
    )
    return replace(held, paths=resolved(held.paths, location), keys=keys)


def _start(location: str) -> str:
    return spark_path(location, "").rstrip("/").replace("\\", "\\\\") + "/"


def place(
    files: FileSet,
    shared: pa.Array,
    held: pa.Array,
    location: str | None,
    schema: TargetSchema,
    storage: Storage,
    *,
    may_copy: bool,
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Decide which files are shared and which are copied; give the names, and which are copies.

    What the target holds tells for most files. The footers of new ones are read where column
    mapping and arrays or maps meet. Elsewhere files have no ids, or had better have none: they may
    come from an Iceberg table and count columns in their own way. Of these some are looked at, 32
    at most for each snapshot; all, if one of them is odd.

    Args:
        files: The files of the source.
        shared: What the target would call them.
        held: The names that it holds.
        location: Where it is; None if it is not there yet.
        schema: What its schema is to be.
        storage: The source.
        may_copy: Whether files may be copied.

    Raises:
        FormatError: A file has ids that are not those of the table.
        UnsupportedFeatureError: A file would have to be copied, and may not.
    """
    names = copy_names(shared, location)
    is_shared = pc.is_in(shared, value_set=held).to_numpy(zero_copy_only=False)
    copied = pc.is_in(names, value_set=held).to_numpy(zero_copy_only=False) & ~is_shared
    new = np.flatnonzero(~is_shared & ~copied)
    if not schema.nested_without_ids and not _is_odd(files, new, schema, storage):
        new = new[:0]
    if len(new):
        lacking = files_to_copy(storage, files.select(new), field_ids(schema))
        if lacking.any() and not may_copy:
            _refuse(files, int(new[lacking.argmax()]))
        copied[new] = lacking
    return pc.if_else(pa.array(copied), names, shared), copied


def _is_odd(files: FileSet, new: NDArray[np.int64], schema: TargetSchema, storage: Storage) -> bool:
    """Look at some files; tell whether one cannot be shared."""
    if not len(new):
        return False
    some = np.unique(np.linspace(0, len(new) - 1, _SAMPLE).astype(np.int64))
    lacking = files_to_copy(storage, files.select(new[some]), field_ids(schema))
    # With column mapping there are only structs inside of arrays and maps here: these are found by
    # the ids of their fields.
    return files.metadata.mapping_mode == "none" and bool(lacking.any())


def field_ids(schema: TargetSchema) -> dict[tuple[str, ...], int]:
    """Give the ids of all fields by their names in files."""
    return dict(ids_by_path(schema.name_mapping()))


def _refuse(files: FileSet, row: int) -> None:
    raise UnsupportedFeatureError(
        f"Iceberg cannot read data files of {files.root} that have field ids for their columns and"
        f" none inside arrays and maps, the first is {files.paths[row].as_py()}",
        feature="column mapping with arrays or maps",
        needed_by=files.root,
        hint="pass copy_files=True (--copy-files): such files are copied, byte for byte, with the"
        " ids that they lack; or rewrite them with delta.enableIcebergCompatV2",
    )
