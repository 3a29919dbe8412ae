"""A Delta table on S3 whose file is in another bucket, by Spark: refused until that is named.

Run as a program, with a `Place`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from delvec import DeltaTable
from delvec.errors import FormatError
from tests.s3.session import Place, place_of_arguments

URI = "s3a://lake/crossing"


def settings_of(bucket: str, place: Place) -> dict[str, str]:
    return {
        key.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}."): value
        for key, value in place.hadoop.items()
    }


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except FormatError as error:
        return "no credentials were given" in str(error)
    return False


def main(place: Place) -> None:
    spark = replace(place, hadoop=settings_of("lake", place)).session()
    table = DeltaTable.for_path(spark, URI)
    found = [refused(table.to_df), refused(table.to_arrow), refused(table.purge)]
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in settings_of("other", place).items():
        configuration.set(key, value)
    named = DeltaTable.for_path(spark, URI)
    rows = [named.to_df().count(), named.to_arrow().num_rows]
    # Tasks of Python have no Hadoop configuration: they get what the driver found.
    spark.conf.set("spark.delvec.scan.vectorMemory", "0")
    rows.append(named.to_df().count())
    print(json.dumps({"refused": found, "rows": rows}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(place_of_arguments())
