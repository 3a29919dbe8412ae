"""What Python sources use of delta-spark and deltalake: names resolved by their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from delvec.compat import exceptions
from delvec.migration.sql import PLACE, shortened, statement_uses
from delvec.migration.uses import Use, Verdict
from delvec.peers import DELTA_SPARK, DELTALAKE, Library, names, plain, rule_for, unquoted
from delvec.statements.clauses import split_statements

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_HOMES: Final = {
    **dict.fromkeys(("delta", "delta.tables", "delta.pip_utils"), "delvec.compat.delta_spark"),
    "delta.exceptions": "delvec.compat.exceptions",
}
_CLASSES: Final[Mapping[Library, Mapping[str, Mapping[str, str]]]] = {
    "delta-spark": DELTA_SPARK,
    "deltalake": DELTALAKE,
}
_ERRORS: Final = "`delvec.errors`: `ConflictError`, `TableNotFoundError`, … of `DelvecError`"


@dataclass(frozen=True)
class _Name:
    """What an expression means.

    A module; a member of a library or a class of it; an object; or a function of the source itself
    that returns one.
    """

    kind: Literal["module", "member", "object", "function"]
    library: Library
    owner: str  # a module, or a class; empty for members of a library
    member: str = ""


@dataclass
class _Scope:
    """The names of a module or a function, by their texts, such as `self.table`."""

    outer: _Scope | None = None
    names: dict[str, _Name | None] = field(default_factory=dict)
    texts: dict[str, ast.expr] = field(default_factory=dict)

    def name(self, text: str) -> _Name | None:
        if text in self.names or self.outer is None:
            return self.names.get(text)
        return self.outer.name(text)

    def text(self, name: str) -> ast.expr | None:
        if name in self.texts or self.outer is None:
            return self.texts.get(name)
        return self.outer.text(name)


def is_python(text: str) -> bool:
    """Tell whether a text is Python, and not SQL."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def python_uses(file: str, text: str) -> Iterator[Use]:
    """Yield what a source uses; of one that Python cannot parse, that."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        yield Use(file, line, "the file", "rewrite", f"Python cannot parse it: {error}")
        return
    reader = _Reader(file)
    reader.visit(tree)
    yield from reader.found


class _Reader(ast.NodeVisitor):
    """Walks over a source in its order and gathers uses."""

    def __init__(self, file: str) -> None:
        self.found: list[Use] = []
        self._file = file
        self._scope = _Scope()
        self._chained: set[ast.AST] = set()  # calls of a chain that is told already
        self._called: set[ast.AST] = set()
        self._modules: set[str] = set()  # of others: duckdb.sql is none of Spark's
        self._told: set[ast.AST] = set()  # constants that are no settings

    def _add(self, node: ast.expr | ast.stmt, what: str, verdict: Verdict, write: str = "") -> None:
        # A call in a chain is where its name is.
        func = node.func if isinstance(node, ast.Call) else None
        line = func.end_lineno if isinstance(func, ast.Attribute) else None
        self.found.append(Use(self._file, line or node.lineno, what, verdict, unquoted(write)))

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            library = _library_of(each.name)
            bound = each.asname or each.name.partition(".")[0]
            if library is None:
                self._modules.add(bound)
                continue
            self._scope.names[bound] = _Name("module", library, each.name if each.asname else bound)
            what = f"import {ast.unparse(each)}"
            if library == "deltalake":
                self._add(node, what, "rewrite", "`import delvec`")
            else:
                self._module(node, what, each.name, each.asname)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        library = None if node.level else _library_of(module)
        if library is None:
            return
        listed = []
        for each in node.names:
            inner, bound = f"{module}.{each.name}", each.asname or each.name
            if inner in _HOMES:
                self._scope.names[bound] = _Name("module", library, inner)
                self._module(node, f"from {module} import {ast.unparse(each)}", inner, bound)
                continue
            listed.append(each)
            public = _public(library) if each.name == "*" else {each.name}
            for name in public:
                self._scope.names[bound if each.name != "*" else name] = _member(library, "", name)
        if listed and library == "delta-spark":
            self._members(node, module, listed)
        elif listed:
            write = _ERRORS if module.endswith("exceptions") else "`from delvec import DeltaTable`"
            self._add(node, ast.unparse(node), "rewrite", write)

    def _module(self, node: ast.stmt, what: str, module: str, alias: str | None) -> None:
        package, _, name = _HOMES.get(module, "").rpartition(".")
        if not name:
            self._add(node, what, "rewrite", f"delvec has no {module}")
            return
        write = f"from {package} import {name}{f' as {alias}' if alias else ''}"
        self._add(node, what, "import", f"`{write}`")

    def _members(self, node: ast.stmt, module: str, listed: list[ast.alias]) -> None:
        home = _HOMES.get(module)
        known = set(exceptions.__all__) if home == exceptions.__name__ else _public("delta-spark")
        unknown = [each.name for each in listed if each.name not in {*known, "*"}]
        told = ", ".join(map(ast.unparse, listed))
        what = f"from {module} import {told}"
        if home is None or unknown:
            missing = ", ".join(unknown if home else [module])
            self._add(node, what, "rewrite", f"delvec has no {missing}")
        else:
            self._add(node, what, "import", f"`from {home} import {told}`")

    def visit_FunctionDef(self, node: _Function) -> None:
        returned = self._annotated(node.returns)
        self._scope.names[node.name] = returned and replace(returned, kind="function")
        self._scope = _Scope(self._scope)
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            # A parameter hides what has its name outside.
            self._scope.names[each.arg] = self._annotated(each.annotation)
        self.generic_visit(node)
        outer = self._scope.outer
        # Attributes of objects live on: self.table of another method is the same.
        kept = {text: name for text, name in self._scope.names.items() if "." in text}
        if outer is not None:
            outer.names.update(kept)
            self._scope = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - as `ast` calls it

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._assign(node.target, node.value)
        found = self._annotated(node.annotation)
        if found is not None:
            self._scope.names[ast.unparse(node.target)] = found

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._assign(node.target, node.value)

    def visit_withitem(self, node: ast.withitem) -> None:
        self.generic_visit(node)
        if node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name | ast.Attribute):
            text = ast.unparse(target)
            self._scope.names[text] = self._meaning(value)
            self._scope.texts[text] = value

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str) or node in self._told:
            return
        self._broken("string", node.value, node, repr(node.value))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._broken("jvm", ast.unparse(node), node):
            return
        found = None if node in self._called else self._meaning(node)
        if found is not None and (found.owner, plain(found.member)) in names(found.library):
            self._tell(node, found)  # a property of deltalake
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._called.add(node.func)
        found = self._meaning(node.func)
        if found is not None and found.kind == "member":
            self._tell(node, found)
        self._chain(node)
        self._statement(node)
        self.generic_visit(node)

    def _tell(self, node: ast.expr, found: _Name) -> None:
        what = ".".join(part for part in (found.owner, found.member) if part)
        if found.library == "delta-spark":
            inside = (*node.args, *node.keywords) if isinstance(node, ast.Call) else ()
            if not self._broken("call", f"{what}({_listed(inside)})", node):
                self._add(node, what, "import")
        elif found.owner == "TableMerger":
            self._add(node, what, "as is")
        else:
            known = names("deltalake")
            keys = (found.owner, plain(found.member)), ("", plain(found.owner))
            told = next((known[key] for key in keys if key in known), "see docs/migrating.md")
            self._add(node, what, "rewrite", told)

    def _chain(self, node: ast.Call) -> None:
        """Tell a reader or writer of Delta, once for all of its calls."""
        if node in self._chained:
            return
        parts: list[list[ast.Call]] = [[]]  # of a writer, and of the reader before it
        part: ast.expr = node
        while isinstance(part, ast.Call | ast.Attribute):
            if isinstance(part, ast.Call):
                parts[-1].append(part)
                self._chained.add(part)
                part = part.func
            else:
                if part.attr in ("write", "writeStream"):
                    parts.append([])
                part = part.value
        ours = [calls for calls in parts if any(map(_names_delta, calls))]
        if ours and not any(
            self._broken("chain", f"{_attribute(each)}({_listed(each.args)})", each)
            for calls in ours
            for each in calls
        ):
            self._add(node, shortened(ast.unparse(node)), "door")

    def _broken(self, of: str, text: str, node: ast.expr, what: str | None = None) -> bool:
        """Tell what breaks a rule, and say whether it does."""
        rule = rule_for(of, text)
        if rule is not None:
            self._add(node, shortened(what or text), "rewrite", rule.instead)
        return rule is not None

    def _statement(self, node: ast.Call) -> None:
        """Tell the statements of spark.sql, as far as they are written in the source."""
        called = _attribute(node) or (node.func.id if isinstance(node.func, ast.Name) else "")
        texts = [*node.args, *(each.value for each in node.keywords if each.arg == "sqlQuery")]
        value = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_others = isinstance(value, ast.Name) and value.id in self._modules
        if called != "sql" or not texts or is_others:
            return
        given = texts[0]
        text = self._text(given, depth=8)
        if text is None or not text.replace(PLACE, "").strip():
            return
        self._told |= {each for each in ast.walk(given) if isinstance(each, ast.Constant)}
        for each in split_statements(text):
            self.found += statement_uses(self._file, given.lineno, each)

    def _text(self, node: ast.expr | None, depth: int) -> str | None:
        """Return a string as written, with marks for values; None if nothing of it is."""
        text: str | None = None
        if node is None or depth == 0:
            return text
        match node:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=parts):
                text = "".join(self._text(each, depth - 1) or PLACE for each in parts)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                found = [self._text(each, depth - 1) for each in (left, right)]
                text = "".join(each or PLACE for each in found) if any(found) else None
            case ast.BinOp(left=left, op=ast.Mod()):
                text = re.sub(r"%[sdr]", PLACE, self._text(left, depth - 1) or "")
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                text = re.sub(r"\{[^{}]*\}", PLACE, self._text(value, depth - 1) or "")
            case ast.Call(func=ast.Attribute(value=value, attr="strip")):
                text = self._text(value, depth - 1)
            case ast.Name(id=name):
                text = self._text(self._scope.text(name), depth - 1)
        return text

    def _meaning(self, node: ast.expr) -> _Name | None:
        """Return what an expression means, if it is something of the libraries."""
        match node:
            case ast.Name(id=name):
                return self._scope.name(name)
            case ast.Attribute(value=value, attr=attr):
                own = self._scope.name(ast.unparse(node))
                found = own or self._meaning(value)
                return found if own or found is None else _attribute_of(found, attr)
            case ast.Call(func=func):
                return _as_result(self._meaning(func))
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self._meaning(value)
        return None

    def _annotated(self, node: ast.expr | None) -> _Name | None:
        """Return an object of the class that an annotation names, also in quotes or with None."""
        match node:
            case ast.Constant(value=str(text)):
                try:
                    return self._annotated(ast.parse(text, mode="eval").body)
                except SyntaxError:
                    return None
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._annotated(left) or self._annotated(right)
            case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
                return self._annotated(inner)
            case ast.Name() | ast.Attribute():
                found = self._meaning(node)
                is_class = found is not None and found.kind == "member" and not found.owner
                return _as_result(found) if is_class else None
        return None


def _library_of(module: str) -> Library | None:
    first = module.partition(".")[0]
    return {"delta": "delta-spark", "deltalake": "deltalake"}.get(first)  # type: ignore[return-value]


def _public(library: Library) -> set[str]:
    return {*_CLASSES[library], *_CLASSES[library][""]} - {""}


def _member(library: Library, owner: str, name: str) -> _Name:
    return _Name("member", library, owner, name)


def _attribute_of(found: _Name, attr: str) -> _Name | None:
    if found.kind == "module":
        inner = f"{found.owner}.{attr}"
        if inner in _HOMES or inner in ("deltalake.table", "deltalake.exceptions"):
            return _Name("module", found.library, inner)
        return _member(found.library, "", attr)
    if found.kind == "member":  # of a class, such as DeltaTable.forPath
        return None if found.owner else _member(found.library, found.member, attr)
    part = _CLASSES[found.library].get(found.owner, {}).get(attr, "")
    if found.library == "deltalake" and attr in ("alter", "optimize"):
        return _Name("object", found.library, part)
    return _member(found.library, found.owner, attr)


def _as_result(found: _Name | None) -> _Name | None:
    """Return what a call of something returns."""
    if found is None or found.kind not in ("member", "function"):
        return None
    if found.kind == "function":
        return replace(found, kind="object")
    classes = _CLASSES[found.library]
    if not found.owner:
        return _Name("object", found.library, found.member) if found.member in classes else None
    known = classes.get(found.owner, {})
    is_builder = found.owner.endswith(("Builder", "Merger"))
    returned = known.get(found.member, found.owner if is_builder else "")
    return _Name("object", found.library, returned) if returned else None


def _names_delta(call: ast.Call) -> bool:
    given = call.args[:1] if _attribute(call) in ("format", "using") else []
    given += [each.value for each in call.keywords if each.arg in ("format", "source")]
    return any(isinstance(each, ast.Constant) and each.value == "delta" for each in given)


def _listed(nodes: Sequence[ast.AST]) -> str:
    return ", ".join(map(ast.unparse, nodes))


def _attribute(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
