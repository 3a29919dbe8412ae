"""Random tables, sources and statements with schema evolution; a seed is always the same case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from delvec.spark.delta.write.clauses import Clause
from tests.spark.delta.write.evolution import Append, Case, Merge, Rows, Update
from tests.spark.delta.write.judge import INSERT_ALL, UPDATE_ALL, by_source_update, insert, update

# A type is the name of a primitive one, or a tuple: ("struct", fields), ("array", element) or
# ("map", value), the keys of which are strings. Fields are pairs of a name and a type.
Type = Any
Fields = list[tuple[str, Type]]

_NAMES = ("a", "b", "c", "dE", "f", "g", "h")
_NUMBERS = ("int", "bigint", "smallint")
_ROWS = 5


def random_case(seed: int) -> Case:
    """Return the case of a seed."""
    return _Maker(Random(seed)).case()


class _Maker:
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def case(self) -> Case:
        fields = self._fields(1, 3, depth=3)
        target = Rows(_columns(fields), self._rows(fields, range(_ROWS)))
        given = self._changed_fields(fields)
        count = 0 if self._chance(0.06) else 4
        source = Rows(_columns(given), self._rows(given, range(2, 2 + count)))
        evolve = self._chance(0.65)
        kind = self._rng.random()
        if kind < 0.2:
            return Case(target, source, Append(), evolve)
        if kind < 0.35:
            return Case(target, source, self._update(fields), evolve=False)
        return Case(target, source, Merge(self._clauses(fields, given)), evolve)

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _fields(self, least: int, most: int, depth: int) -> Fields:
        names = self._rng.sample(_NAMES, self._rng.randint(least, most))
        return [(name, self._type(depth)) for name in names]

    def _type(self, depth: int, *, in_array: bool = False) -> Type:
        kind = self._rng.random()
        if depth == 0 or kind < 0.3:
            return self._rng.choice((*_NUMBERS, "string"))
        if kind < 0.75:
            return "struct", self._fields(1, 3, depth - 1)
        if in_array:
            return "int"  # delta-spark casts deeper items by position, see `DIFFERENCES`
        if kind < 0.88:
            return "array", self._type(depth - 1, in_array=True)
        return "map", self._type(depth - 1)

    def _changed_fields(self, fields: Fields) -> Fields:
        kept = [
            (name.swapcase() if self._chance(0.1) else name, self._changed(kind))
            for name, kind in fields
            if not self._chance(0.15)
        ]
        if self._chance(0.35) or not kept:
            taken = {name.lower() for name, _ in fields}
            free = [name for name in _NAMES if name.lower() not in taken]
            kept.append((self._rng.choice(free), self._type(1)))
        if self._chance(0.25):
            self._rng.shuffle(kept)
        return kept

    def _changed(self, kind: Type) -> Type:
        if self._chance(0.03):
            return self._type(1)
        if isinstance(kind, str):
            is_other = kind in _NUMBERS and self._chance(0.12)
            return self._rng.choice((*_NUMBERS, "string")) if is_other else kind
        if self._chance(0.3):
            return kind
        name, inner = kind
        if name == "struct":
            return name, self._changed_fields(inner)
        return name, self._changed(inner)

    def _rows(self, fields: Fields, keys: range) -> tuple[Any, ...]:
        return tuple({"k": key, **self._struct(fields)} for key in keys)

    def _struct(self, fields: Fields) -> dict[str, Any]:
        return {name: self._value(kind) for name, kind in fields}

    def _value(self, kind: Type) -> Any:  # noqa: ANN401
        if self._chance(0.2):
            return None
        if isinstance(kind, str):
            number = self._rng.randint(0, 99)
            return number if kind in _NUMBERS else f"{number}"
        name, inner = kind
        if name == "struct":
            return self._struct(inner)
        if name == "array":
            return [self._value(inner) for _ in range(self._rng.randint(0, 2))]
        return {key: self._value(inner) for key in ("p", "q")[: self._rng.randint(0, 2)]}

    def _update(self, fields: Fields) -> Update:
        values = {}
        for path, kind in self._some(list(_paths(fields)), 2):
            changed = self._changed(kind) if self._chance(0.7) else kind
            values[path] = _literal(self._value(changed), changed)
        return Update(values, None if self._chance(0.2) else "k % 2 = 0")

    def _some(self, paths: list[tuple[str, Type]], most: int) -> list[tuple[str, Type]]:
        return self._rng.sample(paths, min(len(paths), self._rng.randint(1, most)))

    def _clauses(self, fields: Fields, given: Fields) -> tuple[Clause, ...]:
        clauses = []
        if self._chance(0.25):
            is_delete, even = self._chance(0.3), "s.k % 2 = 0"
            clauses.append(
                Clause("matched", "delete", even)
                if is_delete
                else self._some_set(fields, given, even)
            )
        if self._chance(0.8):
            is_all = self._chance(0.6)
            clauses.append(UPDATE_ALL if is_all else self._some_set(fields, given, None))
        if self._chance(0.7) or not clauses:
            clauses.append(INSERT_ALL if self._chance(0.6) else self._some_inserted(fields, given))
        if self._chance(0.12):
            [(path, kind)] = self._some(list(_paths(fields)), 1)
            clauses.append(by_source_update({path: _literal(self._value(kind), kind)}))
        return tuple(clauses)

    def _some_set(self, fields: Fields, given: Fields, condition: str | None) -> Clause:
        ours, theirs = list(_paths(fields)), dict(_paths(given))
        paths = self._some([*ours, *theirs.items()], 3)
        return update({path: self._from(path, kind, theirs) for path, kind in paths}, condition)

    def _some_inserted(self, fields: Fields, given: Fields) -> Clause:
        theirs = dict(_paths(given))
        names = {name.lower(): (name, kind) for name, kind in [*fields, *given]}
        some = self._some(list(names.values()), 3)
        values = {name: self._from(name, kind, theirs) for name, kind in some}
        return insert({"k": "s.k", **values})

    def _from(self, path: str, kind: Type, theirs: dict[str, Type]) -> str:
        found = {name.lower(): name for name in theirs}.get(path.lower())
        if found is not None and self._chance(0.85):
            return f"s.{found}"
        return _literal(self._value(kind), kind)


def _paths(fields: Fields, prefix: str = "") -> Iterator[tuple[str, Type]]:
    """Yield the paths that a clause may assign."""
    for name, kind in fields:
        yield f"{prefix}{name}", kind
        if isinstance(kind, tuple) and kind[0] == "struct":
            yield from _paths(kind[1], f"{prefix}{name}.")


def _columns(fields: Fields) -> str:
    return ", ".join(("k int", *(f"{name} {_ddl(kind)}" for name, kind in fields)))


def _ddl(kind: Type) -> str:
    if isinstance(kind, str):
        return kind
    name, inner = kind
    if name == "struct":
        return f"struct<{','.join(f'{field}:{_ddl(each)}' for field, each in inner)}>"
    return f"array<{_ddl(inner)}>" if name == "array" else f"map<string,{_ddl(inner)}>"


def _literal(value: Any, kind: Type) -> str:  # noqa: ANN401
    """Return SQL of a value with its type."""
    return f"from_json('{json.dumps({'v': value})}', 'v {_ddl(kind)}').v"
