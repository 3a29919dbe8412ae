"""Generated columns, defaults, CHECK constraints and invariants of a table, as columns of Spark.

Whoever can write the table's log has written them, and here they would run with all that the
session may do. So nothing else makes columns of them: Spark parses a text, and a column comes of it
only if it is made of operators, of the table's own columns and of the functions that
`schema.expressions.allowed_functions` lists, or the owner of the session in `ALLOWED_FUNCTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from delvec.delta.schema.expressions import (
    ALLOWED_FUNCTIONS,
    Kind,
    StoredExpression,
    allowed_functions,
    refusal,
    stored_expressions,
)
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.types import StructType
from delvec.errors import DelvecError, InvalidArgumentError
from delvec.report.format import did_you_mean, escape_controls, shortened
from delvec.spark import jvm
from delvec.spark.failures import translate_errors
from delvec.spark.types import spark_type

_NO_COLUMNS: Final = StructType(())
# SQL has these without parentheses, unless there is a column of the name.
_BARE: Final = (
    "current_date current_time current_timestamp current_user grouping__id localtimestamp"
    " session_user user"
)
# What the parser makes of operators, literals and the functions that have a syntax of their own.
_SYNTAX: Final = """
    Add Alias And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce Collate Concat
    CreateNamedStruct Divide EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In
    IntegralDivide IsNotNull IsNotUnknown IsNull IsUnknown LessThan LessThanOrEqual Like LikeAll
    LikeAny Literal Lower Multiply NamePlaceholder NamedArgumentExpression Not NotLikeAll NotLikeAny
    Or Overlay RLike Remainder SemiStructuredExtract ShiftLeft ShiftRight ShiftRightUnsigned
    StringLocate StringTrim StringTrimLeft StringTrimRight Substring Subtract TimestampAdd
    TimestampDiff UnaryMinus UnaryPositive UnresolvedCollation UnresolvedExtractValue
"""
_CLOCK: Final = " CurrentDate CurrentTime CurrentTimestamp"
_SYNTAX_OF: Final[dict[Kind, str]] = {
    "generated": _SYNTAX,
    "default": f"{_SYNTAX}{_CLOCK} CurrentUser",
    "constraint": f"{_SYNTAX}{_CLOCK}",
    "invariant": f"{_SYNTAX}{_CLOCK}",
}
_WORDS: Final = {
    **dict.fromkeys(("ScalarSubquery", "Exists", "InSubquery", "ListQuery"), "has a subquery"),
    **dict.fromkeys(
        ("Aggregate", "AggregateExpression", "WindowExpression"),
        "computes over several rows, or makes several of one",
    ),
    **dict.fromkeys(("NamedParameter", "PosParameter"), "has a parameter"),
    "UnresolvedStar": "names all columns by *",
}
# The session's own parser replaces this before it parses, and so would other engines.
_VARIABLE: Final = re.compile(r"\$\{[^}$ ]+\}")
# Spark's parser takes a minute to fail at ten thousand, and fails at a thousand.
_DEEPEST: Final = 500
_DISTRUST: Final = (
    f"find out who wrote it, and drop it; if you trust it, allow for it by {ALLOWED_FUNCTIONS}"
)
_CHANGE: Final = "find out who wrote it, and drop it or write it otherwise"


def stored_columns(
    spark: SparkSession, table: str, schema: StructType, expressions: Sequence[StoredExpression]
) -> list[Column]:
    """Return expressions of a table as columns, over its columns by their logical names."""
    if not expressions:
        return []
    added = _added(spark)
    session, columns = jvm.session_of(spark), spark_type(schema).json()
    found: list[Column] = []
    for each in expressions:
        of_table = schema if each.kind != "default" else _NO_COLUMNS
        if _VARIABLE.search(each.text):
            raise refusal(each, table, "has a variable in ${}", _CHANGE)
        if _depth(each.text) > _DEEPEST:
            raise refusal(each, table, f"nests more than {_DEEPEST} parentheses", _CHANGE)
        given = columns if of_table is schema else spark_type(_NO_COLUMNS).json()
        try:
            with translate_errors(f"{table}, {each.holder}"):
                answer = _checker(spark, each.kind).column(session, each.text, given, added)
        except DelvecError as error:
            # The parser cites what it does not take, however long it is.
            error.message = shortened(escape_controls(error.message), 500)
            error.hint = error.hint or _CHANGE
            raise
        if isinstance(answer, str):
            raise _refused(each, table, of_table, *answer.split(" ", 1))
        column: Any = ClassicColumn(answer)
        found.append(column)
    return found


def stored_column(
    spark: SparkSession, table: str, schema: StructType, expression: StoredExpression
) -> Column:
    """Return one expression as a column; see `stored_columns`."""
    [column] = stored_columns(spark, table, schema, [expression])
    return column


def require_allowed(spark: SparkSession, table: str, metadata: Metadata) -> None:
    """Refuse the definition of a table that nobody could write to; see `stored_columns`."""
    stored_columns(spark, table, metadata.schema, list(stored_expressions(metadata)))


def _added(spark: SparkSession) -> str:
    listed = spark.conf.get(ALLOWED_FUNCTIONS, "") or ""
    return " ".join(name.strip().lower() for name in listed.split(",") if name.strip())


def _depth(text: str) -> int:
    steps = (1 if each in "([" else -1 for each in re.findall(r"[()\[\]]", text))
    return max(accumulate(steps), default=0)


def _refused(
    stored: StoredExpression, table: str, schema: StructType, what: str, name: str
) -> DelvecError:
    if what == "column":
        hint = "a default is made of literals and functions"
        if stored.kind != "default":
            hint = did_you_mean(name, schema.names, 2) or "it has to name the table's columns"
        return InvalidArgumentError(
            f"there is no column {shortened(escape_controls(name), 100)}, which {stored.holder} of"
            f" {table} names: {stored.shown}",
            hint=hint,
        )
    if what == "function":
        return refusal(stored, table, f"calls {name}()", _DISTRUST)
    if what == "hidden":
        hint = f"use a session without that function, or allow for it by {ALLOWED_FUNCTIONS}"
        words = (
            f"calls {name}(), and the session has a function of this name that hides Spark's own"
        )
        return refusal(stored, table, words, hint)
    return refusal(stored, table, _WORDS.get(name) or f"has the syntax {name}", _CHANGE)


def _checker(spark: SparkSession, kind: Kind) -> Any:  # noqa: ANN401
    texts = " ".join(allowed_functions(kind)), _BARE, " ".join(_SYNTAX_OF[kind].split())
    load = partial(jvm.load_java, spark, "delvec.spark.delta.write", "StoredExpressions", *texts)
    return jvm.once(spark, ("checker of stored expressions", kind), load)
