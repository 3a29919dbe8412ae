"""The reference of the Python interface, from `__all__`, signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any, Final

import delvec
from delvec.conversion.planning.options import Choices
from delvec.delta.write.transaction import WriteOptions
from website.docstrings import first_line, markdown
from website.results import result_titles, results_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["api_pages"]

_WIDTH: Final = 88


def api_pages() -> dict[str, str]:
    """Return the pages by their names."""
    functions = _functions()
    pages = {
        "delvec": _page("delvec", markdown(delvec), _items(delvec, functions)),
        "delta-table": _class_page(delvec.DeltaTable, [WriteOptions]),
        "iceberg-table": _class_page(delvec.IcebergTable, []),
        "reports": _page(
            "Reports, plans and details",
            "What calls return. All print as text; programs use their fields, or `to_json()`.",
            (_class(each, 2, title) for each, title in result_titles().items()),
        ),
        **{
            name: _page(f"delvec.{name}", markdown(module), _items(module, module.__all__))
            for name in ("vector", "storage", "errors")
            if (module := getattr(delvec, name))
        },
    }
    pages["delvec"] += "\n" + _class(Choices, 2)
    return pages


def _functions() -> list[str]:
    return [name for name in delvec.__all__ if inspect.isfunction(getattr(delvec, name))]


def _page(title: str, text: str, items: Iterator[str]) -> str:
    return "\n\n".join([f"# {title}", text, *items]) + "\n"


def _items(module: object, names: list[str]) -> Iterator[str]:
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield _class(value, 2)
        elif inspect.isfunction(value):
            yield _function(name, value, 2)
        elif inspect.ismodule(value):
            yield f"## {name}\n\n{markdown(value)}"
            yield from _items(value, list(getattr(value, "__all__", [])))
        else:
            yield f"## {name}\n\n`{value!r}`"


def _class_page(value: type, options: list[type]) -> str:
    """Return the page of a table: its methods by the class that defines them, with its purpose."""
    parts = [f"# {value.__name__}", markdown(value)]
    for owner in value.__mro__:
        names = [name for name in vars(owner) if not name.startswith("_")]
        methods = [_member(owner, name, 3) for name in names]
        if found := [text for text in methods if text]:
            title = first_line(owner).removesuffix(".") if owner is not value else "Members"
            parts += [f"## {title.replace('`', '')}", *found]
    parts += [_class(each, 2) for each in options]
    return "\n\n".join(parts) + "\n"


def _class(value: type, level: int, title: str = "") -> str:
    parts = [f"{'#' * level} {title or value.__name__}", markdown(value)]
    if "**Attributes**" not in parts[1]:
        parts.append(_fields(value))
    names = [name for name in vars(value) if not name.startswith("_")]
    parts += [_member(value, name, level + 1) for name in names]
    return "\n\n".join(part for part in parts if part)


def _fields(value: type) -> str:
    if dataclasses.is_dataclass(value):
        pairs = [(each.name, each.type) for each in dataclasses.fields(value)]
    else:
        pairs = list(vars(value).get("__annotations__", {}).items())
    shown = [f"- `{name}`: `{_text(kind)}`" for name, kind in pairs if not name.startswith("_")]
    return "**Fields**\n\n" + "\n".join(shown) if shown else ""


def _member(owner: type, name: str, level: int) -> str:
    value = inspect.getattr_static(owner, name)
    if isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
        return _function(name, getattr(owner, name), level)
    if isinstance(value, property) or hasattr(value, "func"):
        return f"{'#' * level} {name}\n\n{markdown(value)}"
    return ""


def _function(name: str, value: Any, level: int) -> str:  # noqa: ANN401
    parts = [f"{'#' * level} {name}", f"```python\n{_signature(name, value)}\n```", markdown(value)]
    titles = [result_titles()[each] for each in results_of(value) if each in result_titles()]
    if titles:
        links = [f"[{each}](reports.md#{each.lower().replace(' ', '-')})" for each in titles]
        parts.append(f"Returns {' or '.join(links)}.")
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, value: Any) -> str:  # noqa: ANN401
    """Return a call with its parameters, one in a line if they do not fit into one."""
    signature = inspect.signature(value)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    result = signature.return_annotation
    arrow = "" if result is inspect.Signature.empty else f" -> {_text(result)}"
    shown: list[str] = []
    for each in parameters:
        only = each.kind is inspect.Parameter.KEYWORD_ONLY
        if only and "*" not in shown and not any(text.startswith("*") for text in shown):
            shown.append("*")
        shown.append(str(each).replace("'", '"') if "Literal" in str(each) else _text(each))
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){arrow}"


def _text(value: object) -> str:
    text = value.__name__ if inspect.isclass(value) else str(value)
    return re.sub(r"'(.*?)'", r"\1", text) if "Literal" not in text else text
