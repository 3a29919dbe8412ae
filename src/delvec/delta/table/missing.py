"""Why there is no Delta table at a path, and what to do: a few requests, once it is known."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from delvec.errors import StorageError, TableNotFoundError

if TYPE_CHECKING:
    from delvec.storage import Storage

__all__ = ["explain_missing"]

_LOG: Final = "_delta_log"
_LOOKED_AT: Final = 1000  # files: one page of a listing
_ICEBERG: Final = re.compile(r"metadata/(?:version-hint\.text|[^/]+\.metadata\.json)$")
_NAME: Final = re.compile(r"\w+(?:\.\w+){1,2}")


def explain_missing(
    storage: Storage, path: str | os.PathLike[str], error: TableNotFoundError
) -> TableNotFoundError:
    """Return the error for a path without a table, with what is there instead, and the next step.

    Args:
        storage: The path, opened.
        path: As the caller wrote it.
        error: That there is no log.
    """
    root, given = storage.root, os.fspath(path)
    try:
        keys = [each.key for each in islice(storage.list(recursive=True), _LOOKED_AT)]
    except StorageError:  # of a store that may be read, but not listed
        return error
    if any(_ICEBERG.search(key) for key in keys):
        return _error(
            root,
            "it is the folder of an Iceberg table",
            'open it by its name: IcebergTable.for_name(spark, "catalog.database.table")',
        )
    if any(key.endswith(".parquet") and not key.startswith(_LOG) for key in keys):
        return _error(
            root,
            f"it holds Parquet files and no {_LOG}",
            f"make it one, without a copy: DeltaTable.convert_to_delta(None, {given!r});"
            " or is a folder above it the table's?",
        )
    if keys:
        return error
    if _NAME.fullmatch(given):
        return _error(
            root,
            "there is no such folder, and it looks like the name of a table",
            f"open it by DeltaTable.for_name(spark, {given!r}), an Iceberg table by"
            f" IcebergTable.for_name(spark, {given!r})",
        )
    return _error(
        root,
        "there is no such folder, or it is empty",
        f"check the path, or make a table by DeltaTable.create(spark, {given!r}, schema)",
    )


def _error(root: str, why: str, hint: str) -> TableNotFoundError:
    return TableNotFoundError(f"{root} is no Delta table: {why}", table=root, hint=hint)
