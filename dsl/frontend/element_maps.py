"""Recognises kernels that compute each element of elements at the same place, by their text alone.

    def silu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]):
        foreach(out, lambda i: x[i] * sigmoid(x[i]))

Such a kernel can know neither the index nor the sizes nor the rank: it computes the same elements over any axes that
hold as many. See also `compiler.inference.facts`, which finds more by evaluating kernels, and takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..signature.schema import Form, OpSchema, Role, is_pack
from .syntax import (
    Attribute,
    Expr,
    Expression,
    Function,
    Global,
    Lambda,
    Name,
    Param,
    Subscript,
    SyntaxNode,
    children,
    walk,
)
from .syntax import Call as CallSyntax


def maps_elements(schema: OpSchema, kernel: object, stubs: Mapping[int, str]) -> bool:
    """Whether a kernel is one `foreach` over its output that reads each tensor at the index of the element alone.

    Args:
        schema: the kernel's signature.
        kernel: the syntax tree of its function.
        stubs: the numbers of the globals that are functions of the language, and their names.
    """
    if not _has_one_shape(schema) or not isinstance(kernel, Function) or not kernel.body:
        return False
    *before, last = kernel.body
    if any("gpu" in name for name in stubs.values()) or not isinstance(last, Expression):
        return False
    call = last.value
    if not isinstance(call, CallSyntax) or call.keywords or len(call.arguments) != 2:
        return False
    over, element = call.arguments
    is_loop = isinstance(call.function, Global) and stubs.get(call.function.index) == "foreach"
    if not is_loop or not isinstance(over, Name) or over.id != schema.outputs[0].name:
        return False
    function = _function_of(element, before)
    if function is None or len(function.params) != 1 or function.params[0].default is not None:
        return False
    tensors = {argument.name for argument in schema.inputs if argument.form is not Form.SCALAR}
    index = function.params[0].name
    hidden = tensors | {index, over.id}
    content = function.body if isinstance(function.body, tuple) else (function.body,)
    others = (statement for statement in before if statement is not function)
    return all(_is_plain(part, tensors, index, hidden) for part in (*content, *others))


def _has_one_shape(schema: OpSchema) -> bool:
    """Whether the tensors of a kernel have any shape, the same one, and one is an output."""
    tensors = [argument for argument in schema.tensors if argument.form is not Form.SCALAR]
    if any(each.role not in (Role.INPUT, Role.OUTPUT) or each.form is Form.VARIADIC for each in tensors):
        return False
    dims = {each.dims for each in tensors}
    return len(dims) == 1 and is_pack(dims.pop()) and len(schema.outputs) == 1


def _function_of(element: Expr, before: Sequence[SyntaxNode]) -> Lambda | Function | None:
    """The function of an element: a lambda, or one that the kernel defines before its loop."""
    if isinstance(element, Lambda):
        return element
    if not isinstance(element, Name):
        return None
    named = [
        part for each in before for part in walk(each) if getattr(part, "name", getattr(part, "id", "")) == element.id
    ]
    return named[0] if len(named) == 1 and isinstance(named[0], Function) and named[0] in before else None


def _is_plain(node: SyntaxNode, tensors: set[str], index: str, hidden: set[str]) -> bool:
    """Whether tensors are only read at the index, the index is used for nothing else, and no name hides these."""
    if isinstance(node, Name):
        return node.id not in hidden
    if isinstance(node, Param | Function) and node.name in hidden:
        return False
    if isinstance(node, Attribute) and node.name == "dtype":
        return True
    if isinstance(node, Subscript) and isinstance(node.value, Name) and node.value.id in tensors:
        return isinstance(node.index, Name) and node.index.id == index
    return all(_is_plain(each, tensors, index, hidden) for each in children(node))
