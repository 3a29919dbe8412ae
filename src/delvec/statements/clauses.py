"""The clauses of `delvec merge` and the assignments of `delvec update`, in the syntax of SQL.

Expressions between the keywords are parsed by Spark. Here only their ends matter, so quotes,
backquotes, comments, brackets and `CASE ... END` are skipped as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeAlias

from delvec.errors import InvalidArgumentError
from delvec.identifiers import QUOTED, unquote

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)
    |(?P<word>\w+)
    |(?P<sign>==|<=>|<=|>=|!=|<>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING: Final = {"(": ")", "[": "]", "{": "}", "CASE": "END"}
_PART: Final = re.compile(rf"\w+|{QUOTED}")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*")
Of: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]
Action: TypeAlias = Literal["delete", "update", "update_all", "insert", "insert_all"]
_ALIAS: Final = "t"
_HINT: Final = (
    '"matched [and CONDITION] then delete | update set * | update set a = x, ...",'
    ' "not matched [and CONDITION] then insert * | insert (a, ...) values (x, ...)",'
    ' "not matched by source [and CONDITION] then delete | update set a = x, ..."'
)
_ALLOWED: Final[Mapping[Of, frozenset[Action]]] = {
    "matched": frozenset({"delete", "update", "update_all"}),
    "not_matched": frozenset({"insert", "insert_all"}),
    "not_matched_by_source": frozenset({"delete", "update"}),
}


@dataclass(frozen=True)
class ClauseText:
    """One WHEN clause of a merge, its expressions as strings."""

    of: Of
    action: Action
    condition: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)

    def add_to(self, builder: Any) -> Any:  # noqa: ANN401
        """Return the merge builder with this clause added."""
        method = getattr(builder, f"when_{self.of}_{self.action}")
        arguments = [self.values] if self.values else []
        return method(*arguments, condition=self.condition)


UPSERT: Final = (ClauseText("matched", "update_all"), ClauseText("not_matched", "insert_all"))


def parse_clause(text: str) -> ClauseText:
    """Parse a clause; `WHEN` may be omitted.

    >>> parse_clause("matched and s.gone then delete")
    ClauseText(of='matched', action='delete', condition='s.gone', values={})
    """
    cursor = Cursor(text, hint=_HINT)
    cursor.takes("WHEN")
    of = _of(cursor)
    condition = cursor.until("THEN") if cursor.takes("AND") else None
    cursor.expect("THEN")
    action, values = _action(cursor)
    if not cursor.is_at_end:
        cursor.refuse("expected nothing more")
    if action not in _ALLOWED[of]:
        what = action.replace("_all", " *").upper()
        cursor.refuse(f"{of.replace('_', ' ').upper()} does not go with {what}")
    return ClauseText(of, action, condition, values)


def assignments(cursor: Cursor, alias: str | None = None) -> dict[str, str]:
    """Parse `a = x, b = y` up to the end; the table's alias before a column is removed.

    >>> assignments(Cursor("t.a = concat(s.b, ','), `b c` = 2", hint=""), "t")
    {'a': "concat(s.b, ',')", 'b c': '2'}
    """
    found: dict[str, str] = {}
    while True:
        name = column(cursor, cursor.until("="), alias)
        cursor.expect("=")
        if name in found:
            cursor.refuse(f"{name} is set twice")
        found[name] = cursor.until(",")
        if not cursor.takes(","):
            return found


def column(cursor: Cursor, text: str, alias: str | None = None) -> str:
    """Return the plain name of a column; struct fields keep dots and backquotes."""
    if not _NAME.fullmatch(text):
        cursor.refuse(f"{text!r} is not a column")
    parts = _PART.findall(text)
    if len(parts) > 1 and parts[0].lower() == alias:
        del parts[0]
    return unquote(parts[0]) if len(parts) == 1 else ".".join(parts)


def split_statements(text: str) -> list[str]:
    r"""Return the statements of a text, with semicolons between them.

    >>> split_statements("SELECT ';' -- a; b\n; SELECT `c;d`;")
    ["SELECT ';' -- a; b", 'SELECT `c;d`']
    """
    found, start = [], 0
    for match in [*_TOKEN.finditer(text), None]:
        if match is None or match[0] == ";":
            part = text[start : len(text) if match is None else match.start()].strip()
            if any(token.lastgroup != "blank" for token in _TOKEN.finditer(part)):
                found.append(part)
            start = 0 if match is None else match.end()
    return found


def words_of(text: str) -> list[str]:
    r"""Return the words and signs of a statement, without blanks and comments.

    >>> words_of("SELECT a -- one\n, `b c`")
    ['SELECT', 'a', ',', '`b c`']
    """
    return [match[0] for match in _TOKEN.finditer(text) if match.lastgroup != "blank"]


class Cursor:
    """A cursor over SQL, by words, signs and bracketed parts."""

    def __init__(self, text: str, *, hint: str) -> None:
        self._text, self._hint = text, hint
        self._tokens = list(self._outermost())
        self._next = 0

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def takes(self, *words: str) -> bool:
        """Skip words if exactly these come next, in any case; return whether they did."""
        coming = self._tokens[self._next : self._next + len(words)]
        found = [token.text.upper() for token in coming] == list(words)
        self._next += len(words) if found else 0
        return found

    def expect(self, *words: str) -> None:
        """Skip words that must come next."""
        if not self.takes(*words):
            self.refuse(f"expected {' '.join(words)}")

    def until(self, word: str) -> str:
        """Return the text before a word or sign, or up to the end, and stop there."""
        first = self._next
        while not self.is_at_end and self._tokens[self._next].text.upper() != word:
            self._next += 1
        if first == self._next:
            self.refuse("expected an expression")
        return self._text[self._tokens[first].start : self._tokens[self._next - 1].end]

    def bracketed(self) -> list[str]:
        """Skip a list in parentheses and return its items."""
        if self.is_at_end or not self._tokens[self._next].text.startswith("("):
            self.refuse("expected (")
        inner = Cursor(self._tokens[self._next].text[1:-1], hint=self._hint)
        self._next += 1
        found = [inner.until(",")]
        while inner.takes(","):
            found.append(inner.until(","))
        return found

    def rest(self) -> str:
        """Return the text up to the end."""
        return self.until("")

    def peek(self) -> str:
        """Return the token that comes next, empty at the end."""
        return "" if self.is_at_end else self._tokens[self._next].text

    def name(self) -> tuple[str, ...]:
        """Skip a name of one or more parts and return these, unquoted."""
        parts = [self.word()]
        while self.takes("."):
            parts.append(self.word())
        return tuple(parts)

    def word(self) -> str:
        """Skip a word, or a name in back quotes, and return it."""
        if not _PART.fullmatch(self.peek()):
            self.refuse("expected a name")
        self._next += 1
        return unquote(self._tokens[self._next - 1].text)

    def number(self) -> float:
        """Skip a number that is not negative and return it."""
        text = ""
        while self.peek() == "." or self.peek().isdecimal():
            text += self.peek()
            self._next += 1
        if not re.fullmatch(r"\d{1,18}(\.\d{1,18})?", text):
            self.refuse("expected a number")
        return float(text) if "." in text else int(text)

    def string(self) -> str:
        """Skip a string in quotes and return what it says."""
        if self.peek()[:1] not in ("'", '"'):
            self.refuse("expected a string in quotes")
        self._next += 1
        return re.sub(r"\\(.)", r"\1", self._tokens[self._next - 1].text[1:-1])

    def bracketed_text(self) -> str:
        """Skip a part in parentheses and return what is in them."""
        if not self.peek().startswith("("):
            self.refuse("expected (")
        self._next += 1
        return self._tokens[self._next - 1].text[1:-1].strip()

    def columns(self) -> list[str]:
        """Skip a list of columns, in parentheses or not, and return their names."""
        if self.peek().startswith("("):
            return [column(self, each) for each in self.bracketed()]
        found = [".".join(self.name())]
        while self.takes(","):
            found.append(".".join(self.name()))
        return found

    def refuse(self, why: str) -> NoReturn:
        """Raise an error that names the position."""
        found = "the end" if self.is_at_end else repr(self._tokens[self._next].text)
        raise InvalidArgumentError(f"{why}, found {found} in {self._text!r}", hint=self._hint)

    def _outermost(self) -> Iterator[_Token]:
        """Yield the tokens outside of brackets; a bracketed part is one token."""
        closing: list[str] = []
        opened = 0
        for token in self._all_tokens():
            text = token.text.upper()
            is_name = self._text[: token.start].rstrip().endswith(".")
            if not closing:
                opened = token.start
            if closing and text == closing[-1]:
                closing.pop()
                if not closing:
                    yield _Token(self._text[opened : token.end], opened)
            elif text in _OPENING and not is_name:
                closing.append(_OPENING[text])
            elif text in {")", "]", "}"}:
                self._refuse_at(token, f"{token.text} closes nothing")
            elif not closing:
                yield token
        if closing:
            raise InvalidArgumentError(
                f"{closing[-1]} is missing at the end of {self._text!r}", hint=self._hint
            )

    def _all_tokens(self) -> Iterator[_Token]:
        for match in _TOKEN.finditer(self._text):
            token = _Token(match[0], match.start())
            if match.lastgroup == "sign" and token.text in {"'", '"', "`"}:
                self._refuse_at(token, f"the quote {token.text} is not closed")
            if match.lastgroup != "blank":
                yield token

    def _refuse_at(self, token: _Token, why: str) -> NoReturn:
        raise InvalidArgumentError(
            f"{why}, at character {token.start + 1} of {self._text!r}", hint=self._hint
        )


def _of(cursor: Cursor) -> Of:
    if cursor.takes("MATCHED"):
        return "matched"
    cursor.expect("NOT", "MATCHED")
    if cursor.takes("BY", "SOURCE"):
        return "not_matched_by_source"
    cursor.takes("BY", "TARGET")
    return "not_matched"


def _action(cursor: Cursor) -> tuple[Action, Mapping[str, str]]:
    if cursor.takes("DELETE"):
        return "delete", {}
    if cursor.takes("UPDATE"):
        cursor.expect("SET")
        return ("update_all", {}) if cursor.takes("*") else ("update", assignments(cursor, _ALIAS))
    if not cursor.takes("INSERT"):
        cursor.refuse("expected DELETE, UPDATE or INSERT")
    if cursor.takes("*"):
        return "insert_all", {}
    names = [column(cursor, name, _ALIAS) for name in cursor.bracketed()]
    cursor.expect("VALUES")
    values = cursor.bracketed()
    if len(names) != len(values) or len(set(names)) < len(names):
        cursor.refuse(f"{len(values)} values for the columns {', '.join(names)}")
    return "insert", dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class _Token:
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)
