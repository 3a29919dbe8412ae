"""What sources use of delta-spark and deltalake: files found, and what was found in them.

Nothing of a source is imported or run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from delvec.errors import InvalidArgumentError, ObjectNotFoundError
from delvec.report.format import format_count

Verdict = Literal["as is", "door", "import", "rewrite"]
VERDICTS: Final = get_args(Verdict)
_MEANING: Final[dict[Verdict, str]] = {
    "as is": "run as they are",
    "door": "need enable_sql",
    "import": "another import",
    "rewrite": "rewriting",
}
_PIPE: Final = "-"
_READ: Final = (".py", ".sql")
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, order=True)
class Use:
    """One call, statement or setting: where it is, whether it runs, and what to write if not."""

    file: str
    line: int
    what: str
    verdict: Verdict
    write: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return dict(vars(self))


@dataclass(frozen=True)
class Uses:
    """All uses of some files, in order."""

    files: int
    uses: Sequence[Use]

    def summary(self) -> str:
        """Return how many uses there are, by verdict."""
        counts = Counter(each.verdict for each in self.uses)
        told = [f"{counts[kind]} {_MEANING[kind]}" for kind in VERDICTS if counts[kind]]
        found = f"{format_count(len(self.uses), 'use')} in {format_count(self.files, 'file')}"
        return f"{found}: {', '.join(told)}"

    def to_json(self) -> dict[str, Any]:
        """Return them for programs, with a count for each verdict."""
        counts = Counter(each.verdict for each in self.uses)
        return {
            "files": self.files,
            "counts": {kind: counts[kind] for kind in VERDICTS},
            "uses": [each.to_json() for each in self.uses],
        }


def sources(paths: Iterable[str]) -> Iterator[Path]:
    """Yield files that are given, and the Python and SQL files of folders that are."""
    for path in map(Path, paths):
        if path.is_dir():
            files = (each for kind in _READ for each in path.rglob(f"*{kind}"))
            yield from sorted(each for each in files if _is_own(each.relative_to(path)))
        elif not path.is_file():
            raise ObjectNotFoundError(f"there is no file or folder {path}")
        elif path.suffix not in _READ:
            raise InvalidArgumentError(
                f"{path} is neither Python nor SQL", hint="name files that end with .py or .sql"
            )
        else:
            yield path


def _is_own(path: Path) -> bool:
    return not any(part.startswith(".") or part in _SKIPPED for part in path.parts)


def find_uses(paths: Sequence[str], piped: str | None = None) -> Uses:
    """Return what files use, and those of folders; the path - stands for a text that is piped."""
    from delvec.migration.python import is_python, python_uses  # noqa: PLC0415
    from delvec.migration.sql import script_uses  # noqa: PLC0415

    texts = {
        str(each): (each.suffix == ".py", each.read_text(encoding="utf-8", errors="replace"))
        for each in sources(path for path in paths if path != _PIPE)
    }
    if piped is not None:
        texts[_PIPE] = is_python(piped), piped
    uses: set[Use] = set()
    for name, (is_code, text) in texts.items():
        uses |= set((python_uses if is_code else script_uses)(name, text))
    return Uses(len(texts), sorted(uses))
