"""Commits that leave open what became of a file, so that whole versions have to be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.vectors.keys import vector_keys
from delvec.conversion.vectors.known_ids import referenced_ids
from delvec.conversion.vectors.position_deletes import digest

if TYPE_CHECKING:
    from delvec.conversion.planning.source_changes import SourceChanges
    from delvec.conversion.planning.target import Target
    from delvec.conversion.planning.target_files import TargetFiles

__all__ = ["UnclearCommitsError", "require_clear"]


class UnclearCommitsError(Exception):
    """Commits name another vector of a file than it has."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the commits up to version {version} name other vectors of files than these have"
        )


def require_clear(
    version: int, changes: SourceChanges, files: TargetFiles, target: Target, root: str
) -> None:
    """Refuse commits that touch a file of the target, but not with the vector that it has.

    A remove counts for the vector that it names. One that names another vector leaves the file
    live, which only the files of the whole version show.

    Args:
        version: The version that the commits lead to.
        changes: What the commits add and remove.
        files: The target's files that they touch.
        target: The target.
        root: The path or URI of the source.

    Raises:
        UnclearCommitsError: There is such a file.
    """
    paths = target.possible_paths(root, changes.entries["path"].combine_chunks())
    ids = changes.entries["vector_id"].combine_chunks()
    forms = [ids, referenced_ids(ids, root)]
    if target.format_version == 2:
        forms.append(digest(ids))
    # There are two paths for each entry, see `possible_paths`.
    named = pa.concat_arrays([vector_keys(paths, pa.concat_arrays([form] * 2)) for form in forms])
    planned = target.planned_paths(files.paths)
    touched = pc.is_in(planned, value_set=paths)
    known = pc.is_in(vector_keys(planned, files.ids), value_set=named)
    of_unknown_origin = pc.and_(files.keys.is_valid(), files.ids.is_null())
    unclear = pc.and_(touched, pc.or_(of_unknown_origin, pc.invert(known)))
    if pc.any(unclear).as_py():
        raise UnclearCommitsError(version)
