"""Spells what the author would write: the text of a node, and the name of a dtype where a value got it from.

A kernel is evaluated for one dtype of each type variable, and its mistakes are reported for that one. A hint that says
`.cast(float32)` where the author means `T` is right for one instance and wrong for the next, so the dtype is named as
the text names it: the type variable, the dtype of an argument, or the dtype itself.
"""

from __future__ import annotations

from typing import Any

from ...dsl.frontend import syntax as s
from ...dsl.signature.schema import TensorArgument
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Value
from .values.compile_time import Frame
from .values.tensors import KernelTensor

MAX_STEPS = 8  # from a variable to where its value comes from


def source_of(node: s.SyntaxNode, frame: Frame) -> str:
    """The author's text of a node on one line, for hints."""
    line, column, end_line, end_column = node.span
    text = frame.place(node).source_line()
    if text is None or end_line != line:
        return "..."
    return text[column - 1 : end_column - 1]


def cast_of(node: s.SyntaxNode, frame: Frame, dtype: DType, like: s.SyntaxNode | None = None) -> str:
    """`(n + 1).cast(T)`: what stands at `node`, cast to the dtype of what stands at `like`."""
    return f"({source_of(node, frame)}).cast({spelled(dtype, like, frame)})"


def float_of(frame: Frame) -> str:
    """The float that integers are cast to: that of the kernel's tensors, the wider one of several; float64, as in
    NumPy, where all of them are integers."""
    parts = {DType.complex64: DType.float32, DType.complex128: DType.float64}
    floats: dict[DType, str] = {}
    for argument in frame.program.schema.tensors:
        declared = argument.dtype
        dtype = declared if isinstance(declared, DType) else frame.typevars.get(declared)
        if dtype is not None and (dtype in parts or (dtype.is_float() and not dtype.is_storage())):
            floats.setdefault(parts.get(dtype, dtype), str(parts.get(dtype, declared)))
    wider = DType.float64 if not floats or DType.float64 in floats else next(iter(floats))
    return floats.get(wider, str(wider))


def spelled(dtype: DType, node: s.SyntaxNode | None, frame: Frame) -> str:
    """The dtype of what stands at `node`, as the author would write it."""
    result = _named(node, frame, MAX_STEPS) if node is not None else None
    owner, _, member = (result or "").partition(".")
    known = frame.env.get(owner) if member == "dtype" else None
    means = known.dtype if isinstance(known, Value) else frame.typevars.get(result or "")
    return result if result is not None and means is dtype else str(dtype)


def spelled_of(tensor: KernelTensor, node: s.SyntaxNode | None, frame: Frame) -> str:
    """The dtype of a tensor that stands at `node`, as the author would write it."""
    declared = declared_dtype(tensor.annotation)
    return declared if frame.typevars.get(declared) is tensor.dtype else spelled(tensor.dtype, node, frame)


def declared_dtype(annotation: str) -> str:
    """`T` of `x: InputTensor[T, "n"]`."""
    return annotation.partition("[")[2].partition(",")[0]


def _named(node: s.SyntaxNode, frame: Frame, steps: int) -> str | None:
    """The name of the dtype of an expression's value, if its text determines it: from where its first operand comes."""
    if steps == 0:
        return None
    match node:
        case s.Name():
            return _of_variable(node.id, frame, steps - 1)
        case s.Call(function=s.Attribute(name="cast"), arguments=(to, *_)):
            return _type_name(to)
        case s.Call(function=s.Subscript(value=s.Global(), index=index)):  # stack[T](4), SIMD[T, 8](0)
            return _type_name(index.items[0] if isinstance(index, s.Tuple) else index)
        case s.Call(function=s.Global() as function) if _is_type(function, frame):
            return _type_name(function)
        case s.Call(function=s.Attribute(value=owner)):
            parts: tuple[s.SyntaxNode, ...] = (owner,)
        case s.Call(arguments=arguments):
            parts = arguments
        case s.Subscript(value=owner):
            parts = (owner,)
        case s.Binary(left=left, right=right):
            parts = (left, right)
        case s.Unary(operand=operand):
            parts = (operand,)
        case s.Conditional(then=then, otherwise=otherwise):
            parts = (then, otherwise)
        case _:
            return None
    return next((name for part in parts if (name := _named(part, frame, steps - 1)) is not None), None)


def _of_variable(name: str, frame: Frame, steps: int) -> str | None:
    """The dtype of a variable: that of a tensor, of an argument, or of what is assigned to it."""
    value: Any = frame.env.get(name)
    if annotation := getattr(value, "annotation", ""):
        return declared_dtype(annotation)
    for function in reversed(frame.stack):
        assert isinstance(function, s.Function | s.Lambda | s.Method | s.Struct)
        params = getattr(function, "params", ())
        if any(param.name == name for param in params):
            return _of_argument(name, function, value, frame)
        for part in s.walk(function):
            if isinstance(part, s.Assign | s.AugAssign) and (source := _assigned(name, part.target, part.value)):
                result = _named(source, frame, steps)
                if result is not None:
                    return result
    return None


def _assigned(name: str, target: s.Expr, value: s.Expr) -> s.Expr | None:
    """What a variable gets in an assignment."""
    if isinstance(target, s.Name):
        return value if target.id == name else None
    if not isinstance(target, s.Tuple) or not isinstance(value, s.Tuple) or len(target.items) != len(value.items):
        return None
    pairs = zip(target.items, value.items, strict=True)
    return next((item for part, item in pairs if isinstance(part, s.Name) and part.id == name), None)


def _of_argument(name: str, function: s.SyntaxNode, value: object, frame: Frame) -> str | None:
    schema = frame.program.schema
    kernel = frame.program.functions[0].syntax
    if function is kernel:
        declared = next((a for a in schema.arguments if isinstance(a, TensorArgument) and a.name == name), None)
        return str(declared.dtype) if declared is not None else None
    return f"{name}.dtype" if isinstance(value, Value) and isinstance(value.type, SIMDType) else None


def _is_type(node: s.Global, frame: Frame) -> bool:
    entry = frame.program.globals[node.index]
    return entry.kind == "typevar" or isinstance(entry.value, DType | SIMDType)


def _type_name(node: s.SyntaxNode) -> str | None:
    """The name of a type variable, where it stands for a type."""
    return node.name if isinstance(node, s.Global) else None
