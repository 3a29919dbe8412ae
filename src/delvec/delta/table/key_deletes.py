"""DELETE of the rows that have one of some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.delta.schema.types import PrimitiveType
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.schema.types import Field
    from delvec.delta.table.handle import TableHandle
    from delvec.delta.write.options import WriteOptions
    from delvec.delta.write.report import WriteReport

__all__ = ["delete_keys"]


def delete_keys(
    table: TableHandle,
    keys: Any,  # noqa: ANN401
    on: str | Sequence[str],
    ratio: float | None,
    options: WriteOptions,
) -> WriteReport:
    """Delete the rows of some keys, which are computed once.

    Raises:
        InvalidArgumentError: A column is missing, cannot be a key or has keys of another type.
    """
    from delvec.spark.delta.scan.read_versions import reads_of  # noqa: PLC0415
    from delvec.spark.delta.write.delete import ByKeys, delete_keys  # noqa: PLC0415
    from delvec.spark.engine import SparkEngine  # noqa: PLC0415
    from delvec.spark.given_keys import exact_cast, given_keys, padded  # noqa: PLC0415
    from delvec.spark.staging import staged  # noqa: PLC0415
    from delvec.spark.types import spark_type  # noqa: PLC0415

    session = table._session("delete(keys=...)")  # noqa: SLF001
    table._engine()  # noqa: SLF001 - a session that cannot write is refused first
    root, schema = table.storage.root, table.schema
    fields = [_key_field(schema.field(name)) for name in ([on] if isinstance(on, str) else on)]
    names = tuple(field.name for field in fields)
    with SparkEngine(session).explained(root):
        given = given_keys(session, keys, names, "delete")
        columns = (
            padded(exact_cast(given, each.name, spark_type(each.type)), each.char_width)
            for each in fields
        )
        wanted = given.select(
            *(column.alias(name) for column, name in zip(columns, names, strict=True))
        )
        # Before the keys are read, so that no commit falls between the two.
        reads = reads_of(wanted, root, lambda: table.version)
        with staged(wanted) as rows:
            return table.run("DELETE", delete_keys(ByKeys(rows, names, reads), ratio), options)


def _key_field(field: Field) -> Field:
    if isinstance(field.type, PrimitiveType):
        return field
    raise InvalidArgumentError(
        f"column {field.name} is of type {field.type}, and cannot be a key",
        hint="name columns of plain types, or delete by a merge",
    )
