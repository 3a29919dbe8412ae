"""Attacks by the expressions that a table stores: who writes the log has them run by others.

`tests/spark/delta/write/test_stored_expressions.py` has the long list of what is refused; here are
those that get at a secret, by each kind of expression and each operation that evaluates one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tests.delta.builder import TableBuilder
from tests.hostile.attack import SECRET_VARIABLE, Attack, Ground, harmless, refused

_FEATURES: Final = {
    "generated column": "generatedColumns",
    "default": "allowColumnDefaults",
    "constraint": "checkConstraints",
    "invariant": "invariants",
}
_REFLECTED: Final = f"reflect('java.lang.System', 'getenv', '{SECRET_VARIABLE}')"
_PAYLOADS: Final = {
    "a method of the JVM": _REFLECTED,
    "a method of the JVM inside a lambda": f"transform(array(1), x -> {_REFLECTED})[0]",
    "a file, by a subquery": "(SELECT max(value) FROM text.`{outside}/secret.txt`)",
    "the environment, by a variable": f"'${{env:{SECRET_VARIABLE}}}'",
    "a setting, by a variable": "'${spark.hostile.secret}'",
    "a variable of the session": "hostile_secret",
    "a function of the session": "hostile_function('x')",
    "a file, by an XML schema": (
        "from_xml('<a/>', 'a int', map('rowValidationXSDPath', '{outside}/secret.txt'))"
    ),
}
# What is no SQL, or too much of it.
_DAMAGED: Final = {
    "control characters": "id > \x1b[31m\x00",
    "a word of a megabyte": "x" * 1_000_000,
    "ten thousand parentheses": "(" * 10_000 + "1" + ")" * 10_000,
    "ten thousand additions": "1" + " + 1" * 10_000,
    "a message like those of delvec": "assert_true(false, 'delvec-violation:{\"a\": ')",
}
_REFUSED: Final = r"calls |has a subquery|has a variable|no column hostile_secret"


def _put(kind: str, payload: str) -> Callable[[Ground], None]:
    """Make a table of one row that stores an expression; conditions are true of every row."""

    def put(ground: Ground) -> None:
        if ground.session is not None:
            _furnish(ground)
        text = payload.replace("{outside}", str(ground.outside))
        condition = f"{text} IS NOT NULL OR id > 0"
        held = {
            "generated column": {"delta.generationExpression": text},
            "default": {"CURRENT_DEFAULT": text},
            "invariant": {
                "delta.invariants": json.dumps({"expression": {"expression": condition}})
            },
        }
        table = TableBuilder(ground.table, fields={"id": "long", "word": "string"})
        table.protocol["writerFeatures"] += [_FEATURES[kind]]
        metadata = table.metadata()
        schema = json.loads(metadata["schemaString"])
        schema["fields"][1]["metadata"] = held.get(kind, {})
        metadata["schemaString"] = json.dumps(schema)
        if kind == "constraint":
            metadata["configuration"]["delta.constraints.c"] = condition
        table.commit({"protocol": table.protocol}, {"metaData": metadata})
        table.commit({"add": table.write_file("a.parquet", {"id": [1], "word": ["w"]})})

    return put


def _furnish(ground: Ground) -> None:
    """Let the session have what hostile expressions may look for."""
    ground.spark.sql(
        "DECLARE OR REPLACE VARIABLE hostile_secret STRING DEFAULT 'only of the session'"
    )
    ground.spark.udf.register("hostile_function", lambda _: "only of the session", "string")


def _untouched(ground: Ground, _: Any) -> None:  # noqa: ANN401
    assert len(list((ground.table / "_delta_log").glob("*.json"))) == 2


def _stored(kind: str, what: str, operations: object, *, slow: bool = False) -> list[Attack]:
    return refused(
        "runs" if "JVM" in what else "leaks",
        (f"{kind} with {what}", operations, _put(kind, _PAYLOADS[what])),
        says=_REFUSED,
        then=_untouched,
        slow=slow,
    )


_IDS: Final = ("append an id", "overwrite by an id")
_ALL_WRITES: Final = (*_IDS, "update all", "merge an id", "merge inserts")
_WRITES: Final = {
    **dict.fromkeys(("generated column", "constraint", "invariant"), _ALL_WRITES),
    "default": (*_IDS, "update to the default", "merge inserts"),
}
_READS: Final = ("read on Spark", "optimize", "purge", "delete all", "change feed")

ATTACKS: Final = [
    # Every payload by every kind, and two of them by every operation.
    *(
        each
        for kind in _WRITES
        for what in _PAYLOADS
        for each in _stored(kind, what, _WRITES[kind][0])
    ),
    *(
        each
        for kind, (_, *others) in _WRITES.items()
        for what, slow in (("a method of the JVM", False), ("a file, by a subquery", True))
        for each in _stored(kind, what, others, slow=slow)
    ),
    # What does not write rows evaluates nothing.
    *harmless(
        "runs",
        *((f"{kind} with a method of the JVM", _READS, _put(kind, _REFLECTED)) for kind in _WRITES),
        slow=lambda _, operation: operation != "read on Spark",
    ),
    *refused(
        "foreign error",
        *(
            (f"{kind} of {what}", "append an id", _put(kind, text))
            for kind in ("generated column", "constraint")
            for what, text in _DAMAGED.items()
        ),
    ),
]
