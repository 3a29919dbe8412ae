"""Why there is no Delta table at a path, and what to do: a few requests, once it is known."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import Final

from delvec.errors import InvalidArgumentError, StorageError, TableNotFoundError
from delvec.report.wordings import Wording, shell_word, worded
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
            Wording(
                'open it by its name: IcebergTable.for_name(spark, "catalog.database.table")',
                "give its name in a catalog, such as lake.db.orders",
            ),
        )
    if any(key.endswith(".parquet") and not key.startswith(_LOG) for key in keys):
        return _error(
            root,
            f"it holds Parquet files and no {_LOG}",
            worded(
                "make it one, without a copy: {}; or is a folder above it the table's?",
                _made(f"convert_to_delta(None, {given!r})", f"convert-to-delta {_word(given)}"),
            ),
        )
    if keys:
        return error
    return _nothing(storage, given)


def _nothing(storage: Storage, given: str) -> TableNotFoundError:
    """Return the error for a path that is no folder, or an empty one."""
    root = storage.root
    if _is_file(storage):
        return _error(root, "it is a file", f"name the folder of the table, which holds {_LOG}")
    if _NAME.fullmatch(given):
        return _error(
            root,
            "there is no such folder, and it looks like the name of a table",
            f"open it by DeltaTable.for_name(spark, {given!r}), an Iceberg table by"
            f" IcebergTable.for_name(spark, {given!r})",
        )
    made = _made(f"create(spark, {given!r}, schema)", f"create {_word(given)} --schema ...")
    return _error(
        root,
        "there is no such folder, or it is empty",
        worded("check the path, or make a table by {}", made),
    )


def _made(python: str, command: str) -> Wording:
    return Wording(f"DeltaTable.{python}", f"delvec {command}")


def _word(path: str) -> str:
    return shell_word(path, is_path=True)


def _is_file(storage: Storage) -> bool:
    """Return whether a path is that of a file; of folders without any, only this tells."""
    try:
        parent, key = Storage.open_file(storage.root, storage.options)
        return parent.exists(key)
    except (InvalidArgumentError, StorageError):  # it names a bucket, or may not be asked for
        return False


def _error(root: str, why: str, hint: str) -> TableNotFoundError:
    return TableNotFoundError(f"{root} is no Delta table: {why}", table=root, hint=hint)
