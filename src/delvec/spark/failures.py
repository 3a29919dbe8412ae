"""Spark's failures as errors of delvec: a short cause first, Spark's exception as `__cause__`.

An exception of an executor reaches the driver as a string. A job that finds a row that violates a
constraint therefore raises a message with a prefix and JSON: `violation` and `fail_on_misfit`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import errors as of_spark
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, functions

from delvec import errors
from delvec.identifiers import QUOTED, quote_if_needed, unquote

_PREFIX: Final = "delvec-violation:"
# With the brace of the JSON: plans in the messages of analysis errors show the prefix as well.
_VIOLATION: Final = re.compile(_PREFIX + r"(?=\{\")")
_SHOWN: Final = 100
_CALL: Final = re.compile(r"^An error occurred while calling [^\n]*\n: ")
_STAGE: Final = re.compile(
    r"^.*?Job aborted due to stage failure: .*?\([^()\n]* executor [^()\n]*\): "
)
_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+([A-Z][\w$]*(?:Exception|Error)): ")
# Of a file that is no JSON: what a link leads to may be private.
_TOKEN: Final = re.compile(r"(?<=Unrecognized token )'[^'\n]*'")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}.*$")
_CAUSED_BY: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
# The last line of a Python traceback is the error itself.
_TRACEBACK: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(\S.*)$", re.MULTILINE
)
# Errors of delvec that were raised in a call from the JVM come back as strings.
_HINT: Final = re.compile(r"^Hint: (.+)$", re.MULTILINE)
_SQL: Final = re.compile(r"^== SQL.*==\n(.*?)\n-*\^\^\^$", re.MULTILINE | re.DOTALL)
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\] ")
_SUGGESTED: Final = re.compile(r"( Did you mean one of the following\? )\[([^\]]*)\]")
_INTERNAL: Final = re.compile(r"`(?:__delvec_\w+|_tmp_metadata_row_index)`$")
_QUOTED_PART: Final = re.compile(QUOTED)
_NO_COLUMN: Final = re.compile(
    r"^\[UNRESOLVED_COLUMN\.\w+\] .*? with name (.+?) cannot be resolved\."
    r"(?: Did you mean one of the following\? \[([^\]]*)\])?"
)
_NO_PATH: Final = re.compile(r"^\[PATH_NOT_FOUND\] Path does not exist: (.+?)\.?(?: SQLSTATE|$)")
_QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# What Py4J logs, with tracebacks, of calls that end without an answer.
_OF_PY4J: Final = frozenset(
    {"Exception while sending command.", "KeyboardInterrupt while sending command."}
)
# Of what the caller wrote, and of values that do not fit.
_ARGUMENTS: Final = (
    of_spark.AnalysisException,
    of_spark.ParseException,
    of_spark.ArithmeticException,
    of_spark.ArrayIndexOutOfBoundsException,
    of_spark.DateTimeException,
    of_spark.NumberFormatException,
)
# The error conditions of values that do not fit, for jobs whose exception is a string only.
_VALUE_CONDITIONS: Final = frozenset(
    {
        "ARITHMETIC_OVERFLOW",
        "CANNOT_PARSE_TIMESTAMP",
        "CAST_INVALID_INPUT",
        "CAST_OVERFLOW",
        "CAST_OVERFLOW_IN_TABLE_INSERT",
        "DIVIDE_BY_ZERO",
        "INVALID_ARRAY_INDEX",
        "NUMERIC_OUT_OF_SUPPORTED_RANGE",
        "NUMERIC_VALUE_OUT_OF_RANGE",
    }
)
_LOST: Final = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND]"
# Substrings of the messages of storage failures, and a hint for each.
_STORAGE: Final = (
    ("No space left on device", "make room on the disk, or set spark.local.dir to another"),
    ("Disk quota exceeded", "make room on the disk, or set spark.local.dir to another"),
    ("Permission denied", "may this user write to the table's folder?"),
    ("AccessDenied", "may these credentials write to the table?"),
    ("AccessControlException", "may this user write to the table's folder?"),
    ("Mkdirs failed to create", "may this user write to the table's folder?"),
    ("ParentNotDirectoryException", "a file is where the table's folder should be"),
    ("Read-only file system", "the table is on a disk that is mounted read-only"),
    ("FAILED_READ_FILE.FILE_NOT_EXIST", "was the file vacuumed? Open the table again"),
    ("FileNotFoundException", "was the file vacuumed? Open the table again"),
)


@contextmanager
def translate_errors(table: str) -> Iterator[None]:
    """Turn failures of Spark inside the block into errors of delvec; these pass as they are."""
    outside = sys.exc_info()[1]
    try:
        with quiet():
            yield
    except errors.DelvecError:
        raise
    except (of_spark.PySparkException, Py4JError) as error:
        if _is_interrupt(error, outside):
            raise KeyboardInterrupt from error
        raise _translated(error, str(error), table) from error
    except ConnectionError as error:
        raise errors.EngineError(
            f"Spark's JVM cannot be reached any more: {error} (table {table})",
            hint="begin a new session; what was committed before stays",
        ) from error


def violation(constraint: str, message: str, values: Mapping[str, Column]) -> Column:
    """Return a boolean column that fails the job when evaluated: a row violates a constraint."""
    return _raised({"constraint": constraint, "message": message}, values).cast("boolean")


def fail_on_misfit(column: str, message: str, value: Column) -> Column:
    """Return a column, of no type, that fails the job: a column cannot hold a value."""
    return _raised({"message": message}, {column: value})


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from logging errors of the block: each would be some 17 kB of JSON.

    PySpark logs an error as soon as it is raised, whoever catches it; errors of other threads and
    outside the block are logged as ever.
    """
    _NOT_OURS.add_once()
    inside = _NOT_OURS.inside
    inside.depth = getattr(inside, "depth", 0) + 1
    try:
        yield
    finally:
        inside.depth -= 1


def jvm_has_ended() -> errors.EngineError:
    """Return the error of a service that cannot reach the JVM of its session any more."""
    hint = "did it get a signal, too? Under systemd set KillMode=mixed"
    return errors.EngineError("the JVM of this session has ended", hint=hint)


def _raised(facts: Mapping[str, str], values: Mapping[str, Column]) -> Column:
    most, null = functions.lit(_SHOWN), functions.lit("NULL")
    cut = [functions.left(value.cast("string"), most) for value in values.values()]
    shown = [functions.coalesce(each, null) for each in cut]
    strings = [functions.lit(value).alias(name) for name, value in facts.items()]
    names = functions.array(*map(functions.lit, values)).cast("array<string>")
    lists = [names.alias("names"), functions.array(*shown).cast("array<string>").alias("values")]
    facts_json = functions.to_json(functions.struct(*strings, *lists))
    return functions.raise_error(functions.concat(functions.lit(_PREFIX), facts_json))


class _NotOurs(logging.Filter):
    """Drops what PySpark and Py4J log of errors in a thread that is inside `quiet`."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = threading.local()
        self._is_added = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "root" and record.msg not in _OF_PY4J:
            return True
        return not getattr(self.inside, "depth", 0)

    def add_once(self) -> None:
        if self._is_added:
            return
        # PySpark makes its loggers by changing the class of all new ones for a moment, in which
        # other threads must not make theirs. Twice is no harm: a filter is added once.
        with logging._lock:  # type: ignore[attr-defined]  # noqa: SLF001
            for name in _QUERY_LOGGERS:
                PySparkLogger.getLogger(name).addFilter(self)
            logging.getLogger().addFilter(self)
            self._is_added = True


_NOT_OURS: Final = _NotOurs()


def _is_interrupt(error: BaseException | None, outside: BaseException | None) -> bool:
    """Return whether Ctrl-C was the cause: PySpark cancels jobs, and reports these as failed."""
    while error is not None and error is not outside:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _translated(error: Exception, message: str, table: str) -> errors.DelvecError:
    if (violated := _violation_error(message, table)) is not None:
        return violated
    cause = _cause(message) or type(error).__name__
    if isinstance(error, of_spark.ParseException) and (shown := _SQL.search(message)):
        return errors.InvalidArgumentError(f"{cause} in {shown[1][:_SHOWN]!r} (table {table})")
    if isinstance(error, _ARGUMENTS):
        known = _no_column(cause, table) or _no_path(cause)
        return known or errors.InvalidArgumentError(f"{cause} (table {table})")
    for substring, hint in _STORAGE:
        if substring in message:
            return errors.StorageError(
                f"{_line_with(message, substring)} (table {table})", uri=table, hint=hint
            )
    condition = _CONDITION.search(cause)
    if condition and condition[1] in _VALUE_CONDITIONS:
        return errors.InvalidArgumentError(f"{cause} (table {table})")
    return _engine_error(cause, message, table)


def _engine_error(cause: str, message: str, table: str) -> errors.EngineError:
    if _LOST in message:
        return errors.EngineError(
            "rows that executors held for the operation were lost with one of them, and nothing was"
            f" changed (table {table})",
            retryable=True,
            hint="run it again; spark.sparkContext.setCheckpointDir(...) names a folder where"
            " staged rows outlive executors",
        )
    hint_line = _HINT.search(message)
    return errors.EngineError(f"{cause} (table {table})", hint=hint_line[1] if hint_line else None)


def _no_column(cause: str, table: str) -> errors.InvalidArgumentError | None:
    found = _NO_COLUMN.match(cause)
    if found is None:
        return None
    written = _unquoted(found[1])
    names = [_unquoted(each) for each in (found[2] or "").split(", ") if each]
    near = get_close_matches(written, names, 2) or names
    return errors.InvalidArgumentError(
        f"there is no column {written} (table {table})",
        hint=f"did you mean {' or '.join(near)}?" if near else None,
    )


def _no_path(cause: str) -> errors.ObjectNotFoundError | None:
    """Return the error for a file or folder that is to be read, and is not there."""
    found = _NO_PATH.match(cause)
    return found and errors.ObjectNotFoundError(f"{found[1]} does not exist", uri=found[1])


def _unquoted(name: str) -> str:
    """Return a name as users write it: `` `t`.`id` `` as `t.id`."""
    return ".".join(quote_if_needed(unquote(part)) for part in _QUOTED_PART.findall(name)) or name


def _violation_error(message: str, table: str) -> errors.DelvecError | None:
    """Return what a job reported of a row, wherever that is in the message of a failure."""
    found = _VIOLATION.search(message)
    if found is None:
        return None
    try:
        facts: dict[str, Any] = json.JSONDecoder().raw_decode(message, found.end())[0]
        values = dict(zip(facts["names"], facts["values"], strict=True))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # a value of a row, or of an expression, that looks like one
    row = ", ".join(f"{name} = {value}" for name, value in values.items())
    shown = f", found a row with {row}" if row else ""
    text = f"{facts.get('message', '')}{shown}; nothing was written to {table}"
    if "constraint" in facts:
        return errors.ConstraintError(text, constraint=facts["constraint"], table=table)
    return errors.InvalidArgumentError(text)


def _cause(message: str) -> str:
    """Return the first line of the innermost cause, without what Py4J and the job add to it."""
    if raised := _TRACEBACK.findall(message):
        return str(raised[-1])
    first = _plain(message)
    deeper = _CAUSED_BY.findall(message)
    if deeper and not _CONDITION.match(first):
        return _plain(deeper[-1])
    return first


def _plain(message: str) -> str:
    message = _CALL.sub("", _without_internal_columns(message.strip()))
    message = _STAGE.sub("", message)
    message = _TOKEN.sub("", _CLASS.sub("", message.split("\n", 1)[0]))
    return _STATE.sub("", message).rstrip(";: ")


def _without_internal_columns(message: str) -> str:
    """Drop columns of our own from the names that Spark suggests for a misspelt one."""

    def own(match: re.Match[str]) -> str:
        names = [name for name in match[2].split(", ") if not _INTERNAL.search(name)]
        return f"{match[1]}[{', '.join(names)}]" if names else ""

    return _SUGGESTED.sub(own, message)


def _line_with(message: str, substring: str) -> str:
    line = next(line for line in message.splitlines() if substring in line)
    line = _STAGE.sub("", line.strip().removeprefix(": ").removeprefix("Caused by: "))
    return _STATE.sub("", _CLASS.sub("", line))
