"""Which snapshots, tags and branches expire, by metadata that is made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from delvec.conversion.clean_target import retention_of
from delvec.conversion.expiry import Expiry, Retention, plan_expiry
from delvec.conversion.planning.target_layout import SOURCE_ID, SOURCE_VERSION
from delvec.errors import PlanError
from delvec.iceberg.client.metadata import IcebergSnapshot, Ref, TableMetadata

HOUR = 3600 * 1000
DAY = 24 * HOUR
NOW = 100 * DAY
STAGING = "delvec-convert-" + "1" * 32


def snapshot(number: int, parent: int | None, age: int, *, ours: bool = True) -> IcebergSnapshot:
    summary = {SOURCE_ID: "source", SOURCE_VERSION: str(number)} if ours else {}
    return IcebergSnapshot(number, parent, NOW - age, summary, 0)


def table(
    *snapshots: IcebergSnapshot, properties: Mapping[str, str] | None = None, **refs: Ref
) -> TableMetadata:
    known = {SOURCE_ID: "source", **(properties or {})}
    named = {
        STAGING if name == "staging" else name.replace("_", "-"): ref for name, ref in refs.items()
    }
    made = {each.id: each for each in snapshots}
    return TableMetadata("u", "/t", 3, known, {"schema-id": 0}, {}, 1, {}, {}, made, named)


def branch(number: int, **how: int) -> Ref:
    return Ref(number, is_branch=True, **how)


def tag(number: int) -> Ref:
    return Ref(number, is_branch=False)


def retention(older: int | None = None, last: int | None = None) -> Retention:
    return Retention(NOW, None if older is None else NOW - older, last, NOW - 3 * DAY)


# A day apart, the newest an hour old: 5 is 4 days and an hour old, 1 is the oldest.
LINE = [
    snapshot(number, number - 1 if number > 1 else None, (9 - number) * DAY + HOUR)
    for number in range(1, 10)
]


def line(*more: IcebergSnapshot, **choices: Any) -> TableMetadata:  # noqa: ANN401
    """Make a table with the snapshots of `LINE`, as far as its head goes, and more."""
    head = choices.pop("head", 9)
    return table(*LINE[:head], *more, **{"main": branch(head), **choices})


def staged(*numbers: int, age: int = HOUR) -> list[IcebergSnapshot]:
    return [snapshot(number, number - 1 or None, age) for number in numbers]


NOT_OURS = [snapshot(number, number - 1, 0, ours=False) for number in (10, 11)]
KEEP = "history.expire.min-snapshots-to-keep"
BEFORE_HEAD = tuple(range(1, 9))
WENT_BACK = (snapshot(1, None, 9 * DAY), snapshot(2, 1, HOUR), snapshot(3, 2, 8 * DAY))
ODD_NAMES = (snapshot(10, 9, 25 * HOUR), snapshot(11, 9, 25 * HOUR, ours=False))
DEAD = (snapshot(10, 8, 25 * HOUR), snapshot(11, 10, 25 * HOUR))
DIED = staged(1, age=25 * HOUR)
OLD_SCHEMA = [replace(each, schema_id=1) for each in LINE[:5]]
NEW_SCHEMA = (snapshot(6, 5, 5 * DAY), snapshot(7, 6, 4 * DAY))
TAGS = {"mine": tag(2), "delta_version_x": tag(3), "delta_version_7": tag(4)}
VERSIONS = {"delta_version_2": tag(2), "delta_version_8": tag(8)}
# What a table has, what is asked, and what expires: snapshots, tags, branches.
CASES: dict[str, tuple[TableMetadata, Retention, Expiry]] = {
    "not asked": (line(), retention(), Expiry()),
    "by age": (line(), retention(5 * DAY), Expiry((1, 2, 3, 4))),
    "by number": (line(), retention(last=7), Expiry((1, 2))),
    "both have to allow it": (line(), retention(5 * DAY, 7), Expiry((1, 2))),
    "the current one stays": (line(), retention(0), Expiry(BEFORE_HEAD)),
    "what the table sets": (
        *(table(*LINE, main=branch(9), properties={KEEP: "8"}), retention(0)),
        Expiry((1,)),
    ),
    "what a branch sets": (line(main=branch(9, min_snapshots=8)), retention(0, 2), Expiry((1,))),
    "an age that a branch sets": (
        *(line(main=branch(9, max_age_ms=5 * DAY)), retention(0)),
        Expiry((1, 2, 3, 4)),
    ),
    "back to the last conversion": (
        *(line(*NOT_OURS, main=branch(11)), retention(0)),
        Expiry(BEFORE_HEAD),
    ),
    "tags of others": (line(**TAGS), retention(0), Expiry((1, 5, 6, 7, 8))),
    "branches of others": (line(mine=branch(4)), retention(last=2), Expiry((1, 2, 5, 6, 7))),
    "tags of versions": (
        *(line(**VERSIONS), retention(last=2)),
        Expiry((1, 2, 3, 4, 5, 6, 7), ("delta-version-2",)),
    ),
    "the tag of a version on a snapshot that another tag keeps": (
        *(line(delta_version_2=tag(2), mine=tag(2)), retention(last=8)),
        Expiry((1,)),
    ),
    "a clock that went back leaves no gap": (
        *(table(*WENT_BACK, main=branch(3)), retention(DAY)),
        Expiry((1,)),
    ),
    "rolled back, young": (line(snapshot(6, 5, 2 * DAY), head=5), retention(last=5), Expiry()),
    "rolled back, old": (line(snapshot(6, 5, 4 * DAY), head=5), retention(last=5), Expiry((6,))),
    "rolled back, not old enough": (
        *(line(snapshot(6, 5, 4 * DAY), head=5), retention(5 * DAY, 5)),
        Expiry(),
    ),
    "a conversion that runs": (
        *(line(*staged(10), staging=branch(10)), retention(0)),
        Expiry(BEFORE_HEAD),
    ),
    "all that a conversion that runs has staged": (
        *(line(*staged(10, 11, 12), staging=branch(12)), retention(last=1)),
        Expiry(BEFORE_HEAD),
    ),
    "a first conversion that runs": (
        *(table(*staged(1, 2, 3), staging=branch(3)), retention(last=1)),
        Expiry(),
    ),
    "branches of others with such a name": (
        *(line(*ODD_NAMES, delvec_convert_mine=branch(10), staging=branch(11)), retention()),
        Expiry(),
    ),
    "a conversion that died": (
        *(line(*DEAD, staging=branch(11)), retention()),
        Expiry((10, 11), (), (STAGING,)),
    ),
    "a first conversion that died": (
        *(table(*DIED, staging=branch(1)), retention()),
        Expiry((1,), (), (STAGING,)),
    ),
    "a tag of others on a dead conversion": (
        *(table(*DIED, staging=branch(1), mine=tag(1)), retention()),
        Expiry((), (), (STAGING,)),
    ),
    "rolled back to before the current schema": (
        *(table(*OLD_SCHEMA, *NEW_SCHEMA, main=branch(5)), retention(last=5)),
        Expiry((6,)),
    ),
    "nothing there": (table(), retention(0), Expiry()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_expires(case: str) -> None:
    metadata, asked, expected = CASES[case]
    # Snapshots of the same age are in the order of their ids.
    assert plan_expiry(metadata, asked) == expected


def test_a_number_of_snapshots_that_is_none_is_named() -> None:
    metadata = table(*LINE, main=branch(9), properties={KEEP: "many"})
    with pytest.raises(PlanError, match=f"{KEEP}.*'many'") as refused:
        plan_expiry(metadata, retention(0))
    assert "retain_last" in str(refused.value.hint)
    assert plan_expiry(metadata, retention(0, 8)) == Expiry((1,))


def test_metadata_names_the_files_it_refers_to() -> None:
    document: dict[str, Any] = {
        "table-uuid": "u",
        "location": "/t",
        "format-version": 2,
        "schemas": [{"schema-id": 0}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0}],
        "default-spec-id": 0,
        "last-column-id": 1,
        "refs": {"main": {"snapshot-id": 1, "type": "branch", "min-snapshots-to-keep": 4}},
        "snapshots": [
            {"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": "file:/t/metadata/snap-1.avro"}
        ],
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": "/t/metadata/v1.metadata.json"}],
        "statistics": [{"snapshot-id": 1, "statistics-path": "/t/metadata/1.stats"}],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": "/t/metadata/p.parquet"}],
    }
    found = TableMetadata.from_json(json.dumps(document), "/t/metadata/v2.metadata.json")
    assert found.file_names == {
        "snap-1.avro",
        "v1.metadata.json",
        "v2.metadata.json",
        "1.stats",
        "p.parquet",
    }
    assert found.refs["main"] == Ref(1, is_branch=True, min_snapshots=4)


def test_a_time_without_a_zone_is_one_of_the_session() -> None:
    clock = datetime(1970, 1, 1, 2)  # noqa: DTZ001
    for zone, expected in (("+02:00", 0), ("UTC", 7_200_000)):
        assert retention_of(clock, None, timedelta(days=3), zone).older_than_ms == expected
    ago = retention_of(timedelta(days=999_999_999), None, timedelta(days=3))
    assert ago.older_than_ms is not None
    assert ago.older_than_ms < 0
