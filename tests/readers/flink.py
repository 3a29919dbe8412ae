"""Flink as a reader: its libraries and Iceberg's runtime for it, in a JVM of their own."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow as pa
from py4j.java_gateway import JavaGateway

from tests.spark.jars import resolved

_RUNTIME: Final = "org.apache.iceberg:iceberg-flink-runtime-2.1:1.11.0"
_OPENED: Final = ("lang", "lang.invoke", "lang.reflect", "io", "math", "net", "nio", "text", "time")
_OPENED_UTIL: Final = ("util", "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks")
_COLUMNS: Final = (
    "`id`",
    "`name`",
    "CAST(`price` AS STRING)",
    "CAST(`day` AS STRING)",
    "CAST(`at` AS STRING)",
)


def read(metadata: Path) -> pa.Table:
    """Read a table of a Hadoop catalog that has the columns of the tables here."""
    table = metadata.parents[1]
    gateway = JavaGateway.launch_gateway(
        classpath=":".join(_classpath()),
        javaopts=[
            f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in (*_OPENED, *_OPENED_UTIL)
        ],
        die_on_exit=True,
    )
    api = gateway.jvm.org.apache.flink.table.api
    flink = api.TableEnvironment.create(api.EnvironmentSettings.inBatchMode())
    flink.getConfig().set("table.local-time-zone", "UTC")
    flink.executeSql(
        "CREATE CATALOG readers WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop',"
        f" 'warehouse' = 'file://{table.parents[1]}')"
    )
    columns = ", ".join(_COLUMNS)
    name = f"readers.`{table.parent.name}`.`{table.name}`"
    rows = flink.executeSql(f"SELECT {columns} FROM {name}").collect()
    found = []
    while rows.hasNext():
        row = rows.next()
        found.append(_values(*(row.getField(number) for number in range(len(_COLUMNS)))))
    return pa.Table.from_pylist(found)


def _values(number: int, name: str | None, price: str, day: str, at: str) -> dict[str, object]:
    instant = datetime.fromisoformat(at).replace(tzinfo=timezone.utc)
    return {
        "id": number,
        "name": name,
        "price": Decimal(price),
        "day": date.fromisoformat(day),
        "at": instant,
    }


def _classpath() -> list[str]:
    """Name the jars of Flink's wheel, of Iceberg, and of Hadoop and Py4J, which Spark brings."""
    found = [*_jars("pyflink", "lib/*.jar")]
    for pattern in ("hadoop-client-*.jar", "py4j-*.jar"):
        found += _jars("pyspark", f"jars/{pattern}")
    return [*map(str, found), *resolved(_RUNTIME)]


def _jars(package: str, pattern: str) -> list[Path]:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return [jar for folder in spec.submodule_search_locations for jar in Path(folder).glob(pattern)]
