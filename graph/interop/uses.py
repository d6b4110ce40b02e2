"""Says which tensors of a call a backward needs, so that autograd keeps no others.

A backward that is a kernel needs the arguments that it names. A function needs what its text reads of its context:
`context.inputs[0]`, or the names of `x, y = context.inputs` that are read. Where the text cannot be found, differs from
the code that runs, or hands the context on, the function needs everything. What a graph reads is found when it is
staged (see `gradients`).
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import CodeType
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.diagnostics.syntax_trees import syntax_tree
from ...dsl.frontend.base import Gradient
from ...dsl.frontend.python.register import Kernel
from ...dsl.package.library import LibraryKernel
from ...dsl.signature.schema import OpSchema

_GROUPS: Final = ("inputs", "outputs")
_HARMLESS: Final = ("parameters", "needs_input_grad")
_READ_ALL: Final = ("locals", "vars", "eval", "exec", "dir")


@dataclass(frozen=True)
class Uses:
    """The positions of the inputs and outputs of an op that its backward needs; None for all of them.

    Of a backward that is a graph, `needs` says for which inputs, lists one by one, it computes gradients; it takes all
    tensors, of which those that it does not need have sizes alone.
    """

    inputs: frozenset[int] | None = None
    outputs: frozenset[int] | None = None
    needs: tuple[bool, ...] = ()

    def has(self, other: Uses) -> bool:
        """Whether all that others use is among these."""
        pairs = (self.inputs, other.inputs), (self.outputs, other.outputs)
        return all(mine is None or (theirs is not None and theirs <= mine) for mine, theirs in pairs)


def uses_of(schema: OpSchema, record: Gradient | None) -> Uses:
    """What the backward of an op needs."""
    if record is None or record.is_graph:
        return Uses()
    if isinstance(record.compute, Kernel | LibraryKernel):
        names = {argument.name for argument in record.compute.schema.tensors}
        inputs, outputs = ([k for k, a in enumerate(g) if a.name in names] for g in (schema.inputs, schema.outputs))
        return Uses(frozenset(inputs), frozenset(outputs))
    node = _node_of(getattr(record.compute, "__code__", None))
    if node is None or not (node.args.posonlyargs or node.args.args):
        return Uses()
    result = _read(node, (*node.args.posonlyargs, *node.args.args)[0].arg)
    if result is None:
        return Uses()
    counts = len(schema.inputs), len(schema.outputs)
    kept = [
        None if each is None else frozenset(k % max(n, 1) for k in each) for each, n in zip(result, counts, strict=True)
    ]
    return Uses(kept[0], kept[1])


_Function = ast.FunctionDef | ast.Lambda


def _node_of(code: CodeType | None) -> _Function | None:
    """The syntax tree of a function, if its text is still what was compiled."""
    if code is None:
        return None
    text = "".join(linecache.getlines(code.co_filename))
    try:
        tree = syntax_tree(text)
        known = [
            each
            for each in _codes(compile(text, code.co_filename, "exec", dont_inherit=True))
            if _place(each) == _place(code)
        ]
    except (SyntaxError, ValueError) as error:
        raise_if_of_handler(error)
        return None
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Function)
        and min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) == code.co_firstlineno
        and getattr(node, "name", "<lambda>") == code.co_name
    ]
    return nodes[0] if known == [code] and len(nodes) == 1 else None


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _read(function: _Function, context: str) -> list[set[int] | None] | None:
    """What a function reads of the inputs and outputs of its context, None for all; None where it hands it on."""
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    shared = any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function))
    if shared or any(name.id in _READ_ALL for name in names):
        return None
    results: dict[str, set[int] | None] = {group: set() for group in _GROUPS}
    for name in names:
        if name.id != context:
            continue
        member = parents[name]
        if not (isinstance(name.ctx, ast.Load) and isinstance(member, ast.Attribute)):
            return None
        if member.attr in _HARMLESS:
            continue
        if member.attr not in _GROUPS:
            return None
        positions, known = _positions(member, parents[member], names), results[member.attr]
        results[member.attr] = None if positions is None or known is None else known | positions
    return [results[group] for group in _GROUPS]


def _positions(member: ast.Attribute, parent: ast.AST, names: list[ast.Name]) -> set[int] | None:
    """Which elements of `context.inputs` are read where it stands; None for all."""
    if isinstance(parent, ast.Subscript) and parent.value is member:
        try:
            index = ast.literal_eval(parent.slice)
        except ValueError:
            return None
        return {index} if type(index) is int else None
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Tuple | ast.List)
    ):
        targets = parent.targets[0].elts
        if all(isinstance(target, ast.Name) for target in targets):
            read = {name.id for name in names if isinstance(name.ctx, ast.Load | ast.Del)}
            return {k for k, target in enumerate(targets) if isinstance(target, ast.Name) and target.id in read}
    return None
