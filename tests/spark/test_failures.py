"""Failures that reach the driver as texts only, as jobs' do; no JVM."""

from __future__ import annotations

import logging

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from delvec.errors import (
    ConstraintError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    StorageError,
)
from delvec.spark.failures import quiet, translate_errors

CALL = "An error occurred while calling o1.save.\n: "
SPARK = "org.apache.spark.Spark"
JOB = (
    f"{CALL}{SPARK}Exception: Job aborted due to stage failure: Task 0 in stage 12.0 failed 1"
    " times, most recent failure: Lost task 0.0 in stage 12.0 (TID 23)"
    " (192.0.2.2 executor driver): "
)
TOLD = (
    'delvec-violation:{"constraint":"c","message":"constraint c demands a > \'{\'",'
    '"names":["a","b"],"values":["}\\"","NULL"]} SQLSTATE: P0001\n\tat org.apache.Spark\n'
)
CAUSE = "\n\tat z\nCaused by: java."
NESTED = f"a{CAUSE}lang.IllegalStateException: b{CAUSE}lang.RuntimeException: innermost\n\tat z"
DENIED = "/t/f.parquet (Permission denied)"
OVERFLOW = "[CAST_OVERFLOW] The value 3L cannot be cast."
JSON = "com.fasterxml.JsonParseException: Unrecognized token 'private': was expecting null"
PYTHON = (
    "org.apache.spark.api.python.PythonException: "
    'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise\n'
)
# What Py4J tells, and the error: its class and its words before the name of the table.
CASES: list[tuple[str, type[DelvecError], str]] = [
    (
        f"{JOB}{SPARK}RuntimeException: [USER_RAISED_EXCEPTION] {TOLD}",
        ConstraintError,
        "constraint c demands a > '{', found a row with a = }\", b = NULL; nothing was written to",
    ),
    (
        f"{JOB}java.io.IOException: No space left on device\n\tat java.base/x",
        *(StorageError, "No space left on device"),
    ),
    (
        f"{JOB}java.io.IOException: Mkdirs failed to create file:/t/_temporary (exists=false)",
        *(StorageError, "Mkdirs failed to create file:/t/_temporary (exists=false)"),
    ),
    (
        f"{CALL}{SPARK}Exception: x{CAUSE}io.FileNotFoundException: {DENIED}\n\tat z",
        *(StorageError, DENIED),
    ),
    (
        f"{JOB}{SPARK}ArithmeticException: {OVERFLOW} SQLSTATE: 22003\n\tat x",
        *(InvalidArgumentError, OVERFLOW),
    ),
    (f"{CALL}{SPARK}Exception: {NESTED}", EngineError, "innermost"),
    (
        f"{CALL}java.lang.IllegalArgumentException: the vector is gone\nHint: look\n\tat x",
        *(EngineError, "the vector is gone"),
    ),
    (f"{JOB}{PYTHON}ValueError: own words\n\n\tat x", *(EngineError, "ValueError: own words")),
    (f"{CALL}{JSON}\n\tat x", *(EngineError, "Unrecognized token : was expecting null")),
    ("", EngineError, "Py4JError"),
]


@pytest.mark.parametrize(("text", "kind", "message"), CASES)
def test_the_short_cause_comes_first(text: str, kind: type[DelvecError], message: str) -> None:
    with pytest.raises(DelvecError) as failure, translate_errors("lake/t"):
        raise Py4JError(text)
    assert type(failure.value) is kind
    end = " lake/t" if message.endswith("to") else " (table lake/t)"
    assert failure.value.message == message + end
    assert isinstance(failure.value.__cause__, Py4JError)
    if "Hint" in text:
        assert failure.value.hint == "look"


def test_a_jvm_that_is_gone_is_a_failure_of_the_engine() -> None:
    with pytest.raises(EngineError, match="Answer from Java side is empty"), translate_errors("t"):
        raise Py4JNetworkError("Answer from Java side is empty")


def fail_in_a_block() -> None:
    with translate_errors("t"):
        raise Py4JError("boom")


def interrupted_in_a_block() -> None:
    with translate_errors("t"):
        try:
            raise KeyboardInterrupt
        finally:
            raise Py4JError("cancelled")


def test_an_interrupt_is_one_only_if_it_came_inside_the_block() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_in_a_block()
    try:
        raise KeyboardInterrupt  # noqa: TRY301
    except KeyboardInterrupt:
        with pytest.raises(EngineError, match="boom"):
            fail_in_a_block()


def test_loggers_are_prepared_once_and_those_of_others_stay_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with quiet():
        pass
    changed: list[object] = []
    monkeypatch.setattr(logging, "setLoggerClass", changed.append)
    with quiet(), quiet():
        pass
    assert changed == []
