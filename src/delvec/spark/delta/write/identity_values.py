"""Values of identity columns for new rows, generated in the JVM.

The rows are staged, so that each keeps its place: row k of partition p gets the value number
p + k * n, of n partitions. So the last value is known before anything is written. It is committed
with the metadata: of two writers at a time one conflicts, and starts again after the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions

from delvec.delta.schema.identity import Identity, identity_fields, with_mark
from delvec.delta.schema.types import StructType
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame, Row

    from delvec.delta.alter.table_state import TableState

__all__ = [
    "missing_identities",
    "require_insertable",
    "with_identity_values",
    "with_next_value",
]

_PARTITION: Final = "__delvec_partition"
_COUNT: Final = "__delvec_count"
# Spark numbers rows by the index in their partition, with the partition's above these bits.
_INDEX: Final = (1 << 33) - 1


def require_insertable(schema: StructType, given: Collection[str]) -> None:
    """Refuse values for identity columns that are always generated.

    Raises:
        InvalidArgumentError: The rows have one.
    """
    names = {name.lower() for name in given}
    for field in identity_fields(schema):
        if field.name.lower() in names and not Identity.of(field).allows_explicit:
            raise InvalidArgumentError(
                f"column {field.name} is GENERATED ALWAYS AS IDENTITY: rows cannot give it a value",
                hint=f"leave {field.name} out",
            )


def missing_identities(schema: StructType, given: Collection[str]) -> list[str]:
    """Return the identity columns that rows have no values for."""
    names = {name.lower() for name in given}
    return [each.name for each in identity_fields(schema) if each.name.lower() not in names]


def with_next_value(schema: StructType, rows: DataFrame, missing: Collection[str]) -> DataFrame:
    """Give all rows the same value, for a plan that checks rows and writes none."""
    values = {name: Identity.of(schema.field(name)).next_value for name in missing}
    return rows.withColumns({name: functions.lit(value) for name, value in values.items()})


def with_identity_values(
    state: TableState, rows: DataFrame, missing: Mapping[str, Column | None]
) -> tuple[DataFrame, TableState]:
    """Fill identity columns; return the rows, and the table with its new high water marks.

    Args:
        state: The table.
        rows: Staged rows with all columns of the table.
        missing: The columns to fill, each with a condition for the rows that lack a value; None
            for all rows.

    Raises:
        InvalidArgumentError: A column has no values left.
    """
    identities = {name: Identity.of(state.schema.field(name)) for name in missing}
    found = (
        rows.groupBy(functions.spark_partition_id().alias(_PARTITION))
        .agg(
            functions.count("*").alias(_COUNT),
            *(_furthest(each, missing[name]) for name, each in identities.items()),
        )
        .collect()
    )
    if not found:
        return rows, state
    partitions = 1 + max(row[_PARTITION] for row in found)
    last = max(row[_PARTITION] + (row[_COUNT] - 1) * partitions for row in found)
    index = functions.monotonically_increasing_id().bitwiseAND(functions.lit(_INDEX))
    number = functions.spark_partition_id() + index * functions.lit(partitions)
    values, marks = {}, {}
    for name, identity in identities.items():
        furthest = identity.next_value + last * identity.step
        identity.require_room(furthest)
        value = functions.lit(identity.next_value).cast("long") + number * functions.lit(
            identity.step
        ).cast("long")
        condition = missing[name]
        own = functions.col(quote(name))
        values[name] = (
            value if condition is None else functions.when(condition, value).otherwise(own)
        )
        marks[name] = mark = _mark(identity, [furthest, *_explicit(name, found)])
        if mark is not None:
            # After a value that rows bring it is the next one that can be generated.
            identity.require_room(mark)
    return rows.withColumns(values), _with_marks(state, marks)


def _furthest(identity: Identity, missing: Column | None) -> Column:
    """Return the furthest value that rows bring themselves."""
    own = functions.col(quote(identity.name))
    brought = functions.lit(None).cast("long") if missing is None else functions.when(~missing, own)
    furthest = functions.max if identity.step > 0 else functions.min
    return furthest(brought).alias(identity.name)


def _explicit(name: str, found: list[Row]) -> list[int]:
    return [row[name] for row in found if row[name] is not None]


def _mark(identity: Identity, values: list[int]) -> int | None:
    for value in values:
        identity = replace(identity, high_water_mark=identity.mark_after(value))
    return identity.high_water_mark


def _with_marks(state: TableState, marks: Mapping[str, int | None]) -> TableState:
    fields = (with_mark(field, marks.get(field.name)) for field in state.schema.fields)
    return state.with_schema(StructType(tuple(fields)))
