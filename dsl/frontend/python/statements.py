"""Parses Python functions: trees with every name resolved, and every unsupported construct refused.

Here functions are found in their files, and statements parsed; expressions are in `frontend.python.expressions`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...diagnostics.definitions import Nodes, first_line, is_checked, pieces
from ...diagnostics.errors import CompileError, EinkornError
from ...diagnostics.places import Place
from ...diagnostics.text import believe, file_of
from .. import syntax as s
from ..reads import Reads
from .expressions import ExpressionParser, Resolve
from .names import BINARY, AlreadyReported, names_assigned, names_bound, sizes_of, yields
from .unsupported import UNSUPPORTED

AGAIN = "run the program again, or reload the module"
GIVE_TEXT = "functions made by exec() have no source: pass the text to einkorn.dsl.kernels_of(text)"
PIPED = "Python keeps no text of a program from a pipe: write it to a file, or python -c \"$(cat)\" <<'EOF'"


def where_to_define(what: str, file: str) -> str:
    """The hint for kernels or structs whose source is not at hand."""
    return PIPED if file == "<stdin>" else f"define {what} in a file, in a cell or at a prompt; {GIVE_TEXT}"


def lines_of_head(function: FunctionType) -> set[tuple[str, int]]:
    """The lines of a function, with its file, that come before its body; none where that is not at hand."""
    try:
        node, file = find_function(function), text_file(function)
    except CompileError:
        return set()
    first = node.body[0].lineno if isinstance(node, ast.FunctionDef) else node.lineno
    return {(file, line) for line in range(function.__code__.co_firstlineno, first)}


def parse_function(
    function: FunctionType, resolve: Resolve, reads: Reads
) -> tuple[s.Function | None, list[EinkornError]]:
    """The syntax tree of `function`, None where it cannot be called, and the mistakes in its text: constructs that are
    not in the language, unknown names. What it names around it is added to `reads`.

    Raises:
        CompileError: its source is not at hand.
    """
    node = find_function(function)
    file = text_file(function)
    lookup = dict(inspect.getclosurevars(function).nonlocals)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    parser = Parser(file, function.__globals__, lookup, resolve, reads, cells)
    try:
        return _parsed(parser, node), parser.errors
    except RecursionError:
        parser.note(parser.too_deep(node))
    return None, parser.errors


def _parsed(parser: Parser, node: ast.FunctionDef | ast.Lambda) -> s.Function | None:
    if isinstance(node, ast.FunctionDef):
        parser.sizes = sizes_of(node)
        return parser.function(node, [])
    try:
        tree = parser.expr_lambda(node)
    except AlreadyReported:
        return None
    returned = s.Return(tree.body, span=parser.span(node.body))
    return s.Function("lambda", tree.params, (returned,), span=tree.span)


def text_file(function: FunctionType) -> str:
    """The name under which messages show the text of a function that was found."""
    return file_of(function.__code__, function.__code__.co_filename)


def find_function(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """What a function was made from; the text that it stands in is kept from then on.

    Raises:
        CompileError: it is asynchronous, its text has changed, or it cannot be found.
    """
    code, names = function.__code__, function.__globals__
    changed = False
    defined = "lambda" if code.co_name == "<lambda>" else code.co_name
    for piece in pieces(code.co_filename, names, code.co_firstlineno, defined):
        node = _among(piece.nodes, function)
        if node is None:
            continue
        if not is_checked(names) or piece.makes(code):
            believe(code, code.co_filename, piece.text, names)
            return node
        changed = True
    if changed:
        raise CompileError(
            f"the text of '{function.__name__}' has changed since it was run",
            code="EK0104",
            place=Place(code.co_filename, code.co_firstlineno),
            hint=AGAIN,
        )
    if hasattr(function, "__wrapped__"):
        wrapped = getattr(function.__wrapped__, "__code__", code)
        raise CompileError(
            f"a decorator has put another function in the place of '{function.__name__}'",
            code="EK0104",
            place=Place(wrapped.co_filename, wrapped.co_firstlineno),
            hint="helper functions have no decorators; a kernel has @register only",
        )
    raise CompileError(
        f"the source of '{function.__name__}' is not at hand",
        code="EK0104",
        place=Place(code.co_filename, code.co_firstlineno),
        hint=where_to_define("kernels", code.co_filename),
    )


def _among(nodes: Nodes, function: FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    code = function.__code__
    candidates: list[ast.Lambda] = []
    for node in nodes:
        if isinstance(node, ast.AsyncFunctionDef) and node.name == function.__name__:
            name = Place(code.co_filename, node.lineno, node.col_offset + 1, node.lineno, node.col_offset + 10)
            what, hint = UNSUPPORTED["AsyncFunctionDef"]
            if code.co_firstlineno == first_line(node):
                raise CompileError(f"{what} is not part of the kernel language", code="EK0102", place=name, hint=hint)
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            if first_line(node) == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and function.__name__ == "<lambda>" and node.lineno == code.co_firstlineno:
            candidates.append(node)
    if len(candidates) > 1:
        place = Place(code.co_filename, code.co_firstlineno)
        raise CompileError(
            "two lambdas on one line are ambiguous", code="EK0103", place=place, hint="put each on its own line"
        )
    return candidates[0] if candidates else None


class Parser(ExpressionParser):
    """Walks one function."""

    def function(self, node: ast.FunctionDef, decorators: list[ast.expr]) -> s.Function | None:
        """A function; None when it cannot be called as it is, which has been noted."""
        if decorators:
            hint = "call the decorator's work explicitly"
            self.note(self.refuse(decorators[0], "a decorator on a nested function", hint))
        stars = self.stars(node.args)
        params = self.params(node.args)
        self.scopes.append({p.name for p in params} | stars | names_assigned(node.body))
        body = self.block(node.body)  # notes its mistakes and goes on
        self.scopes.pop()
        self.lost_fields(node)
        text = self.lines[node.lineno - 1 : node.end_lineno]
        is_generator = any("yield" in line for line in text) and any(map(yields, node.body))
        sound = not decorators and not stars and not is_generator
        return s.Function(node.name, params, body, span=self.span(node)) if sound else None

    def lost_fields(self, node: ast.FunctionDef) -> None:
        """Refuses a function that assigns to a field of its parameter, and does nothing else with that."""
        if not _stores_fields(node.body):
            return
        changed: dict[str, ast.Attribute] = {}
        used: set[str] = set()
        stack: list[ast.AST] = list(node.body)
        while stack:
            part = stack.pop()
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                owner: ast.expr = part
                while isinstance(owner, ast.Attribute):
                    owner = owner.value
                if isinstance(owner, ast.Name):
                    changed[owner.id] = part
                    continue
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                used.add(part.id)
            stack.extend(ast.iter_child_nodes(part))
        parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        for name in (arg.arg for arg in parameters if not isinstance(arg.annotation, ast.Subscript)):  # no tensor
            if name in changed and name not in used:
                text = f"the changed '{name}' is discarded: structs are values, and the caller's copy does not change"
                hint = f"end with `return {name}`, and call it as `{name} = {node.name}({name}, ...)`"
                if name == "self":
                    hint = f"end with `return self`, and call it as `p = p.{node.name}(...)`"
                self.note(CompileError(text, code="EK0126", place=self.place(changed[name]), hint=hint))

    # statements

    def block(self, nodes: list[ast.stmt]) -> tuple[s.Stmt, ...]:
        out: list[s.Stmt] = []
        for node in nodes:
            if isinstance(node, ast.Pass):
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring, or an ellipsis
            handler = _STATEMENTS.get(type(node))
            try:
                if handler is None:
                    raise self.unsupported(node)
                with self.nested(node):
                    out.extend(handler(self, node))
            except CompileError as error:
                self.note(error)
                out += self.in_place_of(node)
            except AlreadyReported as reported:
                self.note(reported.error)
                out += self.in_place_of(node)
        return tuple(out)

    def in_place_of(self, node: ast.stmt) -> list[s.Stmt]:
        """What stands for a statement that is not in the language: what it might have run."""
        body: list[s.Stmt] = []
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.AsyncFor):
            heads = [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.stmt)]
            body = [self.unknown(name, node) for head in heads for name in sorted(names_bound(head))]
            body += self.block(node.body)
        self.parts(node)
        lost: list[s.Stmt] = [self.unknown(name, node) for name in sorted(names_assigned([node]))]
        if any(isinstance(part, ast.Return) for part in ast.walk(node)):
            lost.append(s.Return(s.Wrong(span=self.span(node)), span=self.span(node)))
        if lost:
            body.append(s.If(s.Wrong(span=self.span(node)), tuple(lost), (), span=self.span(node)))
        return body

    def unknown(self, name: str, node: ast.AST) -> s.Stmt:
        """A variable gets an unknown value."""
        span = self.span(node)
        return s.Assign(s.Name(name, span=span), s.Wrong(span=span), span=span)

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
            raise self.refuse(node, "a declaration without a value", "assign the variable here first")
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
        if isinstance(node, ast.Attribute):
            return self.field(node)
        if isinstance(node, ast.Starred):
            raise self.refuse(node, "a starred target", "name every part")
        if isinstance(node, ast.List):
            raise self.refuse(node, "a list of targets", "write a tuple: `a, b = ...`")
        raise self.unsupported(node)

    def field(self, node: ast.Attribute) -> s.Expr:
        """`p.x` as a target: the variable p gets a new struct, so it has to be a variable of this function."""
        owner = node.value
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        if not isinstance(owner, ast.Name) or (self.scopes and owner.id not in self.scopes[-1]):
            raise self.refuse(
                node,
                "an assignment to a field of something that is not a variable of this function",
                "structs are values: assign the modified one to a variable, or return it",
            )
        return self.expr(node)

    def stmt_if(self, node: ast.If) -> list[s.Stmt]:
        return [s.If(self.expr(node.test), self.block(node.body), self.block(node.orelse), span=self.span(node))]

    def stmt_for(self, node: ast.For) -> list[s.Stmt]:
        self.no_else(node)
        for part in ast.walk(node.target):
            if isinstance(part, ast.Subscript | ast.Attribute):
                raise self.refuse(part, "a loop variable that is not a name", "assign in the body of the loop")
        return [s.For(self.target(node.target), self.expr(node.iter), self.block(node.body), span=self.span(node))]

    def no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            hint = "set a flag in the loop and test it afterwards"
            self.note(self.refuse(node.orelse[0], "else after a loop", hint))
            self.block(node.orelse)

    def stmt_while(self, node: ast.While) -> list[s.Stmt]:
        self.no_else(node)
        return [s.While(self.expr(node.test), self.block(node.body), span=self.span(node))]

    def stmt_return(self, node: ast.Return) -> list[s.Stmt]:
        return [s.Return(None if node.value is None else self.expr(node.value), span=self.span(node))]

    def stmt_expr(self, node: ast.Expr) -> list[s.Stmt]:
        return [s.Expression(self.expr(node.value), span=self.span(node))]

    def stmt_assert(self, node: ast.Assert) -> list[s.Stmt]:
        message = None if node.msg is None else self.expr(node.msg)
        return [s.Assert(self.expr(node.test), message, span=self.span(node))]

    def stmt_raise(self, node: ast.Raise) -> list[s.Stmt]:
        error, message = node.exc, None
        kind = error.func if isinstance(error, ast.Call) else error
        allowed = kind is not None and node.cause is None and self.is_exception(kind)
        if isinstance(error, ast.Call):
            allowed = allowed and len(error.args) <= 1 and not error.keywords
            message = self.expr(error.args[0]) if error.args else None
        if not allowed:
            self.note(self.refuse(node, "this form of raise", 'write `raise ValueError("what is wrong")`'))
        return [s.Raise("" if kind is None else ast.unparse(kind), message, span=self.span(node))]

    def is_exception(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            result = self.lookup(node)
        else:
            owner = self.static(node.value) if isinstance(node, ast.Attribute) else None
            result = getattr(owner, node.attr, None) if isinstance(node, ast.Attribute) else None
        return isinstance(result, type) and issubclass(result, BaseException)

    def stmt_function(self, node: ast.FunctionDef) -> list[s.Stmt]:
        return [self.function(node, node.decorator_list) or self.unknown(node.name, node)]

    def stmt_break(self, node: ast.Break) -> list[s.Stmt]:
        return [s.Break(span=self.span(node))]

    def stmt_continue(self, node: ast.Continue) -> list[s.Stmt]:
        return [s.Continue(span=self.span(node))]


_STATEMENTS: dict[type[ast.stmt], Callable[[Parser, Any], list[s.Stmt]]] = {
    ast.Assign: Parser.stmt_assign,
    ast.AnnAssign: Parser.stmt_ann_assign,
    ast.AugAssign: Parser.stmt_aug_assign,
    ast.If: Parser.stmt_if,
    ast.For: Parser.stmt_for,
    ast.While: Parser.stmt_while,
    ast.Return: Parser.stmt_return,
    ast.Expr: Parser.stmt_expr,
    ast.Assert: Parser.stmt_assert,
    ast.Raise: Parser.stmt_raise,
    ast.FunctionDef: Parser.stmt_function,
    ast.Break: Parser.stmt_break,
    ast.Continue: Parser.stmt_continue,
}


def _stores_fields(body: list[ast.stmt]) -> bool:
    """Whether something is assigned to a field; targets are looked at, not what is computed."""
    stack: list[ast.AST] = list(body)
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            return True
        if not isinstance(part, ast.expr) or isinstance(part, (ast.Tuple, ast.List, ast.Starred)):
            stack.extend(ast.iter_child_nodes(part))
    return False
