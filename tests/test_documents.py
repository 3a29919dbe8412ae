"""`delvec.documents`: numbers, sizes, durations and times as people and tables write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from delvec.documents import duration_seconds, parse_time, shown_time, size_bytes, time_ms
from delvec.errors import InvalidArgumentError

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 24 * HOUR),
        ("1970-01-01 01:00", HOUR),
        ("1970-01-01T01:00:00", HOUR),
        (" 1970-01-01 00:00:01.5 ", 1500),
        ("1970-01-01T01:00:00Z", HOUR),
        ("1970-01-01T01:00z", HOUR),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+0100", 0),
        ("1970-01-01T01:00:00-01", 2 * HOUR),
        ("1970-01-01T24:00:00", None),
        ("1970-02-29", None),
        ("1970-01-01Z", None),
        ("1970-01-01T00:00:00+19:00", None),
        ("\u0661970-01-01", None),
        ("yesterday", None),
        ("", None),
        ("1706702400", None),
    ],
)
def test_a_time_is_read_in_one_way(text: str, expected: int | None) -> None:
    if expected is None:
        assert parse_time(text) is None
        with pytest.raises(InvalidArgumentError, match="is no timestamp"):
            time_ms(text)
    else:
        assert time_ms(text) == expected


@pytest.mark.parametrize("wrong", [17, 1.5, None, timedelta(1), datetime(1970, 1, 1).date()])  # noqa: DTZ001
def test_what_is_no_time_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgumentError, match="is no timestamp"):
        time_ms(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["+02:00", "GMT+2", "UTC+0200", "Etc/GMT-2"])
def test_zones_of_java_are_known(zone: str) -> None:
    clock = datetime(1970, 1, 1, 2)  # noqa: DTZ001
    assert time_ms("1970-01-01 02:00:00", zone) == 0
    assert time_ms(clock, zone) == 0
    assert time_ms(clock.replace(tzinfo=timezone.utc), zone) == 2 * HOUR
    with pytest.raises(InvalidArgumentError, match="no time zone 'Mars'"):
        time_ms(clock, "Mars")


def test_the_first_and_the_last_time_of_python_have_milliseconds() -> None:
    first, last = datetime.min, datetime.max  # noqa: DTZ901
    assert time_ms(first, "+02:00") < time_ms("0001-01-01", "+01:00") < 0
    assert time_ms("9999-12-31 23:59:59.999", "-02:00") == time_ms(last, "-02:00")


def test_times_out_of_range_are_shown() -> None:
    assert shown_time(0) == "1970-01-01 00:00:00.000+00:00"
    assert shown_time(2**62) == f"{2**62} ms after 1970"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", 100),
        ("64b", 64),
        (" 2 KiB ", 2048),
        ("1G", 1 << 30),
        ("1pb", 1 << 50),
        ("-1", None),
        ("1.5m", None),
        ("\u0662m", None),
        ("9" * 5000, None),
        ("many", None),
        ("", None),
    ],
)
def test_sizes(text: str, expected: int | None) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30.0),
        ("500ms", 0.5),
        ("1.5 M", 90.0),
        (".5h", 1800.0),
        ("2min", 120.0),
        ("3 sec", 3.0),
        ("1d", 86400.0),
        ("\u0663s", None),
        ("9" * 5000, None),
        ("1y", None),
        ("", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert duration_seconds(text) == expected
