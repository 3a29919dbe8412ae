"""`delvec.documents`: numbers, sizes, durations and times as people and tables write them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from delvec.documents import duration_seconds, parse_time, shown_time, size_bytes, time_ms
from delvec.errors import InvalidArgumentError

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (text, HOUR)
            for text in ("1970-01-01 01:00", "1970-01-01T01:00:00", "1970-01-01T01:00z")
        ),
        *(("1970-01-02", 24 * HOUR), (" 1970-01-01 00:00:01.5 ", 1500)),
        *(("1970-01-01T01:00:00Z", HOUR), ("1970-01-01T01:00:00-01", 2 * HOUR)),
        *(("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T01:00:00+0100", 0)),
        *(
            (text, None)
            for text in ("1970-01-01T24:00:00", "1970-02-29", "1970-01-01Z", "yesterday")
        ),
        *((text, None) for text in ("1970-01-01T00:00:00+19:00", "\u0661970-01-01", "")),
        *((wrong, None) for wrong in (17, 1.5, None, timedelta(1), date(1970, 1, 1), "1706702400")),
    ],
)
def test_a_time_is_read_in_one_way(text: Any, expected: int | None) -> None:  # noqa: ANN401
    if expected is not None:
        assert time_ms(text) == expected
        return
    assert not isinstance(text, str) or parse_time(text) is None
    with pytest.raises(InvalidArgumentError, match="is no timestamp"):
        time_ms(text)


@pytest.mark.parametrize("zone", ["+02:00", "GMT+2", "UTC+0200", "Etc/GMT-2"])
def test_zones_of_java_are_known(zone: str) -> None:
    clock = datetime(1970, 1, 1, 2)  # noqa: DTZ001
    assert time_ms("1970-01-01 02:00:00", zone) == time_ms(clock, zone) == 0
    assert time_ms(clock.replace(tzinfo=timezone.utc), zone) == 2 * HOUR
    with pytest.raises(InvalidArgumentError, match="no time zone 'Mars'"):
        time_ms(clock, "Mars")


def test_the_first_and_the_last_time_are_read_and_shown() -> None:
    first, last = datetime.min, datetime.max  # noqa: DTZ901
    assert time_ms(first, "+02:00") < time_ms("0001-01-01", "+01:00") < 0
    assert time_ms("9999-12-31 23:59:59.999", "-02:00") == time_ms(last, "-02:00")
    assert shown_time(0) == "1970-01-01 00:00:00.000+00:00"
    assert shown_time(2**62) == f"{2**62} ms after 1970"


def test_sizes_and_durations_have_units_and_what_is_none_is_not_guessed() -> None:
    sizes = {"100": 100, "64b": 64, " 2 KiB ": 2048, "1G": 1 << 30, "1pb": 1 << 50}
    no_sizes = dict.fromkeys(("-1", "1.5m", "\u0662m", "9" * 5000, "many", ""))
    assert {text: size_bytes(text) for text in (*sizes, *no_sizes)} == sizes | no_sizes
    durations = {"30": 30.0, "500ms": 0.5, "1.5 M": 90.0, ".5h": 1800.0, "2min": 120.0}
    durations |= {"3 sec": 3.0, "1d": 86400.0}
    none = dict.fromkeys(("\u0663s", "9" * 5000, "1y", "", "s", "1e3", "1s2m", "inf", "nan"))
    assert {text: duration_seconds(text) for text in (*durations, *none)} == durations | none
