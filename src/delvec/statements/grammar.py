"""The statements that Spark has no grammar for, as Delta writes them: OPTIMIZE, VACUUM and others.

A statement is read by words; quotes, comments and brackets are skipped as a whole. One that is none
of these is nobody's business here: Spark's own parser gets it as it is.

    >>> parse("VACUUM db.orders RETAIN 240 HOURS DRY RUN")
    Parsed(kind='VACUUM', table=('db', 'orders'), given={'retain': 240, 'dry_run': True})
    >>> parse("DESCRIBE HISTORY delta.`/lake/orders` LIMIT 3")
    Parsed(kind='DESCRIBE HISTORY', table=('delta', '/lake/orders'), given={'limit': 3})
    >>> parse("VACUUM '/lake/orders' FULL RETAIN 1.5 HOURS").table
    ('delta', '/lake/orders')
    >>> parse("SELECT 1")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delvec.statements.clauses import Cursor, split_statements


@dataclass(frozen=True)
class Parsed:
    """A statement of ours: what it does, to which table, and how."""

    kind: str
    table: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)


def parse(text: str) -> Parsed | None:
    """Return a statement of ours; None if it begins as none of them."""
    statements = split_statements(text)  # without the semicolons behind it
    alone = statements[0] if len(statements) == 1 else text
    cursor = Cursor(alone, hint="docs/sql.md lists the statements")
    for words, read in _STATEMENTS.items():
        if cursor.takes(*words.split()):
            found = read(cursor)
            if found is not None and not cursor.is_at_end:
                cursor.refuse("expected nothing more")
            return found
    return None


def _table(cursor: Cursor) -> tuple[str, ...]:
    """Return the table that comes next: a name, or the path of one in quotes."""
    return ("delta", cursor.string()) if cursor.peek()[:1] in {"'", '"'} else cursor.name()


def explained(text: str) -> tuple[str, str] | None:
    """Return the mode of an EXPLAIN and the statement behind it; None if it is none.

    >>> explained("EXPLAIN FORMATTED VACUUM t"), explained("EXPLAIN VACUUM t")
    (('FORMATTED', 'VACUUM t'), ('', 'VACUUM t'))
    """
    cursor = Cursor(text, hint="EXPLAIN FORMATTED OPTIMIZE db.orders")
    if not cursor.takes("EXPLAIN"):
        return None
    mode = next((word for word in _MODES if cursor.takes(word)), "")
    return mode, cursor.rest()


def _optimize(cursor: Cursor) -> Parsed:
    table = _table(cursor)
    given: dict[str, Any] = {"full": cursor.takes("FULL")}
    if cursor.takes("WHERE"):
        given["where"] = cursor.until("ZORDER")
    if cursor.takes("ZORDER", "BY"):
        given["zorder_by"] = cursor.columns()
    return Parsed("OPTIMIZE", table, given)


def _reorg(cursor: Cursor) -> Parsed:
    cursor.takes("TABLE")
    table = cursor.name()
    where = cursor.until("APPLY") if cursor.takes("WHERE") else None
    cursor.expect("APPLY")
    if [each.upper() for each in cursor.bracketed()] != ["PURGE"]:
        cursor.refuse("expected APPLY (PURGE)")
    return Parsed("REORG", table, {"where": where})


def _vacuum(cursor: Cursor) -> Parsed:
    given: dict[str, Any] = {}
    table = _table(cursor)
    while not cursor.is_at_end:
        if cursor.takes("RETAIN"):
            given["retain"] = cursor.number()
            cursor.expect("HOURS")
        elif cursor.takes("DRY", "RUN"):
            given["dry_run"] = True
        elif cursor.takes("LITE"):
            given["lite"] = True
        elif not cursor.takes("FULL"):
            cursor.refuse("expected RETAIN n HOURS, DRY RUN, LITE or FULL")
    return Parsed("VACUUM", table, given)


def _restore(cursor: Cursor) -> Parsed:
    cursor.takes("TABLE")
    table = cursor.name()
    cursor.takes("TO")
    found = _as_of(cursor)
    if not found:
        cursor.refuse("expected VERSION AS OF or TIMESTAMP AS OF")
    return Parsed("RESTORE", table, found)


def _as_of(cursor: Cursor) -> dict[str, Any]:
    cursor.takes("FOR")
    if cursor.takes("VERSION", "AS", "OF") or cursor.takes("SYSTEM_VERSION", "AS", "OF"):
        version = cursor.number()
        if not isinstance(version, int):
            cursor.refuse(f"a version is a whole number, not {version}")
        return {"version": version}
    if cursor.takes("TIMESTAMP", "AS", "OF") or cursor.takes("SYSTEM_TIME", "AS", "OF"):
        return {"timestamp": cursor.string()}
    return {}


def _history(cursor: Cursor) -> Parsed:
    table = _table(cursor)
    limit = int(cursor.number()) if cursor.takes("LIMIT") else None
    return Parsed("DESCRIBE HISTORY", table, {"limit": limit})


def _detail(cursor: Cursor) -> Parsed:
    cursor.takes("TABLE")
    return Parsed("DESCRIBE DETAIL", _table(cursor))


def _convert(cursor: Cursor) -> Parsed:
    table = cursor.name()
    given: dict[str, Any] = {}
    while not cursor.is_at_end:
        if cursor.takes("PARTITIONED", "BY"):
            given["partition_by"] = ", ".join(cursor.bracketed())
        elif not cursor.takes("NO", "STATISTICS"):
            cursor.refuse("expected PARTITIONED BY or NO STATISTICS")
    return Parsed("CONVERT TO DELTA", table, given)


def _convert_to_iceberg(cursor: Cursor) -> Parsed:
    table = cursor.name()
    cursor.expect("TO", "ICEBERG")
    return Parsed("CONVERT TO ICEBERG", table, {"target": cursor.name()})


def _generate(cursor: Cursor) -> Parsed:
    mode = cursor.word()
    if mode.lower() != "symlink_format_manifest":
        cursor.refuse("expected symlink_format_manifest")
    cursor.expect("FOR", "TABLE")
    return Parsed("GENERATE", cursor.name())


def _alter(cursor: Cursor) -> Parsed | None:
    table = cursor.name()
    if cursor.takes("ADD", "CONSTRAINT"):
        name = cursor.word()
        cursor.expect("CHECK")
        [check] = [cursor.bracketed_text()]
        return Parsed("ADD CONSTRAINT", table, {"name": name, "check": check})
    if cursor.takes("DROP", "CONSTRAINT"):
        if_exists = cursor.takes("IF", "EXISTS")
        return Parsed("DROP CONSTRAINT", table, {"name": cursor.word(), "if_exists": if_exists})
    if cursor.takes("DROP", "FEATURE"):
        name = cursor.word() if cursor.peek()[:1] not in "'\"" else cursor.string()
        truncates = cursor.takes("TRUNCATE", "HISTORY")
        return Parsed("DROP FEATURE", table, {"name": name, "truncates": truncates})
    return None


def _clone(how: str) -> Callable[[Cursor], Parsed | None]:
    def read(cursor: Cursor) -> Parsed | None:
        if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
        table = cursor.name()
        if not (cursor.takes("SHALLOW", "CLONE") or cursor.takes("CLONE")):
            return None
        given: dict[str, Any] = {"how": how, "if_not_exists": if_not_exists}
        given["source"] = cursor.name()
        given |= _as_of(cursor)
        while not cursor.is_at_end:
            if cursor.takes("TBLPROPERTIES"):
                given["properties"] = cursor.bracketed()
            elif cursor.takes("LOCATION"):
                given["location"] = cursor.string()
            else:
                cursor.refuse("expected TBLPROPERTIES or LOCATION")
        return Parsed("CLONE", table, given)

    return read


def _check(cursor: Cursor) -> Parsed:
    table = cursor.name()
    return Parsed("CHECK TABLE", table, {"repair": cursor.takes("REPAIR")})


def _traces(cursor: Cursor) -> Parsed:
    table = cursor.name()
    cursor.expect("WHERE")
    return Parsed("TRACES", table, {"where": cursor.rest()})


def _resolve(cursor: Cursor) -> Parsed:
    cursor.takes("TABLE")
    table = cursor.name()
    given: dict[str, Any] = {}
    while not cursor.is_at_end:
        if cursor.takes("FROM"):
            given["staging"] = cursor.word()
        elif cursor.takes("INTO"):
            given["target"] = cursor.word()
        elif cursor.takes("ON"):
            given["keys"] = cursor.columns()
        elif cursor.takes("VERIFY"):
            given["verify"] = cursor.word().lower()
        elif cursor.takes("DRY", "RUN"):
            given["dry_run"] = True
        else:
            cursor.refuse("expected FROM branch, INTO branch, ON (keys), VERIFY rows or DRY RUN")
    return Parsed("RESOLVE", table, given)


_MODES: Final = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")
_STATEMENTS: Final[Mapping[str, Callable[[Cursor], Parsed | None]]] = {
    "OPTIMIZE": _optimize,
    "REORG": _reorg,
    "VACUUM": _vacuum,
    "RESTORE": _restore,
    "DESCRIBE HISTORY": _history,
    "DESC HISTORY": _history,
    "DESCRIBE DETAIL": _detail,
    "DESC DETAIL": _detail,
    "CONVERT TO DELTA": _convert,
    "CONVERT TABLE": _convert_to_iceberg,
    "GENERATE": _generate,
    "ALTER TABLE": _alter,
    "CREATE TABLE": _clone("error"),
    "CREATE OR REPLACE TABLE": _clone("replace"),
    "REPLACE TABLE": _clone("replace"),
    "CHECK TABLE": _check,
    "TRACES OF": _traces,
    "RESOLVE": _resolve,
}
