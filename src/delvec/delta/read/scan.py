"""What to read of data files: which columns, which rows, under which names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.delta.pruning.predicate import Always, columns_of
from delvec.delta.schema.arrow import arrow_field
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.types import Field, MappingMode, StructType

__all__ = ["FILE_COLUMN", "POSITION_COLUMN", "Scan"]

FILE_COLUMN: Final = "_file"
POSITION_COLUMN: Final = "_pos"


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of each file; it can be pickled, and serves all files of a snapshot.

    Attributes:
        schema: The table's.
        partition_columns: Logical names of the columns that are not in the files.
        columns: Logical names of the columns to return, in that order; None for all.
        predicate: Only rows for which it is true are returned; Arrow must understand all of it.
        mapping_mode: How columns are found in the files.
        time_zone: Of partition values that are timestamps without one.
        with_file: Add `_file`, the full name of the file.
        with_position: Add `_pos`, the row's position in the file, counting deleted rows.

    >>> from delvec.delta.schema.types import Field, PrimitiveType, StructType
    >>> schema = StructType((Field("id", PrimitiveType("long")),))
    >>> Scan(schema, columns=("ID",), with_position=True).arrow_schema.names
    ['id', '_pos']
    """

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    predicate: Predicate = Always()  # noqa: RUF009 - frozen as well
    mapping_mode: MappingMode = "none"
    time_zone: str = "UTC"
    with_file: bool = False
    with_position: bool = False

    def __post_init__(self) -> None:
        names = [field.name for field in self.needed_fields]
        names += [FILE_COLUMN] * self.with_file + [POSITION_COLUMN] * self.with_position
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgumentError(f"column {twice!r} would be there twice")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the table that are returned."""
        if self.columns is None:
            return self.schema.fields
        return tuple(self.schema.field(name) for name in self.columns)

    @property
    def needed_fields(self) -> tuple[Field, ...]:
        """The columns that are returned, then those that only the predicate needs."""
        returned = self.fields
        asked = {self.schema.field(column[0]) for column in columns_of(self.predicate)}
        return returned + tuple(
            field for field in self.schema.fields if field in asked and field not in returned
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of all batches."""
        return pa.schema([*map(arrow_field, self.fields), *self.added_fields])

    @property
    def added_fields(self) -> list[pa.Field]:
        """The columns with the place of a row: its file and position."""
        file = pa.field(FILE_COLUMN, pa.string(), nullable=False)
        position = pa.field(POSITION_COLUMN, pa.int64(), nullable=False)
        return [file] * self.with_file + [position] * self.with_position
