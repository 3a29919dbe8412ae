"""Statements of SQL judged by their words: Spark's own, those of the door, and refused ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from delvec.delta.alter.definition import new_table
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import DelvecError, InvalidArgumentError, UnsupportedFeatureError
from delvec.migration.uses import Use, Verdict
from delvec.peers import rule_for, unquoted
from delvec.statements.clauses import split_statements, words_of
from delvec.statements.grammar import parse

PLACE: Final = "delvec_place"
"""Stands in a statement for a value that only the running program knows."""
_SHOWN: Final = 60
# What means Delta tables, whatever else Spark reads by names.
_DELTA: Final = re.compile(
    r"^(DELETE FROM|UPDATE|MERGE) |^ALTER TABLE .*\bCLUSTER BY\b|\bdelta \. `|\bUSING delta\b"
    r"|\b(VERSION|TIMESTAMP) AS OF\b|\btable_changes(_by_path)? \(|['\"]delta\.\w"
    r"|^CREATE .*\bSHALLOW CLONE\b",
    re.IGNORECASE,
)
_PROPERTY: Final = re.compile(r"""['"](delta\.[\w.]+)['"] = ['"]([^'"]*)['"]""")
_SOME: Final = StructType((Field("id", PrimitiveType("long")),))


def script_uses(file: str, text: str) -> Iterator[Use]:
    """Yield the statements of a file of SQL."""
    line, rest = 1, text
    for statement in split_statements(text):
        before, _, rest = rest.partition(statement)
        line += before.count("\n")
        skipped = len(statement) - len(without_comments(statement))
        yield from statement_uses(file, line + statement.count("\n", 0, skipped), statement)
        line += statement.count("\n")


def without_comments(statement: str) -> str:
    """Return a statement from its first word on."""
    return re.sub(r"\A(\s+|--[^\n]*\n|/\*.*?\*/)+", "", statement, flags=re.DOTALL)


def statement_uses(file: str, line: int, text: str) -> Iterator[Use]:
    """Yield what a statement is judged to be, and nothing of one without a word."""
    words = words_of(text)
    if not words:
        return
    statement = " ".join(words)
    verdict, write = _judged(statement, text)
    yield Use(file, line, shortened(without_comments(text)), verdict, unquoted(write))


def shortened(text: str) -> str:
    """Return a text on one line, cut if it is long."""
    shown = " ".join(text.replace(PLACE, "…").split())
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"


def _judged(statement: str, text: str) -> tuple[Verdict, str]:
    if rule := rule_for("sql", statement):
        return "rewrite", rule.instead
    properties = dict(_PROPERTY.findall(statement))
    try:
        parsed = parse(text)
        if properties and PLACE not in text:
            new_table(_SOME, (), properties)
    except (InvalidArgumentError, UnsupportedFeatureError) as error:
        if PLACE not in text:
            return "rewrite", error.message.partition(" in '")[0]
        return _judged_by_numbers(text)
    if parsed is not None or _DELTA.search(statement):
        return "door", ""
    return "as is", ""


def _judged_by_numbers(text: str) -> tuple[Verdict, str]:
    """Judge a statement again whose unknown values are no names."""
    for value in ("1", "'1'"):
        try:
            parse(text.replace(PLACE, value))
        except DelvecError:
            continue
        break
    # Of what a program puts together nothing more can be said.
    return "door", ""
