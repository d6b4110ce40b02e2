"""Python source -> syntax tree, with every name resolved and every unsupported construct refused.

Input: a Python function object (and its file's text), plus a `resolve` callback that turns a Python object into an
entry of the program's table of globals. Output: a `syntax.Function`. Non-goals: no types, no evaluation; what a global
means is `portable`'s business.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from . import syntax as s
from .errors import CompileError, did_you_mean
from .language import STUBS
from .source import Place

Resolve = Callable[[Any, str, Place], int]

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
}
UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not_"}
COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}

# What the language leaves out, in the author's words, and what to write instead.
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "Try": ("try/except", "check the condition with `if`, or stop with `assert` or `raise`"),
    "TryStar": ("try/except*", "check the condition with `if`, or stop with `assert` or `raise`"),
    "With": ("with", "call the function directly; kernels manage no resources"),
    "AsyncFor": ("async for", "use a plain `for` over `range(...)`"),
    "AsyncWith": ("async with", "kernels manage no resources"),
    "AsyncFunctionDef": ("async def", "use a plain `def`; parallel work is written with `parallel_for` or `foreach`"),
    "Await": ("await", "call the function directly"),
    "Yield": ("yield", "return a tuple, or store into a tensor"),
    "YieldFrom": ("yield from", "return a tuple, or store into a tensor"),
    "ListComp": ("a list comprehension", "write a loop, or `foreach(out, f)`"),
    "SetComp": ("a set comprehension", "write a loop"),
    "DictComp": ("a dict comprehension", "write a loop"),
    "GeneratorExp": ("a generator expression", "write a loop"),
    "Global": ("global", "pass the value as an argument and return the new one"),
    "Nonlocal": ("nonlocal", "pass the value as an argument and return the new one"),
    "ClassDef": ("a class without @struct", "define it at module level and decorate it with `@struct`"),
    "Dict": ("a dict", "use a tuple, or an `if` chain on compile-time values"),
    "Set": ("a set", "use a tuple"),
    "List": ("a list", "use a tuple `(a, b)`, or `stack[T](n)` for run-time storage"),
    "Delete": ("del", "drop the line; variables end with their function"),
    "Import": ("import", "import at the top of the file"),
    "ImportFrom": ("import", "import at the top of the file"),
    "Match": ("match", "write an `if` chain"),
    "NamedExpr": ("the walrus operator :=", "assign on a line of its own"),
    "Is": ("is", "compare with `==`"),
    "IsNot": ("is not", "compare with `!=`"),
    "In": ("in", "write the comparisons out"),
    "NotIn": ("not in", "write the comparisons out"),
    "Pow": ("**=", "write `x = x ** n`"),
    "MatMult": ("the @ operator", "call a matrix product"),
}


class Unresolved(Exception):
    """Raised by `resolve` for an object that has no meaning in a kernel; the text says why."""


def module_tree(file: str) -> ast.Module:
    """The parsed file, from a cache that follows changes of its text."""
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file))
    cached = _TREES.get(file)
    if cached is None or cached[0] != text:
        cached = (text, ast.parse(text, filename=file))
        _TREES[file] = cached
    return cached[1]


_TREES: dict[str, tuple[str, ast.Module]] = {}


def parse_function(function: FunctionType, resolve: Resolve) -> s.Function:
    """The syntax tree of `function`.

    Raises:
        CompileError: its source is not at hand, a construct is not in the language, or a name is unknown.
    """
    code = function.__code__
    file = code.co_filename
    node = _find(function)
    lookup = dict(inspect.getclosurevars(function).nonlocals)
    parser = _Parser(file, function.__globals__, lookup, resolve)
    return parser.function(node, [])


def _find(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    code = function.__code__
    candidates: list[ast.FunctionDef | ast.Lambda] = []
    for node in ast.walk(module_tree(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and function.__name__ == "<lambda>" and node.lineno == code.co_firstlineno:
            candidates.append(node)
    if len(candidates) == 1:
        return candidates[0]
    place = Place(code.co_filename, code.co_firstlineno)
    if candidates:
        raise CompileError(
            "two lambdas on one line cannot be told apart", code="EK0103", place=place, hint="put each on its own line"
        )
    raise CompileError(
        f"the source of '{function.__name__}' is not at hand",
        code="EK0104",
        place=place,
        hint="define kernels in a file; functions made by exec() or typed at a prompt keep no source",
    )


class _Parser:
    """Walks one function; `scopes` are the local names of the functions around the present point."""

    def __init__(self, file: str, names: dict[str, Any], closure: dict[str, Any], resolve: Resolve) -> None:
        self.file = file
        self.names = names
        self.closure = closure
        self.resolve = resolve
        self.scopes: list[set[str]] = []

    # places and errors

    def span(self, node: ast.AST) -> s.Span:
        line = getattr(node, "lineno", 1)
        end_line = getattr(node, "end_lineno", None) or line
        return (
            line,
            self._column(line, getattr(node, "col_offset", 0)),
            end_line,
            self._column(end_line, getattr(node, "end_col_offset", None) or 0),
        )

    def _column(self, line: int, offset: int) -> int:
        """`ast` counts UTF-8 bytes from 0; places count characters from 1."""
        text = linecache.getline(self.file, line)
        if text.isascii():
            return offset + 1
        return len(text.encode()[:offset].decode(errors="replace")) + 1

    def place(self, node: ast.AST) -> Place:
        return Place(self.file, *self.span(node))

    def refuse(self, node: ast.AST, what: str, hint: str, code: str = "EK0102") -> CompileError:
        return CompileError(f"{what} is not part of the kernel language", code=code, place=self.place(node), hint=hint)

    def unsupported(self, node: ast.AST, at: ast.AST | None = None) -> CompileError:
        name = type(node).__name__
        what, hint = UNSUPPORTED.get(name, (f"this construct ({name})", "see the language reference for what is"))
        return self.refuse(at or node, what, hint)

    # functions

    def function(self, node: ast.FunctionDef | ast.Lambda, decorators: list[ast.expr]) -> s.Function:
        if decorators:
            raise self.refuse(decorators[0], "a decorator on a nested function", "call the decorator's work explicitly")
        params = self.params(node.args)
        self.scopes.append({p.name for p in params} | _locals(node))
        if isinstance(node, ast.Lambda):
            name = "lambda"
            body: tuple[s.Stmt, ...] = (s.Return(self.expr(node.body), span=self.span(node.body)),)
        else:
            name = node.name
            body = self.block(node.body)
        self.scopes.pop()
        return s.Function(name, params, body, span=self.span(node))

    def params(self, args: ast.arguments) -> tuple[s.Param, ...]:
        for star in (args.vararg, args.kwarg):
            if star is not None:
                raise self.refuse(star, "a star argument", "name every argument; a tuple takes several values")
        out = []
        positional = args.posonlyargs + args.args
        defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        pairs = [(a, d, False) for a, d in zip(positional, defaults, strict=True)]
        pairs += [(a, d, True) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        for arg, default, keyword_only in pairs:
            # An annotation is kept only where it is a plain type: the signature under @register is read elsewhere.
            annotation = None if arg.annotation is None else self.annotation(arg.annotation)
            value = None if default is None else self.expr(default)
            out.append(s.Param(arg.arg, value, keyword_only, annotation, span=self.span(arg)))
        return tuple(out)

    def annotation(self, node: ast.expr) -> s.Expr | None:
        """A type that fixes a parameter's or a variable's type; anything that is no such type says nothing."""
        try:
            found = self.expr(node)
        except CompileError:
            return None
        return found if isinstance(found, s.Global | s.Subscript) else None

    # statements

    def block(self, nodes: list[ast.stmt]) -> tuple[s.Stmt, ...]:
        out: list[s.Stmt] = []
        for node in nodes:
            if isinstance(node, ast.Pass):
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring, or an ellipsis
            handler = _STATEMENTS.get(type(node))
            if handler is None:
                raise self.unsupported(node)
            out.extend(handler(self, node))
        return tuple(out)

    def stmt_assign(self, node: ast.Assign) -> list[s.Stmt]:
        span = self.span(node)
        value = self.expr(node.value)
        if len(node.targets) == 1:
            return [s.Assign(self.target(node.targets[0]), value, span=span)]
        # a = b = v: the value is computed once, then the first name serves the others.
        first = self.target(node.targets[0])
        out: list[s.Stmt] = [s.Assign(first, value, span=span)]
        if not isinstance(first, s.Name):
            raise self.refuse(node, "a chained assignment to anything but names", "write one assignment a line")
        out += [s.Assign(self.target(t), first, span=span) for t in node.targets[1:]]
        return out

    def stmt_ann_assign(self, node: ast.AnnAssign) -> list[s.Stmt]:
        if node.value is None:
            raise self.refuse(node, "a declaration without a value", "give the variable its first value here")
        return [
            s.Assign(
                self.target(node.target), self.expr(node.value), self.annotation(node.annotation), span=self.span(node)
            )
        ]

    def stmt_aug_assign(self, node: ast.AugAssign) -> list[s.Stmt]:
        op = BINARY.get(type(node.op))
        if op is None:
            raise self.unsupported(node.op, node)
        return [s.AugAssign(self.target(node.target), op, self.expr(node.value), span=self.span(node))]

    def target(self, node: ast.expr) -> s.Expr:
        span = self.span(node)
        if isinstance(node, ast.Name):
            return s.Name(node.id, span=span)
        if isinstance(node, ast.Tuple):
            return s.Tuple(tuple(self.target(item) for item in node.elts), span=span)
        if isinstance(node, ast.Subscript):
            return self.expr(node)
        if isinstance(node, ast.Starred):
            raise self.refuse(node, "a starred target", "name every part")
        raise self.refuse(node, "an assignment to an attribute", "assign to a variable or to an element `x[i]`")

    def stmt_if(self, node: ast.If) -> list[s.Stmt]:
        return [s.If(self.expr(node.test), self.block(node.body), self.block(node.orelse), span=self.span(node))]

    def stmt_for(self, node: ast.For) -> list[s.Stmt]:
        if node.orelse:
            raise self.refuse(node.orelse[0], "else after a loop", "set a flag in the loop and test it afterwards")
        return [s.For(self.target(node.target), self.expr(node.iter), self.block(node.body), span=self.span(node))]

    def stmt_while(self, node: ast.While) -> list[s.Stmt]:
        if node.orelse:
            raise self.refuse(node.orelse[0], "else after a loop", "set a flag in the loop and test it afterwards")
        return [s.While(self.expr(node.test), self.block(node.body), span=self.span(node))]

    def stmt_return(self, node: ast.Return) -> list[s.Stmt]:
        return [s.Return(None if node.value is None else self.expr(node.value), span=self.span(node))]

    def stmt_expr(self, node: ast.Expr) -> list[s.Stmt]:
        return [s.Expression(self.expr(node.value), span=self.span(node))]

    def stmt_assert(self, node: ast.Assert) -> list[s.Stmt]:
        message = None if node.msg is None else self.expr(node.msg)
        return [s.Assert(self.expr(node.test), message, span=self.span(node))]

    def stmt_raise(self, node: ast.Raise) -> list[s.Stmt]:
        error = node.exc
        if error is None or node.cause is not None:
            raise self.refuse(node, "this form of raise", 'write `raise ValueError("what is wrong")`')
        kind, message = error, None
        if isinstance(error, ast.Call):
            kind = error.func
            if len(error.args) > 1 or error.keywords:
                raise self.refuse(node, "this form of raise", 'write `raise ValueError("what is wrong")`')
            message = self.expr(error.args[0]) if error.args else None
        return [s.Raise(ast.unparse(kind), message, span=self.span(node))]

    def stmt_function(self, node: ast.FunctionDef) -> list[s.Stmt]:
        return [self.function(node, node.decorator_list)]

    def stmt_break(self, node: ast.Break) -> list[s.Stmt]:
        return [s.Break(span=self.span(node))]

    def stmt_continue(self, node: ast.Continue) -> list[s.Stmt]:
        return [s.Continue(span=self.span(node))]

    # expressions

    def expr(self, node: ast.expr) -> s.Expr:
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            raise self.unsupported(node)
        found: s.Expr = handler(self, node)
        return found

    def expr_constant(self, node: ast.Constant) -> s.Expr:
        if isinstance(node.value, complex | bytes) or node.value is Ellipsis:
            raise self.refuse(node, f"the constant {ast.unparse(node)}", "use bool, int, float or str")
        return s.Constant(node.value, span=self.span(node))

    def expr_name(self, node: ast.Name) -> s.Expr:
        if any(node.id in scope for scope in self.scopes):
            return s.Name(node.id, span=self.span(node))
        return self.global_(self.lookup(node), node)

    def lookup(self, node: ast.Name) -> Any:
        for names in (self.closure, self.names, vars(builtins)):
            if node.id in names:
                return names[node.id]
        known = {*self.closure, *self.names, *vars(builtins), *(name for scope in self.scopes for name in scope)}
        raise CompileError(
            f"unknown name '{node.id}'", code="EK0101", place=self.place(node), hint=did_you_mean(node.id, known)
        )

    def global_(self, value: Any, node: ast.expr) -> s.Expr:
        name = ast.unparse(node)
        try:
            return s.Global(self.resolve(value, name, self.place(node)), name, span=self.span(node))
        except Unresolved as reason:
            raise CompileError(
                f"'{name}' cannot be used in a kernel: {reason}", code="EK0105", place=self.place(node)
            ) from None

    def expr_attribute(self, node: ast.Attribute) -> s.Expr:
        # Attributes of modules and namespaces are found now; all others belong to values of the kernel.
        owner = self.static(node.value)
        if owner is not None:
            if not hasattr(owner, node.attr):
                known = [name for name in dir(owner) if not name.startswith("_")]
                raise CompileError(
                    f"'{ast.unparse(node.value)}' has no member '{node.attr}'",
                    code="EK0101",
                    place=self.place(node),
                    hint=did_you_mean(node.attr, known),
                )
            return self.global_(getattr(owner, node.attr), node)
        return s.Attribute(self.expr(node.value), node.attr, span=self.span(node))

    def static(self, node: ast.expr) -> Any:
        """The module or namespace that `node` stands for, or None."""
        if isinstance(node, ast.Name) and not any(node.id in scope for scope in self.scopes):
            found = self.lookup(node)
        elif isinstance(node, ast.Attribute):
            owner = self.static(node.value)
            found = None if owner is None else getattr(owner, node.attr, None)
        else:
            return None
        return found if isinstance(found, ModuleType) or getattr(found, "is_namespace", False) is True else None

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
            keywords.append(s.Keyword(keyword.arg, self.expr(keyword.value), span=self.span(keyword)))
        arguments = tuple(self.expr(a) for a in node.args)
        return s.Call(self.expr(node.func), arguments, tuple(keywords), span=self.span(node))

    def expr_binary(self, node: ast.BinOp) -> s.Expr:
        if isinstance(node.op, ast.Pow):
            power = s.Global(self.resolve(STUBS["pow"], "pow", self.place(node)), "pow", span=self.span(node))
            return s.Call(power, (self.expr(node.left), self.expr(node.right)), span=self.span(node))
        op = BINARY.get(type(node.op))
        if op is None:
            raise self.unsupported(node.op, node)
        return s.Binary(op, self.expr(node.left), self.expr(node.right), span=self.span(node))

    def expr_unary(self, node: ast.UnaryOp) -> s.Expr:
        operand = self.expr(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(operand, s.Constant) and type(operand.value) in (int, float):
            return s.Constant(-operand.value, span=self.span(node))  # type: ignore[operator]
        return s.Unary(UNARY[type(node.op)], operand, span=self.span(node))

    def expr_compare(self, node: ast.Compare) -> s.Expr:
        ops = []
        for op in node.ops:
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

    def expr_lambda(self, node: ast.Lambda) -> s.Expr:
        function = self.function(node, [])
        returned = function.body[0]
        assert isinstance(returned, s.Return) and returned.value is not None
        return s.Lambda(function.params, returned.value, span=self.span(node))

    def expr_formatted(self, node: ast.JoinedStr) -> s.Expr:
        parts: list[s.Expr] = []
        formats: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                spec = part.format_spec
                plain = spec is None or (isinstance(spec, ast.JoinedStr) and len(spec.values) <= 1)
                if part.conversion != -1 or not plain:
                    raise self.refuse(part, "this f-string conversion", "use a plain format such as `{x:.3f}`")
                parts.append(self.expr(part.value))
                text = spec.values[0] if isinstance(spec, ast.JoinedStr) and spec.values else None
                formats.append(str(text.value) if isinstance(text, ast.Constant) else "")
            else:
                parts.append(self.expr(part))
                formats.append("")
        return s.Formatted(tuple(parts), tuple(formats), span=self.span(node))


_STATEMENTS: dict[type[ast.stmt], Callable[[_Parser, Any], list[s.Stmt]]] = {
    ast.Assign: _Parser.stmt_assign,
    ast.AnnAssign: _Parser.stmt_ann_assign,
    ast.AugAssign: _Parser.stmt_aug_assign,
    ast.If: _Parser.stmt_if,
    ast.For: _Parser.stmt_for,
    ast.While: _Parser.stmt_while,
    ast.Return: _Parser.stmt_return,
    ast.Expr: _Parser.stmt_expr,
    ast.Assert: _Parser.stmt_assert,
    ast.Raise: _Parser.stmt_raise,
    ast.FunctionDef: _Parser.stmt_function,
    ast.Break: _Parser.stmt_break,
    ast.Continue: _Parser.stmt_continue,
}

_EXPRESSIONS: dict[type[ast.expr], Callable[[_Parser, Any], s.Expr]] = {
    ast.Constant: _Parser.expr_constant,
    ast.Name: _Parser.expr_name,
    ast.Attribute: _Parser.expr_attribute,
    ast.Subscript: _Parser.expr_subscript,
    ast.Slice: _Parser.expr_slice,
    ast.Call: _Parser.expr_call,
    ast.BinOp: _Parser.expr_binary,
    ast.UnaryOp: _Parser.expr_unary,
    ast.Compare: _Parser.expr_compare,
    ast.BoolOp: _Parser.expr_logical,
    ast.IfExp: _Parser.expr_conditional,
    ast.Tuple: _Parser.expr_tuple,
    ast.Starred: _Parser.expr_starred,
    ast.Lambda: _Parser.expr_lambda,
    ast.JoinedStr: _Parser.expr_formatted,
}


def _locals(node: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Names that Python makes local to the function: everything it assigns, its nested functions' own aside."""
    found: set[str] = set()
    stack: list[ast.AST] = list(node.body) if isinstance(node, ast.FunctionDef) else [node.body]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(item.name)
            continue
        if isinstance(item, ast.Lambda):
            continue
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            found.add(item.id)
        stack.extend(ast.iter_child_nodes(item))
    return found
