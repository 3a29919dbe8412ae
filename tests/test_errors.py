from __future__ import annotations

import inspect
import pickle

import pytest

from delvec import errors
from delvec.errors import DelvecError, FormatError, add_location

ALL = [
    kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, DelvecError) and not name.startswith("_")
]
FACTS = {
    "path": "dv.bin",
    "offset": 1,
    "expected": 36,
    "found": 35,
    "table": "t",
    "version": 7,
    "constraint": "positive",
    "uri": "s3://b/k",
    "feature": "x",
    "needed_by": "y",
    "files": ("a", "b"),
    "dependency": "g:a:v",
}
BUILTINS = {
    errors.FormatError: ValueError,
    errors.InvalidArgumentError: ValueError,
    errors.ConstraintError: ValueError,
    errors.TableNotFoundError: LookupError,
    errors.StorageError: OSError,
    errors.ObjectNotFoundError: FileNotFoundError,
    errors.ObjectExistsError: FileExistsError,
    errors.UnsupportedFeatureError: NotImplementedError,
    errors.MissingDependencyError: ImportError,
}


def make(kind: type[DelvecError]) -> DelvecError:
    names = inspect.signature(kind).parameters
    facts = {name: value for name, value in FACTS.items() if name in names}
    return kind("it went wrong", hint="run `delvec check`", **facts)


@pytest.mark.parametrize("kind", ALL)
def test_errors_end_in_a_hint_and_cross_processes_with_their_facts(kind: type[DelvecError]) -> None:
    error = make(kind)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), vars(copy), str(copy)) == (kind, vars(error), str(error))
    assert str(pickle.loads(pickle.dumps(kind("bare")))) == "bare"  # noqa: S301
    assert str(error).startswith("it went wrong")
    assert str(error).endswith("\nHint: run `delvec check`")


def test_all_errors_are_exported_and_are_the_builtin_that_fits() -> None:
    assert {kind.__name__ for kind in ALL} == set(errors.__all__)
    for kind, builtin in BUILTINS.items():
        assert issubclass(kind, builtin)


def test_a_format_error_gathers_where_as_it_unwinds() -> None:
    with pytest.raises(FormatError) as failure, add_location("dv.bin", 100), add_location(None, 10):
        raise FormatError("bad", offset=3)
    assert (failure.value.path, failure.value.offset) == ("dv.bin", 113)
    with pytest.raises(FormatError) as failure, add_location("out", 100), add_location("in", 10):
        raise FormatError("bad")
    assert (failure.value.path, failure.value.offset) == ("in", 10)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "text", ["a\x1b[2J\x9b", "a\nHint: rm", "\u202ea", "a" * 10**6, "\r" * 5000]
)
def test_text_of_a_table_does_not_act(kind: type[DelvecError], text: str) -> None:
    names = inspect.signature(kind).parameters
    facts = {name: text for name in ("path", "expected", "found") if name in names}
    for error in (kind(text, hint=text, **facts), DelvecError(text, hint=text)):
        shown = str(error)
        assert all(line.isprintable() for line in shown.split("\n"))
        assert shown.count("\n") == 1  # before the hint
        assert all(len(part.removeprefix("Hint: ")) <= 2000 for part in shown.split("\n"))
        assert error.message == text


def test_the_output_of_a_jvm_keeps_its_lines() -> None:
    error = errors.EngineError("it did not start", output="one\n\ttwo \x1b[0m\n", hint="h")
    assert str(error) == "it did not start\none\n        two \\x1b[0m\nHint: h"
