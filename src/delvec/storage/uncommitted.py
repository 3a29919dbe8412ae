"""Files that an operation has written and no commit refers to yet; removed if it fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delvec.errors import StorageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from delvec.storage import Storage

_LOG = logging.getLogger("delvec")


class UncommittedFiles:
    """Files and folders below a table that are removed at the end of the block unless kept.

    `keep` is called before a commit is put, since a commit of unknown outcome may refer to them:
    orphan files cost space, missing files cost the table.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.keys: list[str] = []
        self.is_kept = False
        self._folders: list[str] = []
        self._elsewhere: list[tuple[Storage, str]] = []

    def add(self, *keys: str) -> None:
        """Register files; before they are written, so that half a write is removed too."""
        self.keys += keys

    def add_elsewhere(self, storage: Storage, key: str) -> None:
        """Register a file that is not below the table."""
        self._elsewhere.append((storage, key))

    def add_folder(self, folder: str) -> None:
        """Register all files of a folder."""
        self._folders.append(folder)

    def keep(self) -> None:
        """Remove nothing at the end: a commit may refer to the files."""
        self.is_kept = True

    def discard(self) -> None:
        """Remove everything at the end: the commit certainly did not happen."""
        self.is_kept = False

    def drop(self, keys: set[str]) -> None:
        """Remove some of the files now, such as those that a later attempt has replaced."""
        gone = [key for key in self.keys if key in keys]
        self.keys = [key for key in self.keys if key not in keys]
        try:
            self.storage.delete(gone)
        except StorageError as failure:
            self._warn(failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_kept:
            return
        try:
            self.storage.delete(self.keys)
            for folder in self._folders:
                self.storage.delete_folder(folder)
            for storage, key in self._elsewhere:
                storage.delete([key])
        except StorageError as failure:
            self._warn(failure)

    def _warn(self, failure: StorageError) -> None:
        # The outcome of the operation matters more; orphan files harm nobody.
        _LOG.warning("uncommitted files are left in %s: %s", self.storage.root, failure)
