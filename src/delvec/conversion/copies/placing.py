"""Which data files of the source the target shares, and which it has copies of.

With column mapping, Delta's writers assign field ids to the columns of a file but none to the
elements of arrays and maps. Iceberg then fails for lack of an id, whatever the table's metadata
says. A copy has the same bytes and a footer with all ids, see
`delvec.conversion.copies.write_copies`.
"""

from __future__ import annotations

import re
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

    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

__all__ = ["copy_paths", "copy_pattern", "field_ids", "place", "planned_paths", "resolve_paths"]

_FOLDER: Final = "data/copies"
_DIGITS: Final = 40
_SAMPLE: Final = 32
_PLANNED: Final = "table:"  # prefix of paths below the target, wherever that is


def copy_paths(shared: pa.Array) -> pa.Array:
    """Return the planned paths of the copies of files; the same file always has the same one.

    In the target a copy has the id of the run that wrote it in its name, see `resolve_paths`.

    Args:
        shared: The paths of the files themselves, as the target would name them.
    """
    names = [sha256(path.encode()).hexdigest()[:_DIGITS] for path in shared.to_pylist()]
    return pa.array([f"{_PLANNED}{_FOLDER}/{name}.parquet" for name in names], pa.string())


def copy_pattern(location: str) -> tuple[str, str]:
    """Return a regular expression for the copies of a target, and what makes it a planned path.

    The expression is one for Java and for Arrow. Early copies have no id of a run in their names.
    """
    folder = re.escape(f"{_folder(location)}{_FOLDER}/")
    pattern = rf"^{folder}([0-9a-f]{{{_DIGITS}}})(?:-[0-9a-f-]{{36}})?\.parquet$"
    return pattern, f"{_PLANNED}{_FOLDER}/%s.parquet"


def planned_paths(paths: pa.Array, location: str | None) -> pa.Array:
    """Return paths by which files are compared: copies in the target have their planned path.

    Args:
        paths: Paths of the target's data files.
        location: Where the target is; None if it does not exist yet.
    """
    if location is None or not len(paths):
        return paths
    pattern, planned = copy_pattern(location)
    return pc.replace_substring_regex(paths, pattern, planned % r"\1")


def resolve_paths(paths: pa.Array, location: str, run: str, *, prefix: str = "") -> pa.Array:
    """Return paths with the names of copies that a conversion is going to write.

    A copy is never written under a name that was used before: `clean_target` may be about to delete
    an old one that no snapshot refers to.

    Args:
        paths: Paths of any files.
        location: Where the target is.
        run: A new UUID of the conversion.
        prefix: What comes before the path in each string.
    """
    if not len(paths) or not pc.any(pc.starts_with(paths, prefix + _PLANNED)).as_py():
        return paths
    folder = _folder(location).replace("\\", "\\\\")
    pattern = rf"^{prefix}{_PLANNED}(.*)\.parquet$"
    return pc.replace_substring_regex(paths, pattern, rf"{prefix}{folder}\1-{run}.parquet")


def _folder(location: str) -> str:
    return spark_path(location, "").rstrip("/") + "/"


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

    Args:
        files: The files of the source.
        shared: Their paths, as the target would name them.
        target_paths: The paths of the target's data files.
        location: Where the target is; None if it does not exist yet.
        schema: The schema of the target.
        storage: The source.
        may_copy: Whether files may be copied.

    Raises:
        FormatError: A file has field ids that are not those of the table.
        UnsupportedFeatureError: A file has to be copied, and may not.
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


def field_ids(schema: TargetSchema) -> dict[tuple[str, ...], int]:
    """Return the ids of all fields by their physical names."""
    return dict(ids_by_path(schema.name_mapping()))


def _refuse(files: FileSet, row: int) -> None:
    raise UnsupportedFeatureError(
        f"Iceberg cannot read data files of {files.root} that have field ids for their columns and"
        f" none inside arrays and maps, the first is {files.paths[row].as_py()}",
        feature="column mapping with arrays or maps",
        needed_by=files.root,
        hint="pass copy_files=True: such files are copied, byte for byte, with the ids that they"
        " lack; or rewrite them with delta.enableIcebergCompatV2",
    )
