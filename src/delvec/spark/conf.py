"""Settings of a running session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.storage.fence import ALLOWED_PATHS, lists_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["allowed_paths", "bytes_setting", "time_zone"]

_SIZE: Final = re.compile(r"(\d+)\s*(?:([bkmgt])(?:i?b)?)?")
_SHIFTS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def time_zone(spark: SparkSession) -> str:
    """Return the time zone of a session; Java's short names, such as PST, in full."""
    name: str = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    if not jvm.is_classic(spark):
        return name
    zones = jvm.java_class(spark, "java.time.ZoneId")
    return str(zones.SHORT_IDS.get(name) or name)


def allowed_paths(spark: SparkSession) -> list[str] | None:
    """Return the prefixes that tables may lead to outside of their folders; None without a fence.

    An empty setting allows none.
    """
    found = lists_of(spark.conf.get(ALLOWED_PATHS, None))
    return found[0] if found else None


def bytes_setting(spark: SparkSession, key: str, default: str | None = None) -> int:
    """Return a setting of the session that is a size, such as `256m`, in bytes."""
    value = (spark.conf.get(key, default) if default else spark.conf.get(key)) or ""
    parts = _SIZE.fullmatch(value.strip().lower())
    if parts is None:
        raise InvalidArgumentError(
            f"{key} is {value!r}, which is not a size", hint="write 256m, or 1g"
        )
    return int(parts[1]) << _SHIFTS[parts[2] or "b"]
