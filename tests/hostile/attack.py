"""An attack: what was put into a table, where, which operation met it, and what must come of it.

The attacks stand in tables, a module for each kind; `attacks.py` gathers them. Whatever an attack
is, the same is asked after it: only errors of delvec's own were raised, nothing outside the table
was changed, and the secret is neither in an error nor in a file of the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import SparkSession

from delvec.errors import DelvecError

# `tests/conftest.py` sets it, so that JVMs have it as well.
SECRET_VARIABLE: Final = "DELVEC_HOSTILE_SECRET"  # noqa: S105 - a name
SECRET: Final = "s3cr3t-of-somebody-else"  # noqa: S105 - the point of it

_LONGEST_MESSAGE: Final = 4000

Kind = Literal["runs", "leaks", "comes back", "deletes", "takes the machine", "foreign error"]


@dataclass(frozen=True)
class Ground:
    """Where an attack takes place: a table's folder, and one beside it that nobody may touch."""

    folder: Path
    session: SparkSession | None = None

    @property
    def table(self) -> Path:
        """The hostile Delta table, or the warehouse of an Iceberg table."""
        return self.folder / "table"

    @property
    def outside(self) -> Path:
        """A folder with private files, one of which is `secret.txt`."""
        return self.folder / "outside"

    @property
    def spark(self) -> SparkSession:
        assert self.session is not None, "the operation of this attack runs without a session"
        return self.session


Put = Callable[[Ground], object]
Then = Callable[[Ground, Any], None]
Row = tuple[Any, ...]  # the place, the operation or several of them, and `put`


@dataclass(frozen=True)
class Attack:
    """One row of the table of attacks.

    Args:
        kind: What it tries.
        place: Where it was put, in words that tell it from all others of its kind.
        operation: The name of what the user does then, one of `operations.OPERATIONS`.
        expected: Whether the operation raises an error of delvec's own, or does its work.
        put: Makes the hostile table.
        says: A pattern that the error has, so that it is the right one.
        then: Looks at the table and at what the operation returned (None where it was refused).
        confined: Run it in a process with little memory and time: without the defence it would
            take the machine.
    """

    kind: Kind
    place: str
    operation: str
    expected: Literal["refused", "harmless"]
    put: Put
    says: str = ""
    then: Then | None = None
    confined: bool = False
    slow: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.place}, {self.operation}"


def refused(kind: Kind, *rows: Row, says: str = "", **more: Any) -> list[Attack]:  # noqa: ANN401
    """Return attacks that raise an error; a row may end with what its own says."""
    return _attacks(rows, "says", says, kind=kind, expected="refused", **more)


def harmless(kind: Kind, *rows: Row, then: Then | None = None, **more: Any) -> list[Attack]:  # noqa: ANN401
    """Return attacks that do no harm; a row may end with a `then` of its own."""
    return _attacks(rows, "then", then, kind=kind, expected="harmless", **more)


def _attacks(
    rows: Iterable[Row],
    last: str,
    shared: object,
    *,
    slow: bool | Callable[[str, str], bool] = False,
    **more: Any,  # noqa: ANN401
) -> list[Attack]:
    """Return an attack for each operation of each row; `slow` may tell by place and operation."""
    return [
        Attack(
            place=place,
            operation=each,
            put=put,
            slow=slow if isinstance(slow, bool) else slow(place, each),
            **{last: (*own, shared)[0]},
            **more,
        )
        for place, operations, put, *own in rows
        for each in ([operations] if isinstance(operations, str) else operations)
    ]


def launch(attack: Attack, ground: Ground, operation: Callable[[Ground], Any]) -> None:
    """Carry out an attack, and look at what came of it."""
    ground.outside.mkdir()
    (ground.outside / "secret.txt").write_text(SECRET)
    attack.put(ground)
    before = content(ground.outside)
    result = None
    raised: DelvecError | None = None
    try:
        result = operation(ground)
    except DelvecError as error:
        raised = error
        _judge_error(error)
    assert content(ground.outside) == before, "something outside the table was changed"
    if ground.table.exists():
        for file, data in content(ground.table).items():
            assert SECRET.encode() not in data, f"the secret is in {file}"
    if attack.expected == "refused":
        assert raised is not None, f"not refused: {result!r:.300}"
        assert re.search(attack.says, str(raised), re.DOTALL), str(raised)
    elif raised is not None:
        raise AssertionError(f"refused: {raised}") from raised
    if attack.then is not None:
        attack.then(ground, result)


def _judge_error(error: DelvecError) -> None:
    text = str(error)
    assert SECRET not in text
    assert len(text) < _LONGEST_MESSAGE, "what a table says floods the message"
    assert all(line.isprintable() for line in text.split("\n")), repr(text)
    assert text.count("\n") == bool(error.hint), "a table adds lines to the message"
    cause: BaseException | None = error
    while cause is not None:
        assert SECRET not in str(cause), "a traceback would show the secret"
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def content(folder: Path) -> dict[str, bytes]:
    """Return all regular files below a folder; no link is followed."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - surrogates stay as they are
            if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
                # An attack may still swap folders: then the file is elsewhere now.
                with suppress(FileNotFoundError), open(path, "rb") as file:  # noqa: PTH123
                    found[os.path.relpath(path, folder)] = file.read()
    return found
