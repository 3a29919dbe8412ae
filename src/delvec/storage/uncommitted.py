"""What an operation has written that no commit refers to yet: removed if the operation fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delvec.errors import StorageError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from delvec.storage import Storage

__all__ = ["Leftovers"]

_LOG = logging.getLogger("delvec")


class Leftovers:
    """Files and folders below a table that go unless they are kept.

    `keep` is called before a commit is put, since one of unknown outcome may refer to them: files
    that nobody refers to cost space, missing ones cost the table.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._keys: list[str] = []
        self._folders: list[str] = []
        self._kept = False

    def add(self, *keys: str) -> None:
        """Remember files; before they are written, so that half a write is found too."""
        self._keys += keys

    def add_folder(self, folder: str) -> None:
        """Remember all files of a folder."""
        self._folders.append(folder)

    def keep(self) -> None:
        """Let everything stay from now on."""
        self._kept = True

    def forget_none(self) -> None:
        """Take `keep` back: the commit surely did not happen."""
        self._kept = False

    def drop(self, keys: set[str]) -> None:
        """Remove some of the files at once, as those that another attempt has replaced."""
        gone = [key for key in self._keys if key in keys]
        self._keys = [key for key in self._keys if key not in keys]
        try:
            self._storage.delete(gone)
        except StorageError as failure:
            self._warn(failure)

    @property
    def keys(self) -> frozenset[str]:
        """The files that were remembered one by one."""
        return frozenset(self._keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._kept:
            return
        try:
            self._storage.delete(self._keys)
            for folder in self._folders:
                self._storage.delete_folder(folder)
        except StorageError as failure:
            self._warn(failure)

    def _warn(self, failure: StorageError) -> None:
        # The operation's own outcome says more; what is left harms nobody.
        _LOG.warning("files that nobody needs are left in %s: %s", self._storage.root, failure)
