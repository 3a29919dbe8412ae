"""The classes that public calls return: reports, plans and details, with their titles."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import delvec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["result_titles", "results_of"]

_NAME: Final = re.compile(r"\b[A-Z]\w+\b")
# These have pages of their own, or are told beside their functions.
_ELSEWHERE: Final = (delvec.DeltaTable, delvec.IcebergTable, delvec.Bitmap)
_FORMATS: Final = {"delta": "Delta", "iceberg": "Iceberg"}


@cache
def result_titles() -> dict[type, str]:
    """Return all classes that public calls return, with their titles, in the order of these."""
    found = dict.fromkeys(each for call in _calls() for each in results_of(call))
    often = Counter(each.__name__ for each in found)
    titles = {each: _title(each, is_unique=often[each.__name__] == 1) for each in found}
    return dict(sorted(titles.items(), key=lambda pair: pair[1]))


def results_of(call: Any) -> list[type]:  # noqa: ANN401
    """Return the classes of delvec that a call's annotation says it returns."""
    result = str(inspect.signature(call).return_annotation)
    module = inspect.unwrap(call).__module__
    classes = [_named(module, name) for name in _NAME.findall(result)]
    return [each for each in classes if each is not None and each not in _ELSEWHERE]


def _calls() -> Iterator[Any]:
    for name in delvec.__all__:
        if inspect.isfunction(value := getattr(delvec, name)):
            yield value
    for table in (delvec.DeltaTable, delvec.IcebergTable):
        yield from (call for name, call in inspect.getmembers(table, callable) if name[0] != "_")


def _named(module: str, name: str) -> type | None:
    """Return what a name means in a module: two classes may have the same one."""
    if not module.startswith("delvec"):
        return None
    if (source := _imports(module).get(name)) is not None:
        return _named(source, name)
    found = getattr(import_module(module), name, None)
    return found if inspect.isclass(found) and found.__module__ == module else None


@cache
def _imports(module: str) -> dict[str, str]:
    """Return the module that each name is imported from, also for the type checker only."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _title(value: type, *, is_unique: bool) -> str:
    if is_unique:
        return value.__name__
    return f"{value.__name__} of {_FORMATS[value.__module__.split('.')[1]]} tables"
