"""Random scripts of SQL: sentences of the grammar in `scripts.txt`, written oddly, or broken.

Each part of the grammar is a rule, and each line below its name is one thing that it may stand for;
`{...}` names a rule. Words have blanks between them, but those within a string or a quoted name.
"""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path
from random import Random
from typing import Final

from tests.statements.door.cases import TABLES, Case

_RULES: Final = {
    name: lines.splitlines()
    for name, lines in re.findall(
        r"^\[(\w+)\]\n(.*?)(?=\n\n|\Z)",
        Path(__file__).with_suffix(".txt").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
_KINDS: Final = {"select": 5, "insert": 4, "delete": 3, "update": 3, "merge": 4} | {
    "alter": 3,
    "create": 3,
    "tell": 2,
    "keep": 3,
}
_RULE: Final = re.compile(r"\{(\w+)\}")
_WORD: Final = re.compile(r"""(?:r?'(?:[^'\\]|\\.)*'|"[^"]*"|`[^`]*`|\S)+""")
_PARAMETER: Final = re.compile(r"""-?\d+(?:\.\d+)?|r?'(?:[^'\\]|\\.)*'|"[^"]*\"""")
_BLANKS: Final = (" ", "\n", "\t", " /* ; ' */ ", ' -- " ; `\n', " /**/ ", "\r\n")


def script(seed: int, length: int) -> Case:
    """Return a random script; what maintenance says of files is each engine's own."""
    random = Random(seed)
    steps, expected = [TABLES["@T"], TABLES["@S"], TABLES["@P"]], []
    expected += steps
    for _ in range(length):
        [kind] = random.choices(list(_KINDS), list(_KINDS.values()))
        words = _WORD.findall(_said(random, kind))
        plain = " ".join(words)
        if random.random() < 0.1:
            _break(random, words)
            plain = " ".join(words)
        arguments: dict[str, object] | list[object] | None = None
        if kind in ("select", "insert", "delete", "update", "merge") and random.random() < 0.2:
            arguments = _bind(random, words)
        text = _written(random, words)
        if arguments:
            steps.append(f"spark.sql({text!r}, args={arguments!r})")
        elif kind == "keep":
            plain = f"spark.sql({plain!r}).limit(0).count()"
            steps.append(f"spark.sql({text!r}).limit(0).count()")
        else:
            steps.append(text if not text.startswith("spark.") else f" {text}")
        expected.append(plain if arguments or kind == "keep" else steps[-1])
    return Case(f"seed {seed}", tuple(steps), tuple(expected), None)


def _said(random: Random, rule: str) -> str:
    text = random.choice(_RULES[rule])
    return _RULE.sub(
        lambda found: _said(random, found[1]) if found[1] in _RULES else found[0], text
    )


def _break(random: Random, words: list[str]) -> None:
    """Omit a word, say it twice, or exchange two."""
    place = random.randrange(len(words))
    match random.randrange(3):
        case 0:
            del words[place]
        case 1:
            words.insert(place, words[place])
        case _:
            other = random.randrange(len(words))
            words[place], words[other] = words[other], words[place]


def _bind(random: Random, words: list[str]) -> dict[str, object] | list[object]:
    """Replace literals among the words by parameters, by name or by position; return these."""
    named: dict[str, object] = {}
    by_name = random.random() < 0.5
    for place, word in enumerate(words):
        is_value = _PARAMETER.fullmatch(word) and "$" not in word  # Spark replaces ${...}
        if is_value and words[place - 1] not in ("OF", "DATE", "="):
            name = f"p{len(named)}"
            named[name] = literal_eval(word)
            words[place] = f":{name}" if by_name else "?"
    return named if by_name else list(named.values())


def _written(random: Random, words: list[str]) -> str:
    """Write words with keywords in any case, and blanks and comments between them."""
    if random.random() < 0.4:
        return " ".join(words)
    text = random.choice(("", "", "\n", "-- ; DROP TABLE t\n", "/* a */ "))
    for word in words:
        is_keyword = word.isupper() and word.isalpha()
        text += (
            "".join(map(random.choice, zip(word, word.lower(), strict=True)))
            if is_keyword
            else word
        )
        text += random.choice(_BLANKS) if random.random() < 0.3 else " "
    return text + random.choice(("", "", ";", " -- end", " ; "))
