"""Row tracking: base row ids of new files, above the high-water mark of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.skipping.statistics import record_count
from delvec.documents import parse_json
from delvec.errors import FormatError, PlanError

ROW_TRACKING_DOMAIN: Final = "delta.rowTracking"
"""The metadata domain that holds the high-water mark of row ids."""
_NAMES: Final = (Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN)


def materialized_columns(metadata: Metadata) -> tuple[str, str] | None:
    """Return the columns that hold ids and versions of copied rows; None without row tracking."""
    if not metadata.is_on(Property.ENABLE_ROW_TRACKING):
        return None
    names = tuple(metadata.configuration.get(key) for key in _NAMES)
    if None in names:
        raise FormatError(
            "row tracking is on but the table does not name its materialized columns",
            expected=" and ".join(_NAMES),
            found=names,
        )
    fields = metadata.schema.fields
    taken = {name.lower() for each in fields for name in (each.name, each.physical_name)}
    if len({str(name).lower() for name in names} - taken) < len(names):
        raise FormatError(
            "the materialized columns of row tracking have the names of other columns",
            found=str(names)[:200],
            hint="set others by the properties that name them",
        )
    return str(names[0]), str(names[1])


def high_water_mark(configuration: str | None) -> int:
    """Return the highest row id assigned so far, -1 if there is none.

    >>> high_water_mark('{"rowIdHighWaterMark":41}')
    41
    """
    if configuration is None:
        return -1
    try:
        value = parse_json(configuration, f"the domain {ROW_TRACKING_DOMAIN}")["rowIdHighWaterMark"]
    except (ValueError, LookupError, TypeError):
        value = None
    if type(value) is not int or value < -1:
        raise FormatError(
            f"the domain {ROW_TRACKING_DOMAIN} does not hold a high-water mark",
            expected='{"rowIdHighWaterMark": a number}',
            found=configuration[:80],
        )
    return value


def assign_row_ids(
    adds: Sequence[dict[str, Any]], mark: int, version: int
) -> tuple[list[dict[str, Any]], int]:
    """Assign base row ids above the high-water mark to files without, and return the new mark.

    Files without ids are new, or older than the table feature.
    """
    numbered = list(adds)
    for number, body in enumerate(adds):
        if body.get("baseRowId") is None:
            rows = record_count(body.get("stats"))
            if rows is None:
                raise PlanError(f"{body['path']} has no numRecords, which row tracking needs")
            ids = {"baseRowId": mark + 1, "defaultRowCommitVersion": version}
            numbered[number] = {**body, **ids}
            mark += rows
    return numbered, mark
