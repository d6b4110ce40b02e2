"""Parses Python expressions: trees with every name resolved, and every unsupported construct refused.

`ExpressionParser` is the lower half of the parser of `parse`, which adds the statements: it has the file, the names
in reach, and how to refuse what is not in the language.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, ModuleType
from typing import Any

from ...diagnostics.collecting import BROKEN
from ...diagnostics.errors import CompileError, EinkornError, did_you_mean, each_of, unlike
from ...diagnostics.places import Place, is_shipped
from ...diagnostics.syntax_trees import expression_tree
from ...language.imports import of_unknown, with_imports
from ...language.kinds import KINDS
from ...language.stubs import STUBS, UnknownName
from ...types.dtype import DType
from .. import syntax as s
from ..reads import Reads
from .names import BINARY, CLOSED, COMPARE, UNARY, AlreadyReported, Unresolved, names_assigned, names_bound
from .unsupported import UNSUPPORTED

Resolve = Callable[[Any, str, Place], int]


def is_tuple(node: ast.AST) -> bool:
    """Whether an annotation is `tuple[...]`."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "tuple"


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


GENERATOR_CALLS = ("tuple", "sum", "any", "all", "min", "max", "sorted")


class ExpressionParser:
    """Walks expressions; `scopes` are the local names of the functions around the present point.

    An expression with a mistake becomes `syntax.Wrong`, and all around it is still read; `errors` holds the mistakes.
    """

    def __init__(
        self,
        file: str,
        names: dict[str, Any],
        closure: dict[str, Any],
        resolve: Resolve,
        reads: Reads,
        cells: Mapping[str, CellType] | None = None,
    ) -> None:
        self.file = file
        self.lines = linecache.getlines(file)
        self.is_ascii = all(map(str.isascii, self.lines))
        self.names = names
        self.closure = closure
        self.resolve = resolve
        self.reads = reads
        self.cells = cells or {}  # of the variables in `closure`
        self.scopes: list[set[str]] = []
        self.is_shipped = is_shipped(file)
        self.errors: list[EinkornError] = []
        self.lost: set[str] = set()  # variables that something outside of the language would have given a value
        self.depth = 0
        self.sizes: dict[str, str] = {}  # what the dims of a kernel are in its body

    # places and errors

    def span(self, node: ast.AST) -> s.Span:
        line, start = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end = getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or 0
        if self.is_ascii:
            return line, start + 1, end_line, end + 1
        return line, self._column(line, start), end_line, self._column(end_line, end)

    def _column(self, line: int, offset: int) -> int:
        """`ast` counts UTF-8 bytes from 0; places count characters from 1."""
        if not 0 < line <= len(self.lines):
            return offset + 1
        text = self.lines[line - 1]
        return len(text.encode()[:offset].decode(errors="replace")) + 1

    def place(self, node: ast.AST) -> Place:
        return Place(self.file, *self.span(node))

    def refuse(self, node: ast.AST, what: str, hint: str, code: str = "EK0102") -> CompileError:
        return CompileError(f"{what} is not part of the kernel language", code=code, place=self.place(node), hint=hint)

    def unsupported(self, node: ast.AST, at: ast.AST | None = None) -> CompileError:
        name = type(node).__name__
        what, hint = UNSUPPORTED.get(name, (f"this construct ({name})", "see the language reference for what is"))
        return self.refuse(at or node, what, hint)

    def note(self, error: EinkornError | None) -> None:
        """Keeps a mistake, once; None stands for one that is kept already."""
        for each in each_of(error) if error else ():
            each.hint = with_imports(each.hint, each.place)
            self.errors += unlike([each], self.errors)

    def too_deep(self, node: ast.AST) -> CompileError:
        return CompileError(
            "this is nested too deeply", code="EK0112", place=self.place(node), hint="use variables for its parts"
        )

    @contextmanager
    def nested(self, node: ast.AST) -> Iterator[None]:
        """Counts how deep the tree is: everything that walks it later is recursive."""
        self.depth += 1
        try:
            if self.depth > s.MAX_NESTING:
                raise self.too_deep(node)
            yield
        finally:
            self.depth -= 1

    # parameters

    def params(self, args: ast.arguments) -> tuple[s.Param, ...]:
        out = []
        positional = args.posonlyargs + args.args
        defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        pairs = [(a, d, False) for a, d in zip(positional, defaults, strict=True)]
        pairs += [(a, d, True) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        for arg, default, keyword_only in pairs:
            # An annotation is kept only where it is a plain type: the signature under @register is read elsewhere.
            said = arg.annotation
            annotation = None if said is None or self.is_python_type(said) else self.annotation(said)
            value = None if default is None else self.expr(default)
            out.append(s.Param(arg.arg, value, keyword_only, annotation, span=self.span(arg)))
        return tuple(out)

    def stars(self, args: ast.arguments) -> set[str]:
        """The names of parameters under a star, which are refused."""
        starred = [star for star in (args.vararg, args.kwarg) if star is not None]
        for star in starred:
            self.note(self.refuse(star, "a star argument", "name every argument; a tuple takes several values"))
        return {star.arg for star in starred}

    def annotation(self, node: ast.expr) -> s.Expr | None:
        """A type that fixes a parameter's or a variable's type; other annotations have no effect."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # a name that comes later in the file
            try:
                quoted = expression_tree(node.value)
            except SyntaxError:
                return None
            node = ast.fix_missing_locations(ast.copy_location(quoted, node))
        if self.is_shipped and self.describes(node):
            return None  # tests hold the library to what it says of its own arguments; no compilation checks it
        mark = len(self.errors)
        result = self.type(node)
        del self.errors[mark:]
        return None if any(isinstance(part, s.Wrong) for part in s.walk(result)) else result

    def type(self, node: ast.expr) -> s.Expr:
        """What an annotation says: a type, `A | B`, or a tuple of these; `s.Wrong` if it says nothing."""
        span = self.span(node)
        if kind := self.kind(node.value if isinstance(node, ast.Subscript) else node):
            return s.Kind(kind, span=span)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            none = s.Constant(None, span=span)
            sides = [none if is_none(side) else self.type(side) for side in (node.left, node.right)]
            flat = [part for side in sides for part in (side.members if isinstance(side, s.OneOf) else (side,))]
            return s.OneOf(tuple(flat), span=span)
        if isinstance(node, ast.Subscript) and is_tuple(node):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            repeated = len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is Ellipsis
            if repeated or any(self.kind(part) for part in ast.walk(node.slice)):
                items = tuple(self.type(part) for part in (parts[:1] if repeated else parts))
                return s.TupleOf(items, repeated, span=span)
        if isinstance(node, ast.Subscript) and not isinstance(self.expr(node.value), s.Global):
            return s.Wrong(span=span)
        result = self.expr(node)
        return result if isinstance(result, s.TYPES) else s.Wrong(span=span)

    def describes(self, node: ast.expr) -> bool:
        """Whether an annotation has a part that converts nothing."""
        parts = list(ast.walk(node))
        return any(isinstance(part, ast.BinOp) or is_tuple(part) or self.kind(part) for part in parts)

    def is_python_type(self, node: ast.expr) -> bool:
        """Whether an annotation is one of Python's own types, which say nothing of a parameter."""
        own = isinstance(node, ast.Name) and vars(builtins).get(node.id) in (bool, int, float, complex, str)
        return own and not any(ast.unparse(node) in names for names in (self.closure, self.names, *self.scopes))

    def kind(self, node: ast.AST) -> str | None:
        """The kind of values that an annotation names, of `kinds.KINDS`; an alias of `Callable[...]` is one, too."""
        if not isinstance(node, ast.Name) or any(node.id in scope for scope in self.scopes):
            return None
        value = self.closure.get(node.id, self.names.get(node.id))
        value = getattr(value, "__origin__", value)
        return KINDS.get(value) if isinstance(value, Hashable) else None

    # expressions

    def expr(self, node: ast.expr) -> s.Expr:
        handler = _EXPRESSIONS.get(type(node))
        self.depth += 1
        try:
            if self.depth > s.MAX_NESTING:
                raise self.too_deep(node)
            if handler is None:
                raise self.unsupported(node)
            return handler(self, node)
        except CompileError as error:
            self.note(error)
            self.parts(node)
        except AlreadyReported as reported:
            self.note(reported.error)
        finally:
            self.depth -= 1
        return s.Wrong(span=self.span(node))

    def parts(self, node: ast.AST) -> None:
        """Looks for further mistakes in the parts of something that is not in the language."""
        if self.depth >= s.MAX_NESTING or isinstance(node, CLOSED):
            return
        if isinstance(node, ast.NamedExpr):
            self.lost |= names_bound(node.target)
        self.scopes.append(names_bound(node))
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.FormattedValue):
                self.parts(part)
            elif isinstance(part, ast.expr):
                if not isinstance(getattr(part, "ctx", None), ast.Store | ast.Del) or isinstance(part, ast.Subscript):
                    self.expr(part)
            elif isinstance(part, ast.stmt):
                self.block([part])
            elif isinstance(part, ast.ExceptHandler):
                self.block(part.body)
            elif isinstance(part, ast.keyword) and part.arg is None:
                self.parts(part.value)
            elif isinstance(part, ast.keyword | ast.comprehension | ast.withitem | ast.match_case):
                self.parts(part)
        self.scopes.pop()

    def block(self, nodes: list[ast.stmt]) -> tuple[s.Stmt, ...]:
        """The statements of a block."""
        raise NotImplementedError

    def expr_constant(self, node: ast.Constant) -> s.Expr:
        if isinstance(node.value, bytes) or node.value is Ellipsis:
            hint = "write `:` for a whole axis" if node.value is Ellipsis else "use bool, int, float, complex or str"
            raise self.refuse(node, f"the constant {ast.unparse(node)}", hint)
        return s.Constant(node.value, span=self.span(node))

    def expr_name(self, node: ast.Name) -> s.Expr:
        if node.id in self.lost:
            raise AlreadyReported
        if any(node.id in scope for scope in self.scopes):
            return s.Name(node.id, span=self.span(node))
        return self.global_(self.lookup(node), node)

    def lookup(self, node: ast.Name) -> Any:
        for names in (self.closure, self.names, vars(builtins)):
            if node.id in names:
                self.note_read(names, node.id)
                return names[node.id]
        if node.id in self.names.get(BROKEN, {}):
            raise AlreadyReported(self.names[BROKEN][node.id])
        known = {*self.closure, *self.names, *(name for scope in self.scopes for name in scope)}
        known |= {name for name in STUBS if hasattr(builtins, name)}
        known = {name for name in known if not name.startswith("__")}
        size = self.sizes.get(node.id)
        hint = f"write {size}" if size else of_unknown(node.id, known)
        raise CompileError(f"unknown name '{node.id}'", code="EK0101", place=self.place(node), hint=hint)

    def note_read(self, names: dict[str, Any], name: str) -> None:
        """Notes that a name was looked up; those of Python itself stay what they are."""
        if names is self.names:
            self.reads.in_namespace(names, name)
        elif names is self.closure and name in self.cells:
            self.reads.in_cell(self.cells[name])

    def global_(self, value: object, node: ast.expr) -> s.Expr:
        try:
            return self.constant(value, node.id if isinstance(node, ast.Name) else ast.unparse(node), node)
        except CompileError as error:
            if error.code == "EK0104":  # nothing to show there, so it is shown where the name is used
                error.place = self.place(node)
            raise

    def constant(self, value: Any, name: str, node: ast.AST) -> s.Expr:
        """A Python object that stands at `node` without being named there."""
        try:
            return s.Global(self.resolve(value, name, self.place(node)), name, span=self.span(node))
        except Unresolved as reason:
            text = f"'{name}' cannot be used in a kernel: {reason}"
            raise CompileError(text, code="EK0105", place=self.place(node), hint=reason.hint) from None

    def expr_attribute(self, node: ast.Attribute) -> s.Expr:
        # Attributes of modules and namespaces are found now; all others belong to values of the kernel.
        owner = self.static(node.value)
        if owner is not None:
            if isinstance(getattr(owner, node.attr, UnknownName("", ())), UnknownName):
                known = [name for name in dir(owner) if not name.startswith("_")]
                raise CompileError(
                    f"'{ast.unparse(node.value)}' has no member '{node.attr}'",
                    code="EK0101",
                    place=self.place(node),
                    hint=did_you_mean(node.attr, known),
                )
            if isinstance(owner, ModuleType):
                self.reads.in_namespace(vars(owner), node.attr)
            return self.global_(getattr(owner, node.attr), node)
        return s.Attribute(self.expr(node.value), node.attr, span=self.span(node))

    def static(self, node: ast.expr) -> Any:
        """The module or namespace that `node` stands for, or the class of dtypes; None for all else."""
        if isinstance(node, ast.Name) and not any(node.id in scope for scope in self.scopes):
            result = self.lookup(node)
        elif isinstance(node, ast.Attribute):
            owner = self.static(node.value)
            result = None if owner is None else getattr(owner, node.attr, None)
        else:
            return None
        grouped = isinstance(result, ModuleType) or result is DType or getattr(result, "is_namespace", False) is True
        return result if grouped else None

    def expr_subscript(self, node: ast.Subscript) -> s.Expr:
        return s.Subscript(self.expr(node.value), self.expr(node.slice), span=self.span(node))

    def expr_slice(self, node: ast.Slice) -> s.Expr:
        lower, upper, step = (None if n is None else self.expr(n) for n in (node.lower, node.upper, node.step))
        return s.Slice(lower, upper, step, span=self.span(node))

    def expr_call(self, node: ast.Call) -> s.Expr:
        keywords = []
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.refuse(keyword.value, "a ** argument", "pass every argument by its name")
            if keyword.arg == "parameters" and isinstance(keyword.value, ast.Dict):
                keywords.append(s.Keyword(keyword.arg, self.pairs(keyword.value), span=self.span(keyword)))
                continue
            keywords.append(s.Keyword(keyword.arg, self.expr(keyword.value), span=self.span(keyword)))
        arguments = tuple(self.argument(node, a) for a in node.args)
        return s.Call(self.expr(node.func), arguments, tuple(keywords), span=self.span(node))

    def argument(self, call: ast.Call, node: ast.expr) -> s.Expr:
        """An argument; a generator expression may be the one of a call such as `tuple(...)`."""
        if not isinstance(node, ast.GeneratorExp):
            return self.expr(node)
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in GENERATOR_CALLS or any(name in scope for scope in self.scopes):
            raise self.unsupported(node)
        assert isinstance(call.func, ast.Name)
        if self.lookup(call.func) not in (vars(builtins)[name], STUBS[name]):
            raise self.unsupported(node)
        with self.nested(node):
            return self.generator(node)

    def generator(self, node: ast.GeneratorExp) -> s.Generator:
        clauses = []
        self.scopes.append({name for clause in node.generators for name in names_assigned([clause.target])})
        try:
            for number, clause in enumerate(node.generators):
                for part in ast.walk(clause.target):
                    if isinstance(part, ast.Subscript | ast.Attribute | ast.Starred | ast.List):
                        raise self.refuse(part, "a loop variable that is not a name", "unpack into names")
                own = self.scopes.pop() if number == 0 else None  # the first iterable is of the function around
                iterable = self.expr(clause.iter)
                if own is not None:
                    self.scopes.append(own)
                tests = tuple(self.expr(test) for test in clause.ifs)
                clauses.append(s.Clause(self.loop_names(clause.target), iterable, tests, span=self.span(clause.target)))
            return s.Generator(self.expr(node.elt), tuple(clauses), span=self.span(node))
        finally:
            self.scopes.pop()

    def loop_names(self, node: ast.expr) -> s.Expr:
        """A loop variable: a name, or a tuple of them."""
        if isinstance(node, ast.Tuple):
            return s.Tuple(tuple(self.loop_names(item) for item in node.elts), span=self.span(node))
        return s.Name(ast.unparse(node), span=self.span(node))

    def pairs(self, node: ast.Dict) -> s.Expr:
        """`parameters={"BM": 64}`, the one place for a dict: a tuple of pairs."""
        out: list[s.Expr] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise self.refuse(node, "a ** argument", "pass every argument by its name")
            out.append(s.Tuple((self.expr(key), self.expr(value)), span=self.span(key)))
        return s.Tuple(tuple(out), span=self.span(node))

    def expr_binary(self, node: ast.BinOp) -> s.Expr:
        if isinstance(node.op, ast.Pow):
            power = s.Global(self.resolve(STUBS["pow"], "pow", self.place(node)), "pow", span=self.span(node))
            return s.Call(power, (self.expr(node.left), self.expr(node.right)), span=self.span(node))
        op = BINARY.get(type(node.op))
        if op is None:
            raise self.unsupported(node.op, node)
        self.refuse_list_of_zeros(node)
        return s.Binary(op, self.expr(node.left), self.expr(node.right), span=self.span(node))

    def refuse_list_of_zeros(self, node: ast.BinOp) -> None:
        """Raises for `[0] * n` the error of lists, with the storage that holds so many zeros as the hint."""
        match node:
            case ast.BinOp(ast.List([ast.Constant(value)]), ast.Mult(), count):
                pass
            case ast.BinOp(count, ast.Mult(), ast.List([ast.Constant(value)])):
                pass
            case _:
                return
        dtype = {int: "int64", float: "float64", bool: "bool"}.get(type(value))
        if dtype is not None and not value:
            storage = "stack[{}]({})" if isinstance(count, ast.Constant) else "scratch[{}]({}, zeroed=True)"
            raise self.refuse(node, "a list", f"write {storage.format(dtype, ast.unparse(count))}")

    def expr_unary(self, node: ast.UnaryOp) -> s.Expr:
        operand = self.expr(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(operand, s.Constant) and type(operand.value) in (int, float):
            return s.Constant(-operand.value, span=self.span(node))  # type: ignore[operator]
        return s.Unary(UNARY[type(node.op)], operand, span=self.span(node))

    def expr_compare(self, node: ast.Compare) -> s.Expr:
        ops = []
        for op, operand in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.Is | ast.IsNot) and isinstance(operand, ast.Constant) and operand.value is None:
                ops.append("eq" if isinstance(op, ast.Is) else "ne")
                continue
            if type(op) not in COMPARE:
                raise self.unsupported(op, node)
            ops.append(COMPARE[type(op)])
        operands = tuple(self.expr(n) for n in [node.left, *node.comparators])
        return s.Compare(tuple(ops), operands, span=self.span(node))

    def expr_logical(self, node: ast.BoolOp) -> s.Expr:
        op = "and" if isinstance(node.op, ast.And) else "or"
        return s.Logical(op, tuple(self.expr(v) for v in node.values), span=self.span(node))

    def expr_conditional(self, node: ast.IfExp) -> s.Expr:
        return s.Conditional(self.expr(node.test), self.expr(node.body), self.expr(node.orelse), span=self.span(node))

    def expr_tuple(self, node: ast.Tuple) -> s.Expr:
        return s.Tuple(tuple(self.expr(item) for item in node.elts), span=self.span(node))

    def expr_starred(self, node: ast.Starred) -> s.Expr:
        return s.Starred(self.expr(node.value), span=self.span(node))

    def expr_lambda(self, node: ast.Lambda) -> s.Lambda:
        stars = self.stars(node.args)
        params = self.params(node.args)
        self.scopes.append({p.name for p in params} | stars | names_assigned([node.body]))
        try:
            body = self.expr(node.body)
        finally:
            self.scopes.pop()
        if stars:
            raise AlreadyReported
        return s.Lambda(params, body, span=self.span(node))

    def expr_formatted(self, node: ast.JoinedStr) -> s.Expr:
        parts: list[s.Expr] = []
        formats: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                spec = part.format_spec
                pieces = spec.values if isinstance(spec, ast.JoinedStr) else []
                plain = not pieces or (len(pieces) == 1 and isinstance(pieces[0], ast.Constant))
                if part.conversion != -1 or not plain:
                    raise self.refuse(part.value, "this f-string conversion", "use a plain format such as `{x:.3f}`")
                parts.append(self.expr(part.value))
                formats.append("".join(str(piece.value) for piece in pieces if isinstance(piece, ast.Constant)))
            else:
                parts.append(self.expr(part))
                formats.append("")
        return s.Formatted(tuple(parts), tuple(formats), span=self.span(node))


_EXPRESSIONS: dict[type[ast.expr], Callable[[ExpressionParser, Any], s.Expr]] = {
    ast.Constant: ExpressionParser.expr_constant,
    ast.Name: ExpressionParser.expr_name,
    ast.Attribute: ExpressionParser.expr_attribute,
    ast.Subscript: ExpressionParser.expr_subscript,
    ast.Slice: ExpressionParser.expr_slice,
    ast.Call: ExpressionParser.expr_call,
    ast.BinOp: ExpressionParser.expr_binary,
    ast.UnaryOp: ExpressionParser.expr_unary,
    ast.Compare: ExpressionParser.expr_compare,
    ast.BoolOp: ExpressionParser.expr_logical,
    ast.IfExp: ExpressionParser.expr_conditional,
    ast.Tuple: ExpressionParser.expr_tuple,
    ast.Starred: ExpressionParser.expr_starred,
    ast.Lambda: ExpressionParser.expr_lambda,
    ast.JoinedStr: ExpressionParser.expr_formatted,
}
