"""Random sequences of operations, each the same whenever it is made from the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Literal

from tests.interop.expressions import (
    DAYS,
    NAMES,
    PARTS,
    STAMPS,
    Append,
    Clause,
    Delete,
    Expression,
    Merge,
    Operation,
    Overwrite,
    Row,
    Update,
    assignment,
    both,
    column,
    condition,
    equal,
    literal,
)

Engine = Literal["delvec", "delta-spark"]
ENGINES: tuple[Engine, ...] = ("delvec", "delta-spark")
COLUMNS = ("id", "part", "name", "amount", "day", "stamp", "place")
SETTABLE = (*COLUMNS, "place.x")
OPERATIONS = ("append", "overwrite", "delete", "update", "merge")


@dataclass(frozen=True)
class Kind:
    """What sort of table."""

    partitioned_by: tuple[str, ...] = ()
    mapped: bool = False
    vectors: bool = True
    feed: bool = True


@dataclass(frozen=True)
class Step:
    """One operation, by one of the engines; `about` names what its condition is made of."""

    engine: Engine
    operation: Operation
    about: tuple[str, ...]
    checkpoint: bool

    def __str__(self) -> str:
        return f"{self.engine}: {self.operation}"


def kind_of(seed: int) -> Kind:
    rng = Random(f"kind {seed}")
    parts = rng.choice(((), ("part",), ("day",), ("day", "part")))
    return Kind(parts, bool(rng.randrange(2)), rng.randrange(4) > 0, rng.randrange(4) > 0)


def plan(seed: int, more: int = 0) -> list[Step]:
    """Begin with rows, then let each engine do each operation once, and some more, in any order."""
    rng = Random(seed)
    pairs = [(engine, name) for engine in ENGINES for name in OPERATIONS]
    pairs += [(rng.choice(ENGINES), rng.choice(OPERATIONS)) for _ in range(more)]
    rng.shuffle(pairs)
    first = Step(rng.choice(ENGINES), Append(_rows(rng, 90), 3), (), checkpoint=False)
    others = [_step(rng, engine, name) for engine, name in pairs]
    return [first, *others[:3], replace(others[3], checkpoint=True), *others[4:]]


def _step(rng: Random, engine: Engine, name: str) -> Step:
    operation, about = {
        "append": _append,
        "overwrite": _overwrite,
        "delete": _delete,
        "update": _update,
        "merge": _merge,
    }[name](rng)
    return Step(engine, operation, about, checkpoint=rng.randrange(4) == 0)


def _rows(rng: Random, count: int) -> list[Row]:
    return [_row(rng, rng.randrange(120) if rng.randrange(20) else None) for _ in range(count)]


def _row(rng: Random, number: int | None) -> Row:
    place = {"x": rng.choice([0, 1, 2, 3, 4, None]), "label": rng.choice(NAMES)}
    return {
        "id": number,
        "part": rng.choice(PARTS),
        "name": rng.choice(NAMES),
        "amount": Decimal(rng.randrange(-500, 5000)) / 100 if rng.randrange(8) else None,
        "day": rng.choice(DAYS),
        "stamp": rng.choice(STAMPS),
        "place": place if rng.randrange(6) else None,
    }


def _append(rng: Random) -> tuple[Operation, tuple[str, ...]]:
    return Append(_rows(rng, rng.randrange(20, 60)), max(2, rng.randrange(1, 4))), ()


def _overwrite(rng: Random) -> tuple[Operation, tuple[str, ...]]:
    rows, files = _rows(rng, 60), rng.randrange(1, 3)
    if not rng.randrange(5):
        return Overwrite(rows, files, None), ("whole",)
    where, about = condition(rng)
    fitting = [row for row in rows if where.of({"": row}) is True]
    return Overwrite(fitting, files, where), about


def _delete(rng: Random) -> tuple[Operation, tuple[str, ...]]:
    if not rng.randrange(12):
        return Delete(None), ("whole",)
    where, about = condition(rng)
    return Delete(where), about


def _update(rng: Random) -> tuple[Operation, tuple[str, ...]]:
    values = _assignments(rng, "", None)
    if not rng.randrange(8):
        return Update(values, None), ("whole",)
    where, about = condition(rng)
    return Update(values, where), about


def _merge(rng: Random) -> tuple[Operation, tuple[str, ...]]:
    # Numbers that the table cannot have may come twice: such rows have no partner.
    new = rng.randrange(10_000, 10**9)
    numbers = [*rng.sample(range(120), 40), *rng.choices(range(new, new + 8), k=10), None, None]
    source = [_row(rng, number) for number in numbers]
    on = equal(column("t.id"), column("s.id"))
    about: tuple[str, ...] = ()
    if not rng.randrange(3):
        more, about = condition(rng, rng.choice(["t.", "s."]), depth=0)
        on = both(on, more)
    clauses = list(_clauses(rng))
    return Merge(source, on, tuple(clauses)), about


def _clauses(rng: Random) -> Iterator[Clause]:
    """Make some clauses: of each `when` only the last may be without a condition."""
    whens = [
        when for when in ("matched", "not matched", "not matched by source") if rng.randrange(3) > 0
    ] or ["not matched"]
    for when in whens:
        count = rng.randrange(1, 3)
        for number in range(count):
            action = "insert" if when == "not matched" else rng.choice(["update", "delete"])
            prefix = "s." if when == "not matched" else "t."
            bare = number == count - 1 and rng.randrange(2)
            # Most rows have no partner: without a condition little would be left.
            bare = bare and when != "not matched by source"
            where = None if bare else condition(rng, prefix)[0]
            yield Clause(when, action, where, _values(rng, when, action))  # type: ignore[arg-type]


def _values(rng: Random, when: str, action: str) -> dict[str, Expression] | None:
    if action == "delete" or (when != "not matched by source" and rng.randrange(2)):
        return None
    if action == "insert":
        names = rng.sample(COLUMNS, rng.randrange(2, len(COLUMNS) + 1))
        return {name: assignment(rng, name, "s.", "s.") for name in names}
    return _assignments(rng, "t.", "s." if when == "matched" else None)


def _assignments(rng: Random, prefix: str, source: str | None) -> dict[str, Expression]:
    names = rng.sample(SETTABLE, rng.randrange(1, 4))
    if "place" in names and "place.x" in names:
        names.remove("place")
    return {
        name: literal(rng.choice([7, None]))
        if name == "place.x"
        else assignment(rng, name, prefix, source)
        for name in names
    }
