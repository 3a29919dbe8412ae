"""Records that do not hold the values that they are about: digests stand for them.

A digest is SHA-256 of the table's id, a colon and the value as a string, its first 32 hexadecimal
digits. Who knows the value can compare it. A value that can be guessed, such as a short number, can
be found by trying: a digest is a pseudonym, not encryption.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from delvec.delta.traces.report import TracesReport
from delvec.delta.traces.values import begun, spelled

# Quoted identifiers stay; strings and numbers are values.
_LITERAL: Final = re.compile(
    r"(?P<name>`[^`]*`)|'(?P<single>(?:[^'\\]|\\.|'')*)'|\"(?P<double>(?:[^\"\\]|\\.|\"\")*)\""
    r"|(?<![\w.])(?P<number>\d[\w.+]*)",
    re.DOTALL,
)


@dataclass
class Redaction:
    """Digests of values, and texts without these values."""

    table_id: str | None
    _digests: dict[str, str] = field(default_factory=dict)

    def digest(self, value: object) -> str:
        """Return what stands for a value."""
        text = str(value)
        found = sha256(f"{self.table_id}:{text}".encode(errors="replace")).hexdigest()[:32]
        return self._digests.setdefault(text, f"sha256:{found}")

    def sql(self, condition: str) -> str:
        """Return a condition in SQL with digests for its literals."""

        def shown(match: re.Match[str]) -> str:
            if match["name"] is not None:
                return match[0]
            found = next(each for each in match.groups()[1:] if each is not None)
            quote = match[0][0]
            return self.digest(found.replace(quote * 2, quote) if quote in "'\"" else found)

        return _LITERAL.sub(shown, condition)

    def report(self, report: TracesReport, condition: Callable[[Redaction], str]) -> TracesReport:
        """Return a report without the values of its condition, in the names of files neither."""
        told = condition(self)
        texts = {text: digest for text, digest in self._digests.items() if text}
        forms = {form: texts[text] for text in texts for form in spelled(text)}
        pattern = re.compile(begun(forms, whole=True)) if forms else None

        def plain(text: str) -> str:
            return pattern.sub(lambda match: forms[match[0]], text) if pattern else text

        places = tuple(
            replace(each, path=plain(each.path), detail=plain(each.detail))
            for each in report.places
        )
        notes = tuple(note if plain(note) == note else plain(note) for note in report.notes)
        return replace(report, condition=told, places=places, notes=notes)
