"""Which expressions of a table become columns of Spark, and which are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, get_args

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import types as spark_types

from delvec.delta.schema.expressions import (
    ALLOWED_FUNCTIONS,
    Kind,
    StoredExpression,
    allowed_functions,
)
from delvec.delta.schema.types import StructType
from delvec.errors import DelvecError, InvalidArgumentError, UnsupportedFeatureError
from delvec.spark.delta.write.stored_expressions import stored_column
from delvec.spark.types import schema_of, table_schema

pytestmark = pytest.mark.spark

DDL: Final = (
    "id bigint, n int, b boolean, d double, c decimal(10,2), name string, data binary, day date,"
    " ts timestamp, local timestamp_ntz, s struct<x:int,y:struct<z:string>>, a array<int>,"
    " words array<string>, m map<string,int>, items array<struct<k:string,v:int>>, `a.b` int,"
    " `current_date` int"
)

HONEST = """
n + 1; -n; n - id * d / 2 % 3; n div 2; n & 1 | 2 ^ ~n; n << 1; n >> 1; n >>> 1; mod(n, 2); n % 2
n > 0 and b or not b; n = 1; n == 1; n <> 1; n != 1; n <=> id; n in (1, 2); n not in (1, 2); !b
n between 1 and 2; n not between 1 and 2; name like 'x%'; name ilike 'x%'; name rlike '^x+$'
name like 'x!%' escape '!'; name like any ('x', 'y'); name not like all ('x'); name ilike any ('x')
n is null; n is not null; b is true; b is not false; b is unknown; n is distinct from id
case when b then n else id end; case n when 1 then 'a' end; if(b, n, id); if(not b, 1, 2)
cast(ts as date); try_cast(name as int); name::int; date(ts); string(n); int('1'); name || '-x'
a[0]; a[n]; s.x; s.y.z; s['x']; m['k']; m.k; items[0].k; items.k; (s).x; `a.b` + 10; `id` + 1
struct(n, id); struct(n as x); named_struct('a', n); (n, id); array(1, n); map('a', n)
date'2020-01-01'; timestamp'2020-01-01 00:00:00'; interval '1' day; day + interval 1 month
ts - interval '1 02' day to hour; x'1F'; 1.5; 1.5BD; 1e3; 1L; null; true; 'it''s'; "str"; 'a' 'b'
extract(year from ts); date_part('year', ts); position('a' in name); trim(both 'x' from name)
substring(name from 1 for 2); overlay(name placing 'x' from 1); timestampadd(MONTH, 1, ts)
timestampdiff(MONTH, ts, ts); dateadd(MONTH, 1, ts); datediff(DAY, ts, ts); date_add(day, 1)
year(ts); month(ts); day(ts); hour(ts); make_date(year(ts), month(ts), 1); trunc(day, 'MM')
date_trunc('month', ts); date_format(ts, 'yyyy-MM'); to_date(name); to_date(name, 'yyyy')
to_timestamp(name); unix_timestamp(ts); from_unixtime(id); weekofyear(day); last_day(day)
make_timestamp(year(ts), month(ts), day(ts), hour(ts), 0, 0); months_between(ts, ts); hash(n)
hash(`a.b`); xxhash64(n, name); md5(name); sha2(name, 256); crc32(data); pmod(hash(id), 16)
concat(name, 'y'); CONCAT(name, 'y'); concat_ws('-', name, 'x'); length(name) < 10; lower(name)
upper(name); substring(name, 1, 2); substr(name, 1); left(name, 1); replace(name, 'x'); trim(name)
regexp_replace(name, 'x', 'y'); regexp_extract(name, '(x)', 1); split(name, ',')[0]; lpad(name, 3)
coalesce(n, 0); nvl(n, 0); nullif(n, 0); greatest(n, 1); least(n, 1); isnull(n); ifnull(n, 1)
n + cast(isnull(id) as int); abs(n); round(d, 2); floor(d); ceil(d); sqrt(d); pow(d, 2); log(10, d)
size(a) = 3; array_size(words) > 0; array_contains(a, 1); array_size(array_compact(words)) > 0
array_append(words, 'x'); array_insert(words, 1, 'z'); element_at(a, 1); sort_array(a)
slice(a, 1, 2); transform(a, x -> x + n); filter(a, (x, i) -> i > 0); exists(a, x -> x > 0)
forall(a, x -> x > 0); aggregate(a, 0, (total, x) -> total + x)
transform(words, w -> transform(a, x -> w || x || name)); transform_values(m, (k, v) -> v + 1)
map_filter(m, (k, v) -> v > n); zip_with(a, a, (x, y) -> x * y); transform(items, i -> i.v + s.x)
array_sort(a, (l, r) -> l - r); reduce(a, 0, (t, x) -> t + x); get_json_object(name, '$.a')
from_json(name, 'x int').x; to_json(s); schema_of_json('{}'); parse_url(name, 'HOST'); base64(data)
unhex('1F'); hex(n); encode(name, 'utf-8'); crc32(data); mask(name, lowerChar => 'q')
format_string('%d', n); typeof(n); startswith(name, 'x'); try_add(n, 1); try_divide(n, 0)
to_number('1', '9'); soundex(name); levenshtein(name, 'x'); `current_date` + 1
name collate UTF8_LCASE = 'x'; name = '${ a'; n /* it's */ > 0
"""

CLOCK = "current_timestamp; current_timestamp(); now(); current_date(); localtimestamp(); curdate()"
USER = "current_user; current_user(); user(); session_user()"

CALLS = """
reflect('java.lang.System', 'getenv', 'X'); java_method('java.lang.System', 'getenv', 'X')
try_reflect('java.lang.System', 'getenv', 'X'); `reflect`('java.lang.System', 'getenv', 'X')
REFLECT('java.lang.System', 'getenv', 'X'); transform(a, x -> reflect('a', 'b'))
if(b, 1, concat('a', lower(reflect('a', 'b')))); builtin.reflect('a', 'b')
system.builtin.reflect('a', 'b'); builtin.upper(name); spark_catalog.default.f(n)
system.session.f(n); mine(n); nowhere(n); rand(); randn(); random(); uuid(); shuffle(a)
uniform(0, 1); randstr(3); monotonically_increasing_id(); spark_partition_id(); input_file_name()
input_file_block_start(); version(); current_catalog(); current_database(); current_schema()
current_timezone(); raise_error('x'); aes_encrypt('a', 'b'); max(n); count(*); count(1); sum(n)
collect_list(n); any(b); some(b); count_if(b); rank(); row_number(); explode(a); posexplode(a)
inline(items); stack(2, 1, 2); json_tuple(name, 'a'); window(ts, '1 hour')
session_window(ts, '1 hour'); grouping(n); cube(n)
from_xml(name, 'b int', map('rowValidationXSDPath', '/etc/passwd')); from_avro(data, '{}')
from_protobuf(data, 'm', '/etc/passwd'); xpath(name, 'a'); read_files('/etc'); csv('/etc/passwd')
f(x => 1)
"""

SYNTAX = """
(select 1); (select value from text.`/etc/passwd`); exists(select 1); n in (select 1); (table t)
(values (1)); n > (select max(n) from t); transform(a, x -> (select 1)); not exists(select 1)
max(n) over (); row_number() over (order by n); first(n); last(n); max(n) filter (where b)
struct(*); (select count(*)); :x; ?; identifier('id'); identifier('reflect')('a', 'b'); any_value(n)
percentile_cont(0.5) within group (order by n); '${env:HOME}'; ${env:HOME}; ${spark.app.name}
'${system:user.home}'; `${env:HOME}`; concat('${x}')
"""

NAMES = """
secret; session.secret; system.session.secret; transform(a, x -> x + secret); nowhere; t.id
_metadata; _metadata.file_path; transform(a, x -> 1)[0] + x; transform(a, x -> y); __delvec_clause
secret.x
"""


@cache
def schema() -> StructType:
    return schema_of(DDL)


def listed(texts: str) -> list[str]:
    return [text.strip() for text in re.split(r"; |\n", texts) if text.strip()]


@pytest.fixture(scope="module")
def hostile(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with a function and a variable of its own."""
    spark.udf.register("mine", lambda n: n, spark_types.IntegerType())
    spark.sql("declare or replace variable secret string default 'secret'")
    yield spark
    spark.sql("drop temporary function if exists mine")
    spark.sql("drop temporary variable if exists secret")


def column(session: SparkSession, kind: Kind, text: str) -> Column:
    return stored_column(session, "lake/t", schema(), StoredExpression(kind, "c", text))


def refusals(session: SparkSession, kind: Kind, texts: str) -> dict[str, DelvecError | None]:
    return {text: refused(session, kind, text) for text in listed(texts)}


def refused(session: SparkSession, kind: Kind, text: str) -> DelvecError | None:
    try:
        column(session, kind, text)
    except DelvecError as error:
        return error
    return None


@pytest.mark.more
def test_honest_expressions_mean_what_they_mean_to_spark(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], table_schema(schema().fields))
    texts = listed(HONEST)
    mine = rows.select(*(column(spark, "generated", text) for text in texts)).schema
    plain = rows.selectExpr(*texts).schema
    assert [field.dataType for field in mine] == [field.dataType for field in plain]
    for kind in ("constraint", "invariant"):
        assert not any(refusals(spark, kind, HONEST).values())


def test_the_clock_and_the_user_are_for_those_that_may_ask(spark: SparkSession) -> None:
    assert not any(refusals(spark, "default", f"{CLOCK}; {USER}; 1 + 1; 'a' || 'b'").values())
    for kind in ("constraint", "invariant"):
        assert not any(refusals(spark, kind, CLOCK).values())
        assert all(refusals(spark, kind, USER).values())
    assert all(refusals(spark, "generated", USER).values())
    clock = refusals(spark, "generated", CLOCK)
    assert [text for text, error in clock.items() if error is None] == ["now()"]


@pytest.mark.parametrize("kind", get_args(Kind))
def test_what_is_not_on_the_list_is_refused(hostile: SparkSession, kind: Kind) -> None:
    for text, error in refusals(hostile, kind, CALLS + SYNTAX + NAMES).items():
        assert error is not None, text
        assert "lake/t" in str(error), error
        assert error.hint, error
        assert "column c" in str(error) or "constraint c" in str(error), error
    unknown = refusals(hostile, kind, NAMES).values()
    assert all(isinstance(error, InvalidArgumentError) for error in unknown)


def test_a_default_names_no_column(spark: SparkSession) -> None:
    assert all(refusals(spark, "default", "n; n + 1; upper(name); s.x").values())


def test_a_function_of_the_session_does_not_replace_sparks_own(spark: SparkSession) -> None:
    session = spark.newSession()  # a built-in function cannot be dropped, nor what hides it
    column(session, "constraint", "upper(name) = 'X'")
    session.udf.register("upper", lambda _: "X", spark_types.StringType())
    with pytest.raises(UnsupportedFeatureError, match=r"upper\(\), and .* hides Spark's own"):
        column(session, "constraint", "upper(name) = 'X'")
    column(spark, "constraint", "upper(name) = 'X'")


@pytest.mark.more
def test_the_owner_of_a_session_may_add_functions(hostile: SparkSession) -> None:
    rows = hostile.createDataFrame([(1,)], "n int")
    hostile.conf.set(ALLOWED_FUNCTIONS, "Mine, uuid ,current_user")
    try:
        assert not any(refusals(hostile, "generated", "mine(n); uuid(); current_user").values())
        assert rows.select(column(hostile, "generated", "mine(n) + 1")).collect() == [(2,)]
        refused = "reflect('a', mine(n)); mine(secret); mine((select 1)); explode(array(mine(n)))"
        assert all(refusals(hostile, "generated", refused).values())
    finally:
        hostile.conf.unset(ALLOWED_FUNCTIONS)
    assert all(refusals(hostile, "generated", "mine(n); uuid(); current_user").values())


def test_all_functions_of_the_list_are_sparks_own(spark: SparkSession) -> None:
    own = {each.name.lower() for each in spark.catalog.listFunctions()}
    newer = {"st_asbinary", "st_geogfromwkb", "st_geomfromwkb", "st_setsrid", "st_srid"}
    syntax = {"timestampadd", "timestampdiff", "charindex"}
    listed_here = frozenset().union(*map(allowed_functions, get_args(Kind)))
    assert listed_here - own - newer - syntax == frozenset()
