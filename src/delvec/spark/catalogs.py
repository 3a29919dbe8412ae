"""Locations of tables that the session's catalog knows by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from delvec.errors import TableNotFoundError
from delvec.identifiers import QUOTED, unquote
from delvec.spark.failures import quiet
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["location_of"]

_BY_PATH: Final = re.compile(rf"\s*delta\s*\.\s*({QUOTED})\s*", re.IGNORECASE)
_DETAILS: Final = "# Detailed Table Information"


def location_of(spark: SparkSession, identifier: str) -> str:
    """Return the path or URI of a Delta table by its name, or by `` delta.`/path` ``.

    Raises:
        TableNotFoundError: There is no such table, or it is of another format.
    """
    if by_path := _BY_PATH.fullmatch(identifier):
        return unquote(by_path[1])
    try:
        with quiet():
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {identifier}").collect()
    except PySparkException as error:
        raise TableNotFoundError(
            f"the session's catalog has no table {identifier}: {error}".splitlines()[0],
            table=identifier,
            hint="open it by its path: DeltaTable.for_path(spark, path)",
        ) from error
    names = [row.col_name for row in rows]
    start = names.index(_DETAILS) if _DETAILS in names else 0
    details = {row.col_name: row.data_type for row in rows[start:]}
    location, provider = details.get("Location"), (details.get("Provider") or "").lower()
    if not location or provider != "delta":
        raise TableNotFoundError(
            f"{identifier} is not a Delta table but one of {provider or 'an unknown format'}",
            table=identifier,
            hint=f"open it by IcebergTable.for_name(spark, {identifier!r})"
            if provider == "iceberg"
            else "delvec reads Delta and Iceberg tables",
        )
    return local_path(str(location))
