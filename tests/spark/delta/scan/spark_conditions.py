"""Random conditions in SQL over one set of columns, and rows on which they differ."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from math import inf, nan
from typing import Any

from hypothesis import strategies as st

TIME_ZONE = "America/New_York"
COLUMNS = (
    "id BIGINT, i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, b BOOLEAN, day DATE, at TIMESTAMP,"
    " ntz TIMESTAMP_NTZ, dec DECIMAL(10, 2), n STRUCT<a: INT, t: STRING>, bin BINARY,"
    " pi INT, ps STRING, pd DATE, pt TIMESTAMP"
)
PARTITION_COLUMNS = ("pi", "ps", "pd", "pt")
_DOUBLES = (nan, inf, -inf, -0.0, 0.0, 1.5, -2.25, None, 1e300)
_FLOATS = (0.1, None, -0.3, nan, 2.5, 16777217.0)
_TEXTS = (
    None,
    "",
    "a",
    "ab",
    "Abc",
    "ä",
    "zebra",
    "😀x",
    "a%b",
    "￿",
    "the same thirty-two characters..",
)
_DAY = date(2019, 12, 20)
_NOON = datetime(2019, 12, 31, 23, 59, 58, 999_600, tzinfo=timezone.utc)


def row(number: int) -> dict[str, Any]:
    """Give a row: its values drift with the number, so that files of neighbours differ."""
    is_null = number % 11 == 0
    moment = _NOON + timedelta(hours=number // 3, microseconds=number)
    part = number % 6
    return {
        "id": number,
        "i": None if is_null or number % 13 == 5 else number - 100 + number % 3,
        "l": None if number % 5 == 0 else (number - 60) * 10**10,
        "f": _FLOATS[number % len(_FLOATS)],
        "d": _DOUBLES[number % 9] if number % 2 else number / 8 - 10,
        "s": _text(number),
        "b": (None, True, False)[number // 20 % 3],
        "day": None if is_null else _DAY + timedelta(days=number // 6),
        "at": None if number % 17 == 2 else moment,
        "ntz": None if is_null else moment.replace(tzinfo=None),
        "dec": None if number % 8 == 1 else Decimal(number * 25 - 1500) / 100,
        "n": None if number % 9 == 4 else {"a": number if number % 4 else None, "t": _text(number)},
        "bin": None if is_null else bytes([number % 256, 0]),
        "pi": (None, 0, 1, 1, 2, -5)[part],
        "ps": ("a", None, "a", "ä b/%", "B", "a%")[part],
        "pd": (_DAY, _DAY, None, _DAY + timedelta(9), _DAY + timedelta(9), date(1969, 7, 20))[part],
        "pt": (_NOON, None, _NOON, None, _NOON + timedelta(days=9), None)[part],
    }


def _text(number: int) -> str | None:
    if number % 4 == 0:
        return f"{number // 30:02d}" + "x" * 32 + str(number)  # longer than statistics keep
    return _TEXTS[number % len(_TEXTS)]


_NUMBERS = ("i", "l", "d", "dec", "n.a", "pi", "id")
_STRINGS = ("s", "ps", "n.t")
_DATES = ("day", "pd")
_MOMENTS = ("at", "ntz", "pt")
_NUMBER_LITERALS = st.sampled_from(
    ["-100", "-5", "0", "1", "2", "7", "50", "99", "2147483648", "-30000000000", "1.5D", "-2.25",
     "0.1D", "double('NaN')", "double('Infinity')", "CAST(NULL AS INT)", "1Y", "123.456"]
)  # fmt: skip
_STRING_LITERALS = st.sampled_from(
    ["'a'", "'A'", "'ab'", "''", "'ä'", "'zebra'", "'02xxx'", "'a%'", "'B'", "'😀'", "'￿'", "NULL",
     "concat('02', repeat('x', 32))", "'the same thirty-two characters..'", "'ä b/%'"]
)  # fmt: skip
_DATE_LITERALS = st.sampled_from(
    ["DATE'2019-12-20'", "DATE'2019-12-29'", "DATE'2020-01-05'", "'2020-01-15'", "DATE'1969-07-20'",
     "DATE'9999-12-31'", "CAST(NULL AS DATE)", "date_add(DATE'2020-01-01', 3)"]
)  # fmt: skip
_MOMENT_LITERALS = st.sampled_from(
    ["TIMESTAMP'2019-12-31 18:59:58.9996'", "TIMESTAMP'2020-01-01 00:00:00Z'",
     "TIMESTAMP_NTZ'2020-01-01 10:59:58.999636'", "DATE'2020-01-01'", "CAST(NULL AS TIMESTAMP)",
     "TIMESTAMP'2020-01-01 12:00:00'", "'2020-01-02 00:00:00'",
     "TIMESTAMP_NTZ'2019-12-31 23:59:59'"]
)  # fmt: skip
_OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])


def _compared(columns: tuple[str, ...], literals: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    column = st.sampled_from(columns)
    short = st.lists(literals, min_size=1, max_size=4)
    long = st.lists(literals, min_size=12, max_size=15)
    no = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds("{} {} {}".format, column, _OPERATORS, literals),
        st.builds("{} {} {}".format, literals, _OPERATORS, column),
        st.builds("{} {}BETWEEN {} AND {}".format, column, no, literals, literals),
        st.builds("{} IS {}NULL".format, column, no),
        st.builds(lambda c, n, v: f"{c} {n}IN ({', '.join(v)})", column, no, short | long),
        st.builds("coalesce({0}, {1}) {2} {1}".format, column, literals, _OPERATORS),
        st.builds("nullif({}, {}) IS NULL".format, column, literals),
    )


_FUNCTIONS = r"""
upper(s) = 'A'; length(s) > 3; substring(s, 1, 2) = '02'; s LIKE 'a%'; n.t LIKE '%x%'
s NOT LIKE '0%'; startswith(ps, 'a'); NOT startswith(s, '02'); ps LIKE 'a\%%'; s LIKE ''
s RLIKE '^[a-z]+$'; endswith(s, 'b'); s || 'x' = 'ax'; lower(ps) IN ('a', 'b'); contains(s, 'b')
octet_length(s) = 2; s < concat(ps, 'b'); ps ILIKE 'b'; trim(s) = ''; abs(i) > 50; i + 1 > 50
i % 3 = 0; -i < 3; i * 2 = pi; i < l; i > pi; pi = id % 3; abs(pi) = 5; pi + 1 = 2; pi * pi = 25
CAST(pi AS STRING) = '1'; CAST(pi AS DOUBLE) < 0.5; CAST(i AS STRING) LIKE '1%'
CAST(i AS BIGINT) > 50; CAST(i AS BIGINT) < 3000000000; CAST(l AS DOUBLE) > 1e11
try_cast(d AS INT) = 1; try_cast(ps AS INT) IS NULL; CAST(i AS DECIMAL(20, 3)) = 5.000
CAST(i AS BYTE) = 1 OR i IS NULL; CAST(id AS BYTE) > 100; isnan(d); d > 1e299; d = 0; d <= -0.0D
f = 0.1; f > 0.1D; f = float(0.1); f < -0.2; isnan(f); f >= float('NaN'); NOT f < 2.5
floor(d) = 1; round(dec, 0) = 1; dec % 1 = 0; dec > 1.255; dec IN (0.25, -15, 3.5)
CAST(dec AS INT) BETWEEN -2 AND 2; dec = i; b; NOT b; b = true; b <=> false; b IS NULL
b != (pi = 1); b IN (true, NULL); b > false; year(day) = 2019; month(pd) = 12; day = pd
datediff(day, pd) > 5; date_add(day, 1) > DATE'2020-01-05'
CAST(day AS STRING) LIKE '2020-01-0%'; pd > day; day + INTERVAL 1 DAY < pd
trunc(day, 'MM') = '2020-01-01'; CAST(pd AS TIMESTAMP) < TIMESTAMP'2019-12-25 00:00:00'
dayofweek(pd) = 1; date(at) = DATE'2020-01-01'; hour(at) = 3; hour(pt) = 18; at = pt; at > ntz
unix_micros(at) % 2 = 0; at > DATE'2020-01-01'; CAST(ntz AS DATE) = '2020-01-01'
pt IS NULL OR at < pt; CAST(pt AS DATE) = DATE'2019-12-31'
date_trunc('HOUR', at) = TIMESTAMP'2020-01-01 05:00:00'; at + INTERVAL 1 HOUR > pt; n IS NULL
n.a IS NULL; n = named_struct('a', 50, 't', 'a'); n.a + pi > 20; coalesce(n.a, -1) = -1
bin = X'0500'; bin > X'64'; bin IS NULL; octet_length(bin) = 2; bin IN (X'0100', X'0200')
if(b, i, l) > 0; CASE WHEN pi = 1 THEN s = 'a' WHEN ps = 'a' THEN true ELSE i > 0 END
coalesce(pi, i, -1) = -1; (pi, ps) IN ((1, 'a'), (2, 'B')); (i, pi) = (5, 1); hash(id) % 3 = 0
greatest(i, pi) > 1; least(pi, 0) = 0; array_contains(array(1, 2), pi); pi IN (i, 1)
i IN (pi, id - 100); pi IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, NULL)
pi NOT IN (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, NULL); pd IN (DATE'2019-12-20', DATE'1969-07-20')
pt IN (TIMESTAMP'2019-12-31 18:59:58.9996', NULL); true; false; NULL; 1 = 1; id >= 0; id < 0
NOT (id < 0 OR NULL); xxhash64(s) > 0 AND s > ''
"""

_LEAVES = st.one_of(
    _compared(_NUMBERS, _NUMBER_LITERALS),
    _compared(_STRINGS, _STRING_LITERALS),
    _compared(_DATES, _DATE_LITERALS),
    _compared(_MOMENTS, _MOMENT_LITERALS),
    st.sampled_from(re.split(r"; |\n", _FUNCTIONS.strip())),
)


def conditions() -> st.SearchStrategy[str]:
    """Give conditions of all kinds, joined by AND, OR and NOT."""
    return st.recursive(
        _LEAVES,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
            st.builds("({}) IS NULL".format, inner),
            st.builds("coalesce({}, false)".format, inner),
            st.builds("({}) <=> ({})".format, inner, inner),
        ),
        max_leaves=5,
    )
