"""Names below a table that are not its data, which VACUUM never touches.

A name that begins with `_` or `.` is hidden, as in delta-spark, with all below it; but folders of
partitions such as `_day=1` and the folder of change files are not. So is `metadata` where Iceberg
metadata is kept there (UniForm).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delvec.delta.schema.metadata import Metadata

__all__ = ["CHANGES", "NameRules"]

CHANGES: Final = "_change_data"
"""The folder of the change files."""

_UNIFORM: Final = "delta.universalFormat.enabledFormats"


@dataclass(frozen=True)
class NameRules:
    """Which names below a table are hidden.

    >>> rules = NameRules(("_day=",))
    >>> [rules.is_hidden(key) for key in ("a/_tmp/x", "_day=1/x", "_change_data/x", "a/.x.crc")]
    [True, False, False, True]
    """

    shown: tuple[str, ...] = ()
    hides_metadata: bool = False

    @classmethod
    def of(cls, metadata: Metadata) -> NameRules:
        """Return the rules of a table; partition folders have logical names or physical ones."""
        fields = metadata.partition_fields
        names = {name for each in fields for name in (each.name, each.physical_name)}
        formats = metadata.configuration.get(_UNIFORM, "").lower()
        return cls(tuple(sorted(f"{name}=" for name in names)), "iceberg" in formats)

    def is_hidden(self, key: str) -> bool:
        """Return whether a file or folder is hidden, or is below a hidden folder."""
        plain = key[0] not in "_." and "/_" not in key and "/." not in key
        if plain and not self.hides_metadata:
            return False  # by far the most
        return any(self._is_hidden_name(name) for name in key.split("/"))

    def _is_hidden_name(self, name: str) -> bool:
        if name == "metadata":
            return self.hides_metadata
        return name.startswith(("_", ".")) and name != CHANGES and not name.startswith(self.shown)
