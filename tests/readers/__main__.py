"""Read converted tables with all readers, and write into docs/conversion.md what they gave."""

from __future__ import annotations

import tempfile
from pathlib import Path

import delvec
from tests.readers.matrix import PAGE, see, with_table
from tests.spark.jars import resolved_jars

CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = delvec.session(
            Path(folder) / "lake",
            conf={
                "spark.jars": ",".join(resolved_jars()),
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": CATALOG,
                "spark.sql.shuffle.partitions": "2",
                "spark.ui.enabled": "false",
            },
        )
        seen = see(spark, Path(folder))
        spark.stop()
    PAGE.write_text(with_table(PAGE.read_text(), seen))


if __name__ == "__main__":
    main()
