"""Row-level deletes for Delta Lake and Apache Iceberg, on Spark, from Python.

A lakehouse table is made of immutable Parquet files. To delete a row means to write down where it
is: a deletion vector, a compressed bitmap of row positions in one data file.

    import delvec

    spark = delvec.session(warehouse="warehouse")    # Spark with the Iceberg catalog `lake`

    table = delvec.DeltaTable.for_path(spark, "/lake/orders")
    df = table.to_df().where("day = '2026-01-31'")   # deleted rows are gone, files are pruned
    print(delvec.explain(df))

    delvec.convert(spark, "/lake/orders", "lake.db.orders")   # the same rows as an Iceberg table

    deleted = delvec.Bitmap([3, 4, 7, 11, 18, 29])   # positions of the deleted rows
    [file] = delvec.vector.pack([deleted])           # a Delta vector file and its log entry
    file.descriptors[0].to_json()

Importing this package starts no JVM, and Spark itself is imported only when a session is asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from delvec._version import __version__

if TYPE_CHECKING:
    from delvec import errors, storage, vector
    from delvec.conversion.clean_target import clean_target
    from delvec.conversion.convert import convert, plan_conversion
    from delvec.delta.table import DeltaTable
    from delvec.door.door import enable_sql
    from delvec.door.run import sql
    from delvec.door.sessions import configure, session
    from delvec.errors import DelvecError
    from delvec.iceberg.table import IcebergTable
    from delvec.spark.delta.scan.explain import explain
    from delvec.vector import Bitmap

__all__ = [
    "Bitmap",
    "DeltaTable",
    "DelvecError",
    "IcebergTable",
    "__version__",
    "clean_target",
    "configure",
    "convert",
    "enable_sql",
    "errors",
    "explain",
    "plan_conversion",
    "session",
    "sql",
    "storage",
    "vector",
]

_HOMES = {
    "Bitmap": "delvec.vector",
    "DeltaTable": "delvec.delta.table",
    "DelvecError": "delvec.errors",
    "IcebergTable": "delvec.iceberg.table",
    "clean_target": "delvec.conversion.clean_target",
    "configure": "delvec.door.sessions",
    "convert": "delvec.conversion.convert",
    "enable_sql": "delvec.door.door",
    "explain": "delvec.spark.delta.scan.explain",
    "plan_conversion": "delvec.conversion.convert",
    "session": "delvec.door.sessions",
    "sql": "delvec.door.run",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that `import delvec` stays light."""
    from importlib import import_module  # noqa: PLC0415

    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in __all__:
        value = import_module(f"delvec.{name}")
    else:
        from delvec.calls import explain_name  # noqa: PLC0415

        raise explain_name(sys.modules[__name__], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
