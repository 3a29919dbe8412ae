"""The expressions that a table has for its rows, the names in them, the functions they may call.

Whoever can write the log of a table writes its expressions, and they run in the session of whoever
appends to it. The functions listed here compute a value from their arguments, and do nothing else:
none runs code, reads a file or a table, is random, or makes several rows of one. Any other is
refused, whatever a newer Spark adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import Field
from delvec.documents import parse_json
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.identifiers import QUOTED, unquote
from delvec.report.format import escape_controls, shortened

# CHECK constraints are properties of the table, all else is in the metadata of a column.
CONSTRAINT: Final = "delta.constraints."
CURRENT_DEFAULT: Final = "CURRENT_DEFAULT"
GENERATION: Final = "delta.generationExpression"
IDENTITY: Final = "delta.identity."
INVARIANT: Final = "delta.invariants"
# A string, a quoted name, or a word and whether it is called; in this order.
_TOKEN: Final = re.compile(
    rf"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | ({QUOTED}) | ([^\W\d]\w*)\s*(\(?)""",
    re.VERBOSE | re.DOTALL,
)
Kind: TypeAlias = Literal["generated", "default", "constraint", "invariant"]
_HOLDERS: Final[dict[Kind, str]] = {
    "generated": "generated column {}",
    "default": "the default of column {}",
    "constraint": "constraint {}",
    "invariant": "the invariant of column {}",
}
_SHOWN: Final = 200
ALLOWED_FUNCTIONS: Final = "spark.delvec.write.allowedFunctions"
"""The setting that adds functions, by name, separated by commas."""


@dataclass(frozen=True)
class StoredExpression:
    """SQL that a table has for its rows: whoever writes the table's log has written it.

    Only `spark.delta.write.stored_expressions` makes columns of such texts.
    """

    kind: Kind
    name: str
    text: str

    @property
    def holder(self) -> str:
        """What has it, for messages: its name may be long, or hold control characters."""
        return _HOLDERS[self.kind].format(shortened(escape_controls(self.name), _SHOWN))

    @property
    def shown(self) -> str:
        return shortened(escape_controls(self.text), _SHOWN)


def stored_expressions(metadata: Metadata) -> Iterator[StoredExpression]:
    fields = metadata.schema.fields
    yield from filter(None, map(generation_of, fields))
    for name, text in constraints(metadata).items():
        yield StoredExpression("constraint", name, text)
    for path, text in invariants(metadata).items():
        yield StoredExpression("invariant", path, text)
    yield from filter(None, map(default_of, fields))


def generation_of(field: Field) -> StoredExpression | None:
    text = field.metadata.get(GENERATION)
    return None if text is None else StoredExpression("generated", field.name, str(text))


def default_of(field: Field) -> StoredExpression | None:
    text = field.metadata.get(CURRENT_DEFAULT)
    return None if text is None else StoredExpression("default", field.name, str(text))


def constraints(metadata: Metadata) -> dict[str, str]:
    return {
        key.removeprefix(CONSTRAINT): text
        for key, text in metadata.configuration.items()
        if key.startswith(CONSTRAINT)
    }


def invariants(metadata: Metadata) -> dict[str, str]:
    """Return the invariants of columns, which older tables may have, by the column's path."""
    found = {
        ".".join(each.name for each in path): path[-1].metadata[INVARIANT]
        for path in walk(metadata.schema, structs_only=True)
        if INVARIANT in path[-1].metadata
    }
    return {name: _invariant(value, name) for name, value in found.items()}


def names_in(expression: str) -> frozenset[str]:
    """Return all words of an expression that may be columns, in lower case; none inside strings.

    Keywords are among them: callers look for the names of columns.

    >>> sorted(names_in("length(`My Name`) > 3 AND s.x <> 'y'"))
    ['and', 'my name', 's', 'x']
    """
    tokens = _TOKEN.findall(expression)
    names = (unquote(quoted) or word for quoted, word, called in tokens if not called)
    return frozenset(name.lower() for name in names if name)


def allowed_functions(kind: Kind) -> frozenset[str]:
    return _ALLOWED[kind]


def refusal(stored: StoredExpression, table: str, what: str, hint: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{stored.holder} of {table} {what}, which delvec does not evaluate for a table:"
        f" {stored.shown}",
        feature=what,
        needed_by=table,
        hint=hint,
    )


def require_plain(table: str, metadata: Metadata) -> None:
    """Refuse definitions that call other functions or read tables, as far as words tell.

    For where there is no session: only Spark can parse them, and does whenever they are used.
    """
    for stored in stored_expressions(metadata):
        text = _STRINGS.sub("''", stored.text)
        called = {(unquote(quoted) or word).lower() for quoted, word in _CALLS.findall(text)}
        unknown = sorted(called - _ALLOWED[stored.kind] - _KEYWORDS)
        if re.search(r"(?i)\(\s*select\b", text):
            unknown.append("SELECT")
        if unknown:
            raise refusal(stored, table, f"calls {unknown[0]}", "define it with a session")


def _invariant(value: Any, path: str) -> str:  # noqa: ANN401
    """Read an invariant: a string of JSON in the JSON of the schema."""
    try:
        text = parse_json(value, "the invariant")["expression"]["expression"]
    except (TypeError, ValueError, KeyError) as error:
        raise FormatError(
            f"the invariant of column {path} is not readable",
            expected='{"expression": {"expression": "..."}}',
            found=repr(value)[:80],
        ) from error
    return str(text)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The scalar functions of Spark without those that call methods by name (reflect, java_method), open
# files or connections (from_xml by the path of an XSD, from_protobuf by that of a descriptor, xpath
# by an external DTD), tell of the session (version, current_catalog), or drop rows (window filters
# those without a time).
_SCALAR: Final = _words(
    """
    coalesce if ifnull isnan isnotnull isnull nanvl nullif nullifzero nvl nvl2 when zeroifnull
    between equal_null greatest least and or not in like ilike rlike regexp regexp_like
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint

    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc
    degrees div e exp expm1 factorial floor hex hypot ln log log10 log1p log2 mod negative pi pmod
    positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh unhex width_bucket
    try_add try_divide try_mod try_multiply try_subtract
    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned
    bitmap_bit_position bitmap_bucket_number bitmap_count

    ascii base64 bit_length btrim char char_length character_length charindex chr collate collation
    concat concat_ws contains decode elt encode endswith find_in_set format_number format_string
    initcap instr is_valid_utf8 lcase left len length levenshtein locate lower lpad ltrim luhn_check
    make_valid_utf8 mask octet_length overlay position printf quote regexp_count regexp_extract
    regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim
    sentences soundex space split split_part startswith substr substring substring_index to_binary
    to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase
    unbase64 upper validate_utf8
    parse_url try_parse_url try_url_decode url_decode url_encode

    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract
    from_unixtime from_utc_timestamp hour last_day make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month
    monthname months_between next_day quarter second time_diff time_trunc timestamp_micros
    timestamp_millis timestamp_seconds timestampadd timestampdiff to_date to_time to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
    weekofyear year

    aggregate array array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
    cardinality element_at exists filter flatten forall get map map_concat map_contains_key
    map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
    named_struct reduce reverse sequence size slice sort_array str_to_map struct transform
    transform_keys transform_values try_element_at zip_with

    from_csv schema_of_csv to_csv from_json get_json_object json_array_length json_object_keys
    schema_of_json to_json is_variant_null parse_json schema_of_variant to_variant_object
    try_parse_json try_variant_get variant_get
    st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid

    assert_true crc32 hash md5 sha sha1 sha2 typeof xxhash64
    """
)
_CLOCK: Final = _words("curdate current_date current_time current_timestamp localtimestamp now")
_USER: Final = _words("current_user session_user user")
_ALLOWED: Final[dict[Kind, frozenset[str]]] = {
    # delta-spark lets one function of the clock pass here.
    "generated": _SCALAR | {"now"},
    "default": _SCALAR | _CLOCK | _USER,
    "constraint": _SCALAR | _CLOCK,
    "invariant": _SCALAR | _CLOCK,
}
_STRINGS: Final = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_CALLS: Final = re.compile(rf"(?:({QUOTED})|([^\W\d][\w.]*))\s*\(")
_KEYWORDS: Final = _words(
    "all any both case dec div else escape for from is leading numeric placing some then trailing"
    " try_cast varchar"
)
