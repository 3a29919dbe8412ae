"""Wrong calls, explained: unknown keywords, methods of other libraries, values of another type.

Keywords of delta-spark and deltalake that only have another name are taken as they are. For a
method the error is an `AttributeError` whose hint names the one that was meant, by `delvec.peers`.
Python's own errors name nothing, and a string where a number belongs would fail later, or not at
all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from delvec.errors import InvalidArgumentError, UnknownNameError
from delvec.peers import hint_for, plain

# Keywords in lower case without underscores, and what they are called here.
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "condition": ("where", "on"),
    "predicate": ("where", "on", "condition"),
    "filter": ("where",),
    "filters": ("where",),
    "replacewhere": ("where",),
    "updates": ("set", "values"),
    "newvalues": ("set", "values"),
    "source": ("df",),
    "data": ("df",),
    "usermetadata": ("commit_metadata",),
    "custommetadata": ("commit_metadata",),
    "overwriteschema": ("replace_schema",),
    "partitioncolumns": ("partition_by",),
    "configuration": ("properties",),
    "versionasof": ("version",),
    "timestampasof": ("timestamp",),
    "startingversion": ("start_version",),
    "endingversion": ("end_version",),
    "startingtimestamp": ("start_timestamp",),
    "endingtimestamp": ("end_timestamp",),
}
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
_EXAMPLE: Final = '"id < 10"'
_OF_CONDITION: Final = re.compile(r"(, )?(\w+=)?\{\}")


def explained_call(
    options: type[Any] | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator: a function refuses keywords and plain values that it does not take.

    Keywords that other libraries have for the same are taken, see `_KEYWORDS`.
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


def explained_class(options: type[Any] | None = None) -> Callable[[_Class], _Class]:
    """Return a decorator that does as `explained_call` for all public methods of a class.

    Names that its objects do not have are explained as well.
    """
    explained = explained_call(options)

    def decorate(kind: _Class) -> _Class:
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if name.startswith("_"):
                continue
            if isinstance(member, classmethod | staticmethod):
                setattr(kind, name, type(member)(explained(member.__func__)))
            elif inspect.isfunction(member):
                setattr(kind, name, explained(member))
        kind.__getattr__ = _explain_attribute
        return kind

    return decorate


def require_condition(call: str, value: object, *, tuples: bool = False) -> None:
    """Check that a condition is SQL or a column of Spark; None is none."""
    if value is None or isinstance(value, str):
        return
    from pyspark.sql import Column, DataFrame  # noqa: PLC0415

    if isinstance(value, Column):
        return
    accepted = "tuples, SQL or a Spark Column" if tuples else "SQL or a Spark Column"
    hint = f"call {call.format(_EXAMPLE)}"
    if isinstance(value, bool):
        hint = f"""call {call.format('"true"' if value else '"false"')}"""
        if value and not call.startswith("merge"):
            hint = f"for all rows call {_OF_CONDITION.sub('', call)} without a condition"
    elif isinstance(value, DataFrame):
        hint = "rows that another DataFrame names: merge(df, 't.id = s.id')"
        if call.startswith("delete"):
            hint = 'the rows of these keys: call delete(keys=df, on=["id"])'
    elif (sql := _as_sql(value)) is not None:
        hint = f"tuples are for to_arrow(); call {call.format(repr(sql))}"
    name = call.partition("(")[0]
    raise InvalidArgumentError(
        f"a condition of {name}() is {accepted}, not {describe_value(value)}", hint=hint
    )


def describe_value(value: object) -> str:
    """Return a value for a message, or what it is if it is too long to be shown.

    >>> describe_value([("id", "<", 10)]), describe_value(object())
    ("[('id', '<', 10)]", 'an object')
    """
    kind = type(value)
    text = ""
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return "an int of many digits"  # Python does not print some
    if isinstance(value, str | int | float | list | tuple | dict):
        text = repr(value)
    if value is None or 0 < len(text) <= _SHOWN:
        return repr(value)
    module = kind.__module__.partition(".")[0]
    article = "an" if kind.__name__[0].lower() in "aeiou" else "a"
    return f"{article} {kind.__name__}" + ("" if module == "builtins" else f" of {module}")


def keyword_meant(keyword: str, known: Iterable[str]) -> str | None:
    """Return the keyword that another library's name or another case stands for, if it is one.

    >>> keyword_meant("predicate", ["set", "where"]), keyword_meant("wher", ["set", "where"])
    ('where', None)
    """
    key, names = plain(keyword), list(known)
    meant = [each for each in _KEYWORDS.get(key, ()) if each in names]
    meant = meant or [each for each in names if plain(each) == key]
    return meant[0] if meant else None


class Explained(type):
    """The metaclass of classes whose unknown names are explained, as `DeltaTable.forPath`."""

    if not TYPE_CHECKING:  # to a type checker these names do not exist

        def __getattr__(cls, name: str) -> Any:  # noqa: ANN401
            raise explain_name(cls, name)


def explain_name(
    owner: type | ModuleType, name: str, *, done: str = "", undo: str = ""
) -> AttributeError:
    """Return the error for a name that a class, or the package, does not have.

    A builder of another library runs nothing before its last method; here the first call has run
    by then. `done` says what it did, and `undo` how to take that back.

    >>> class DeltaTable:
    ...     def to_df(self): ...
    >>> print(explain_name(DeltaTable, "toDF"))
    DeltaTable has no toDF
    Hint: call to_df()
    """
    is_class = isinstance(owner, type)
    message = f"module {owner.__name__!r} has no attribute {name!r}"
    if is_class:
        message = f"{owner.__name__} has no {name}"
    if name.startswith("_"):
        return AttributeError(message)
    own = [each for each in dir(owner) if not each.startswith("_")]
    alike = [each for each in own if plain(each) == plain(name)]
    hint = None if alike else hint_for(owner.__name__, name)
    if hint and done:
        message, hint = f"{message}: this is a report of what was done, {done}", f"{hint}{undo}"
    for meant in [] if hint else alike or get_close_matches(name, own, 1):
        is_method = is_class and callable(getattr(owner, meant))
        hint = f"call {meant}()" if is_method else f"it is called {meant}"
    error = UnknownNameError(message, hint=hint)
    error.name = None  # with a name some versions of Python add a suggestion of their own
    return error


def called_property(name: str) -> InvalidArgumentError:
    """Return the error for a property that is called, as deltalake's method of that name."""
    return InvalidArgumentError(
        f"{name} is a property, and no method", hint=f"write t.{name}, without parentheses"
    )


def _explain_attribute(self: object, name: str) -> None:
    raise explain_name(type(self), name)


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
    raise InvalidArgumentError(
        f"{keyword} of {name}() is {what}, not {describe_value(value)}", hint=hint
    )


def _as_sql(filters: object) -> str | None:
    """Return tuples such as `[("id", "<", 10)]` as SQL; None if they are something else."""
    parts = []
    for each in filters if isinstance(filters, list | tuple) else [None]:
        match each:
            case (str(name), str(operator), bool() | int() | float() | str() as value):
                parts.append(f"{name} {operator} {value!r}")
            case _:
                return None
    return " AND ".join(parts) or None
