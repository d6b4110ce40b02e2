"""Writes hints for values that stand where they cannot: what to write instead."""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import plural
from ...dsl.frontend import syntax as s
from ...dsl.language import foreign_names
from ...dsl.language.stubs import STUBS
from ...dsl.types.dtype import INT
from ..ir.program import Value
from .spelling import cast_of, source_of
from .values.compile_time import Bound, ClassValue, Closure, Frame, Marker, is_comptime_number
from .values.describe import describe
from .values.index import BodyIndex


def over_indices(value: object, node: s.SyntaxNode, frame: Frame, function: str = "") -> str | None:
    """For a tensor where items are wanted, or as the argument of `sum`, `max` and similar ones."""
    if not hasattr(value, "dims") or isinstance(value, BodyIndex):
        return None
    text = source_of(node, frame)
    loop = f"a loop runs over indices: `for k in range({text}.dim(0)):`, with {text}[k] in it"
    return foreign_names.over_tensor(function, text) or loop


def over_slice(
    target: s.Subscript, parts: tuple[object, ...], value: object, source: s.SyntaxNode, frame: Frame
) -> str:
    """For a slice of a tensor that is stored to: `out[:] = 0`."""
    whole = all(part == slice(None) for part in parts)
    element = source_of(source, frame)
    if hasattr(value, "dims") and not isinstance(value, BodyIndex):
        element += "[i]"
    if not whole or element == source_of(target, frame):
        return "store element by element, in a loop: `for k in range(n):`"
    return f"elements are stored in a loop: foreach({source_of(target.value, frame)}, lambda i: {element})"


def over_elements(function: str, node: s.SyntaxNode, frame: Frame) -> str:
    """For a tensor that is given to a function of numbers."""
    text = source_of(node, frame)
    more = ", ..." if len(STUBS[function].operands) > 1 else ""
    return f"work on elements: {function}({text}[i]{more}) in the body of a foreach"


def bound_of_range(value: object, node: s.SyntaxNode, frame: Frame) -> str | None:
    """For what is not a whole number."""
    if isinstance(value, Value) and value.dtype.is_float():
        return f"write {cast_of(node, frame, INT.dtype)}"
    if isinstance(value, Bound) and isinstance(node, s.Attribute):
        return f"write {source_of(node, frame)}(0)"
    if isinstance(value, tuple):
        return f"write {source_of(node, frame)}[0]"
    return f"write {source_of(node, frame)}.dim(0)" if hasattr(value, "dims") else None


def uncallable(value: object, node: s.SyntaxNode, frame: Frame) -> str | None:
    """For something that is called and is not a function."""
    if isinstance(value, Marker):
        sizes = "T, 4" if value.name == "SIMD" else "T"
        return f"write its dtype in brackets: {value.name}[{sizes}]({'x' if value.name == 'SIMD' else '4'})"
    if isinstance(value, ClassValue):
        return f"write {value.name}, the class itself"
    if isinstance(node, s.Attribute) and node.name == "size" and isinstance(value, Value):
        return f"write {source_of(node.value, frame)}.dim"
    if isinstance(node, s.Attribute) and isinstance(value, Value | tuple):
        return f"write {source_of(node, frame)} alone: it is a value"
    return None


def unindexable(node: s.SyntaxNode, frame: Frame) -> str | None:
    """For a number that is indexed: `x[i][j]`."""
    if not isinstance(node, s.Subscript) or not isinstance(node.value, s.Subscript):
        return None
    text = source_of(node.value, frame)
    return f"write {text}: it is an element already, and the index is redundant"


def width_by_name(node: s.SyntaxNode, rank: int, got: int, frame: Frame) -> str | None:
    """For `x.load(i, 8)`: the number behind the index is meant as the width."""
    if not isinstance(node, s.Call) or not isinstance(node.function, s.Attribute) or node.function.name != "load":
        return None
    if got != rank + 1 or len(node.arguments) != got:
        return None
    return f"write width={source_of(node.arguments[-1], frame)} for the number of lanes"


def index_of_rank(tensor: Any, got: int) -> str | None:
    """For an index of too few parts."""
    if got >= tensor.rank:
        return None
    names = ", ".join("ijklmnop"[: tensor.rank]) if tensor.rank <= 8 else "..."
    rest = ", ".join(["i", *":" * (tensor.rank - 1)])
    return f"an element is {tensor.name}[{names}]; {tensor.name}[{rest}] is a view of a part"


def index_of_tuple(node: s.SyntaxNode, owner: object, frame: Frame) -> str | None:
    """For an index of a tuple that is known only at run time."""
    if not isinstance(node, s.Subscript) or not isinstance(owner, tuple):
        return None
    text, count = source_of(node.value, frame), len(owner)
    if any(hasattr(item, "dims") for item in owner):
        return f"which tensor is known at compile time: `for k in unroll({count})`, and {text}[k] in it"
    return (
        f"pass the op a tensor with these numbers, or copy them to storage: `table = stack[T]({count})`, then "
        f"`table[k] = {text}[k]` in a loop `for k in unroll({count})`"
    )


def body_takes(body: object, given: int, what: str) -> str | None:
    """What is wrong with the arguments of a function that is called with `given` of them, or None."""
    if not isinstance(body, Closure):
        return None
    params = [param for param in body.function.params if not param.keyword_only]
    needed = [param for param in params if param.default is None]
    if len(needed) <= given <= len(params):
        return None
    takes = f"{plural(len(params), 'argument')}"
    return f"the body is called with {what}, and takes {takes}"


def of_body(body: Closure, given: str) -> str:
    """How a body that takes several indices is written."""
    names = [param.name for param in body.function.params]
    if len(names) < 2:
        return f"write `lambda {given}: ...`, or `def body({given}):`"
    listed = ", ".join(names)
    if given == "k":
        return f"write `def body(k):`, and find {' and '.join(names)} in it: `{listed} = k // n, k % n`"
    if "," in given:
        return f"write `lambda {given}: ...`, or `def body({given}):`"
    return f"take one index and unpack it: `def body({given}):` with `{listed} = {given}` as its first line"


def no_function(node: s.SyntaxNode, frame: Frame, given: str) -> str:
    """For a value where a function is wanted."""
    return f"write lambda {given}: {source_of(node, frame)}"


def dtype_for(value: object) -> str | None:
    """For what stands where a dtype is wanted: Python's own types, and names in quotes."""
    return foreign_names.of_dtype(getattr(value, "name", value))


def count_of(value: object) -> str | None:
    """For what is not a number, where the number of iterations of a loop is required."""
    if isinstance(value, Closure):
        return "the number comes first, then the body: parallel_for(n, body)"
    if isinstance(value, tuple):
        return "write one number, the product of the sizes, and find the indices in the body: `i, j = k // n, k % n`"
    return None


# Functions of the library by the names that authors know them by.
COLLECTIVES = {
    f"{scope}_{what}": f"gpu.{scope}.{what}" for scope in ("warp", "block") for what in ("reduce", "scan", "broadcast")
}


def library_argument(name: str, param: str, given: dict[str, Any]) -> tuple[str, str] | None:
    """What is wrong with an argument of a function of the library, and the hint; None for what may be right."""
    value, monoid = given[param], given.get("monoid")
    if param == "v" and name in COLLECTIVES and hasattr(value, "dims"):
        return (
            f"'{COLLECTIVES[name]}' works on a value of each thread, not on {describe(value)}",
            "pass the element of this thread: x[gpu.global_idx.x]",
        )
    name = COLLECTIVES.get(name, name)
    if param == "monoid" and (isinstance(value, Closure | str) or is_comptime_number(value)):
        return (
            f"'{name}' takes a monoid, not {describe(value)}",
            "a monoid is a class such as Sum or Max of einkorn.stdlib, or one of yours that derives from Monoid",
        )
    if (name, param) != ("rowwise", "body"):
        return None
    count = len(monoid) if isinstance(monoid, tuple) else 1  # each monoid has a value of its own
    what, names = ("a row and its value", "value") if count == 1 else (f"a row and {count} values", "")
    wrong = body_takes(value, 1 + count, what)
    return (wrong, of_body(value, f"row, {names or ', '.join(f'value{k}' for k in range(count))}")) if wrong else None
