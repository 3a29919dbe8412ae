"""Calls with keywords and plain values that a function does not take: an error that helps.

Keywords that other libraries have for the same argument are taken.

Python's own error for an unknown keyword does not tell which one was meant, and a string where a
number belongs fails somewhere else, later, or not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from delvec.errors import InvalidArgumentError
from delvec.spellings import keyword_meant, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["explained_call", "explained_calls", "shown"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound="type[Any]")

_SHOWN: Final = 60
_OWN: Final = ("self", "cls")
_MAPPING: Final = (Mapping, "a mapping, such as {'key': 'value'}")
# Annotations whose values can be checked as they are.
_TYPES: Final[Mapping[str, tuple[Any, str]]] = {
    "bool": (bool, "True or False"),
    "str": (str, "a string"),
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "Mapping[str, Any]": _MAPPING,
    "Mapping[str, str]": _MAPPING,
    "Mapping[str, object]": _MAPPING,
    "Iterable[str]": (Iterable, "a list of strings"),
    "Sequence[str]": ((list, tuple), "a list of strings"),
}


def explained_call(
    options: type[Any] | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator: a function refuses keywords and plain values that it does not take.

    Keywords that other libraries have for the same are taken, see `spellings`.

    Args:
        options: The keywords of `**options`, a typed dictionary.
    """
    more = {} if options is None else options.__annotations__
    keywords = {key: getattr(each, "__forward_arg__", str(each)) for key, each in more.items()}

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature, name = inspect.signature(function), function.__name__
        parameters = [each for each in signature.parameters.values() if each.name not in _OWN]
        named = [each for each in parameters if each.kind != each.VAR_KEYWORD]
        [rest] = [each.name for each in parameters if each.kind == each.VAR_KEYWORD] or [""]
        types = {each.name: str(each.annotation) for each in named} | (keywords if rest else {})

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if kwargs.keys() - types:
                kwargs = _translated(name, kwargs, list(types))  # type: ignore[assignment]
            given: dict[str, Any] = {}
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                positional = len(args) + len(named) - len(signature.parameters) + bool(rest)
                _refuse_arguments(name, str(error), named, positional, kwargs, list(types))
            for keyword, value in {**given, **given.get(rest, {})}.items():
                _require_type(name, keyword, value, types.get(keyword, ""))
            return function(*args, **kwargs)

        return call

    return decorate


def explained_calls(options: type[Any] | None = None) -> Callable[[_Class], _Class]:
    """Return a decorator that does the same for all public methods of a class."""
    explained = explained_call(options)

    def decorate(kind: _Class) -> _Class:
        for name, member in list(vars(kind).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, classmethod | staticmethod):
                setattr(kind, name, type(member)(explained(member.__func__)))
            elif inspect.isfunction(member):
                setattr(kind, name, with_parts(explained(member)))
        return kind

    return decorate


def _translated(name: str, given: Mapping[str, object], known: Sequence[str]) -> dict[str, object]:
    """Return keywords under their own names; refuse one that is unknown, or given twice."""
    keywords: dict[str, object] = {}
    for keyword, value in given.items():
        meant = keyword if keyword in known else keyword_meant(keyword, known)
        if meant is None:
            near = get_close_matches(keyword, known, 1)
            raise InvalidArgumentError(
                f"{name}() has no keyword {keyword!r}, only {', '.join(known)}",
                hint=f"call {name}({near[0]}=...)" if near else None,
            )
        if meant in keywords:
            raise InvalidArgumentError(
                f"{name}() got {meant!r} twice, as {keyword!r} too",
                hint=f"call {name}({meant}=...)",
            )
        keywords[meant] = value
    return keywords


def _refuse_arguments(
    name: str,
    problem: str,
    parameters: Sequence[inspect.Parameter],
    positional: int,
    keywords: Mapping[str, object],
    known: Sequence[str],
) -> None:
    """Raise what is wrong with arguments; what the hint calls keeps all that were given."""
    first = [each.name for each in parameters if each.kind != each.KEYWORD_ONLY]
    if positional > len(first):
        takes = f"only {', '.join(first)} without a name" if first else "keywords only"
        others = ", ".join(f"{each}=..." for each in known if each not in first)
        raise InvalidArgumentError(
            f"{name}() takes {takes}, got {positional} such arguments",
            hint=f"name the others: {others}" if others else None,
        ) from None
    hint = None
    if problem.startswith("missing"):
        needed = [each.name for each in parameters if each.default is each.empty]
        needed += first[len(needed) : positional]
        named = [f"{each}=..." for each in keywords if each not in needed]
        hint = f"call {name}({', '.join([*needed, *named])})"
    raise InvalidArgumentError(f"{name}(): {problem}", hint=hint) from None


def _require_type(name: str, keyword: str, value: object, annotation: str) -> None:
    wanted = annotation.removesuffix(" | None")
    if wanted not in _TYPES or (value is None and wanted != annotation):
        return
    kind, what = _TYPES[wanted]
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        is_list = isinstance(value, list | tuple) and wanted.endswith("[str]")
        if not is_list or all(isinstance(each, str) for each in value):
            return
    is_one = isinstance(value, str) and wanted == "Sequence[str]"
    hint = f"call {name}({keyword}=[{value!r}])" if is_one else None
    raise InvalidArgumentError(f"{keyword} of {name}() is {what}, not {shown(value)}", hint=hint)


def shown(value: object) -> str:
    """Return a value for a message, or what it is if it is too long to be shown.

    >>> shown([("id", "<", 10)]), shown(object())
    ("[('id', '<', 10)]", 'an object')
    """
    kind = type(value)
    text = repr(value) if isinstance(value, str | int | float | list | tuple | dict) else ""
    if value is None or 0 < len(text) <= _SHOWN:
        return repr(value)
    module = kind.__module__.partition(".")[0]
    article = "an" if kind.__name__[0].lower() in "aeiou" else "a"
    return f"{article} {kind.__name__}" + ("" if module == "builtins" else f" of {module}")
