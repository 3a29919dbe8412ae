"""The folder of a new table: empty, since a VACUUM deletes whatever the log does not refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.delta.log.segment import find_segment
from delvec.delta.schema.hidden_names import NameRules
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.report.wordings import Wording, shell_word, worded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.schema.metadata import Metadata
    from delvec.storage import FileInfo, Storage

__all__ = ["require_empty_location"]

_SHOWN: Final = 3
_PAGE: Final = 1000  # Files that are looked at for more names, once there is one: a request.
_LAST: Final = "\U0010ffff"


def require_empty_location(storage: Storage, metadata: Metadata) -> None:
    """Refuse a folder for a new table that has files which a VACUUM of it would delete.

    Hidden names are those that VACUUM leaves; files of other tables inside the folder count, since
    delta-spark deletes them. Where somebody creates a table at the same time, nothing is refused:
    the commit of version 0 will conflict. One listing, which ends with the first such file, and one
    more for each hidden folder.

    Raises:
        InvalidArgumentError: There are such files; it names some.
    """
    found = _visible_files(storage, NameRules.of(metadata))
    if not found or _is_table(storage):
        return
    more = " and more" if len(found) > _SHOWN else ""
    is_parquet = all(key.endswith(".parquet") for key in found)
    raise InvalidArgumentError(
        f"{storage.root} is no Delta table and has files, which a VACUUM of a new table there would"
        f" delete: {', '.join(found[:_SHOWN])}{more}",
        hint=worded(
            "delete them if they are what a killed write left; else choose another folder, or make"
            " them a table: {}",
            _conversion(storage.root),
        )
        if is_parquet
        else "choose another folder, or move these files",
    )


def _conversion(root: str) -> Wording:
    return Wording(
        f"DeltaTable.convert_to_delta(None, {root!r})",
        f"`delvec convert-to-delta {shell_word(root, is_path=True)}`",
    )


def _is_table(storage: Storage) -> bool:
    try:
        find_segment(storage)
    except TableNotFoundError:
        return False
    return True


def _visible_files(storage: Storage, rules: NameRules) -> list[str]:
    found: list[str] = []
    since = 0
    for info in _below(storage, rules):
        since += bool(found)
        if not rules.is_hidden(info.key) and not _is_marker(storage, info):
            found.append(info.key)
        if len(found) > _SHOWN or since >= _PAGE:
            break
    return found


def _below(storage: Storage, rules: NameRules) -> Iterator[FileInfo]:
    """Yield the files below a folder; of hidden folders in it the first only."""
    start: str | None = None
    leapt = ""
    while True:
        for info in storage.list(start_from=start, recursive=True):
            yield info
            folder, slash, _ = info.key.partition("/")
            if slash and folder != leapt and rules.is_hidden(folder):
                start, leapt = f"{folder}/{_LAST}{_LAST}", folder
                break
        else:
            return


def _is_marker(storage: Storage, info: FileInfo) -> bool:
    """Return whether an empty file is what Hadoop puts into buckets for the folder `x/`."""
    return info.size == 0 and "://" in storage.root and not storage.exists(info.key)
