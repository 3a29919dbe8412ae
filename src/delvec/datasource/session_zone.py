"""The session's time zone and fence, as far as Spark tells them to Python workers.

Tasks have the settings that were set explicitly in the session as local properties. The processes
that plan a read have none of them, in Spark 4.0 to 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from delvec.datasource.options import names_zone
from delvec.delta.schema.partition_values import is_null_text
from delvec.delta.schema.types import PrimitiveType
from delvec.errors import InvalidArgumentError
from delvec.storage.fence import ALLOWED_PATHS, lists_of

if TYPE_CHECKING:
    from delvec.storage import Storage

__all__ = ["ZONE_HINT", "fenced_in_task", "lacks_zone", "zone_of_task"]

_SETTING: Final = "spark.sql.session.timeZone"
_TIMESTAMP: Final = PrimitiveType("timestamp")
ZONE_HINT: Final = f'set the option timeZone to spark.conf.get("{_SETTING}")'


def lacks_zone(text: str | None) -> bool:
    """Return whether a partition value is a timestamp that names no zone.

    >>> lacks_zone("2026-01-31 10:00:00"), lacks_zone("2026-01-31T09:00:00.000000Z")
    (True, False)
    """
    return bool(text) and not is_null_text(str(text), _TIMESTAMP) and not names_zone(str(text))


def fenced_in_task(storage: Storage) -> Storage:
    """Return the storage with the fence of the session, if it has one; called in a task."""
    context = TaskContext.get()
    text = context.getLocalProperty(ALLOWED_PATHS) if context is not None else None
    return storage if text is None else storage.narrowed(lists_of(text)[0])


def zone_of_task(table: str) -> str:
    """Return the session's time zone; called in a task.

    Raises:
        InvalidArgumentError: The session has not set it, and uses the zone of its JVM.
    """
    context = TaskContext.get()
    zone = context.getLocalProperty(_SETTING) if context is not None else None
    if not zone:
        raise InvalidArgumentError(
            f"a partition column of {table} has timestamps without a zone, and the session does not"
            f" set {_SETTING}",
            hint=f'set {_SETTING} in the session, as to "UTC", or {ZONE_HINT}',
        )
    return zone
