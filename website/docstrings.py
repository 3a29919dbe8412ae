"""Docstrings in Google's style as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Final

__all__ = ["first_line", "markdown"]

# `Attributes` may say more before its colon, such as whose they are beside its own.
_SECTION: Final = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Note)(, [^:]*)?:$")
_ENTRY: Final = re.compile(r"^(\*{0,2}[\w.`]+)(?: \([^)]*\))?: (.*)$")


def first_line(value: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def markdown(value: object) -> str:
    """Return a docstring as Markdown: sections as lists, examples as code."""
    blocks: list[str] = []
    section = more = ""
    body: list[str] = []
    for line in [*(inspect.getdoc(value) or "").splitlines(), "Note:"]:
        if found := _SECTION.match(line):
            blocks.append(_section(section, more, body))
            section, more, body = found[1], found[2] or "", []
        else:
            body.append(line)
    return "\n\n".join(block for block in blocks if block)


def _section(name: str, more: str, body: list[str]) -> str:
    text = inspect.cleandoc("\n".join(["", *body])) if body else ""
    if not text:
        return ""
    if not name:
        return _with_code(text)
    if name in {"Args", "Raises", "Attributes"}:
        title = "Arguments" if name == "Args" else name
        return f"**{title}**{more}\n\n" + _entries(text.splitlines())
    return f"**{name}**\n\n{_with_code(text)}"


def _entries(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        found = None if line.startswith(" ") else _ENTRY.match(line)
        if found:
            items.append(f"- `{found[1].strip('`')}`: {found[2]}")
        elif items:
            items[-1] += f" {line.strip()}"
    return "\n".join(items)


def _with_code(text: str) -> str:
    """Fence indented examples and doctests, which may follow a paragraph without a blank line."""
    result: list[str] = []
    code: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_doctest = bool(code) and code[0].startswith(">>> ")
        starts = line.startswith(">>> ") and not is_doctest
        goes_on = bool(line) == is_doctest if code else False
        if code and (starts or not (goes_on or line.startswith("    "))):
            result += ["", *_fenced(code), ""]
            code = []
        if starts or code or line.startswith("    "):
            code.append(line)
        else:
            result.append(line)
    if code:
        result += ["", *_fenced(code)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(result)).strip()


def _fenced(code: list[str]) -> list[str]:
    shown = inspect.cleandoc("\n".join(["", *code])).rstrip()
    language = "pycon" if shown.startswith(">>>") else "python" if _is_python(shown) else "text"
    return [f"```{language}", shown, "```"]


def _is_python(text: str) -> bool:
    try:
        compile(text, "example", "exec")
    except SyntaxError:
        return False
    return True
