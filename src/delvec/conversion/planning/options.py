"""Options of a conversion, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict, get_args

from delvec.errors import InvalidArgumentError
from delvec.report.hints import argument, format_hint

Vectors: TypeAlias = Literal["repack", "reference"]
History: TypeAlias = Literal["latest", "per-version"]
Foreign: TypeAlias = Literal["refuse", "overwrite"]
Verify: TypeAlias = Literal["counts", "rows", "none"]
_FORMATS: Final = (2, 3)


class Choices(TypedDict, total=False):
    """Keyword arguments of all calls that convert a table.

    Attributes:
        format_version: Iceberg's, 2 or 3; by default that of the target, or 3 for a new one.
        vectors: `repack` copies vectors into Puffin files of the target, without decoding them;
            `reference` makes the target refer to Delta's own files, which some readers refuse.
        history: `latest` makes one snapshot; `per-version` makes a snapshot with a tag
            `delta-version-<n>` for each version since.
        start_version: The first version of the history in a new target; by default the oldest one
            in the log.
        folder: Where the position deletes of a target of format 2 are written, below its location.
        location: The location of a new target, if its catalog allows to choose it.
        foreign: `refuse` a target whose rows others have changed, or `overwrite` their changes.
        copy_files: Whether to copy data files that Iceberg cannot read as they are: those of
            tables with column mapping that have arrays or maps. They are refused by default.
    """

    format_version: int | None
    vectors: Vectors
    history: History
    start_version: int | None
    folder: str
    location: str | None
    foreign: Foreign
    copy_files: bool


@dataclass(frozen=True)
class ConversionOptions:
    """The validated options, see `Choices`."""

    format_version: int | None = None
    vectors: Vectors = "repack"
    history: History = "latest"
    start_version: int | None = None
    folder: str = "deletion-vectors"
    location: str | None = None
    foreign: Foreign = "refuse"
    copy_files: bool = False

    def __post_init__(self) -> None:
        for name, kinds in (("vectors", Vectors), ("history", History), ("foreign", Foreign)):
            allowed, value = get_args(kinds), getattr(self, name)
            if value not in allowed:
                raise InvalidArgumentError(
                    f"{name} is {' or '.join(map(repr, allowed))}, got {value!r}"
                )
        if self.format_version not in (None, *_FORMATS):
            raise InvalidArgumentError(f"format_version is 2 or 3, got {self.format_version!r}")
        if self.format_version == 2 and self.vectors == "reference":
            raise InvalidArgumentError(
                "a target of format 2 cannot refer to vectors",
                hint=format_hint(
                    "{}, or {}", argument(format_version=3), argument(vectors="repack")
                ),
            )
        if self.start_version is not None and self.history != "per-version":
            raise InvalidArgumentError("start_version needs history='per-version'")
        parts = self.folder.split("/")
        if not self.folder or any(part in ("", ".", "..") for part in parts):
            raise InvalidArgumentError(
                f"folder is a relative path without `.` and `..`, got {self.folder!r}"
            )
