"""Maps names of NumPy, PyTorch, Triton, Numba, CUDA and Mojo to names of the language, for the hints of errors."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from typing import Any

from ..types.dtype import DType
from .formulas import FORMULAS
from .stubs import STUBS

# The same function under another name: what is written is replaced, its arguments stay.
RENAMED = {
    "absolute": "abs",
    "all_sync": "gpu.warp.all",
    "any_sync": "gpu.warp.any",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "atomicAdd": "atomic_add",
    "atomicAnd": "atomic.and_",
    "atomicMax": "atomic.max",
    "atomicMin": "atomic.min",
    "ballot_sync": "gpu.warp.ballot",
    "barrier": "gpu.barrier",
    "block_dim": "gpu.block_dim",
    "block_idx": "gpu.block_idx",
    "blockDim": "gpu.block_dim",
    "blockIdx": "gpu.block_idx",
    "cdiv": "ceildiv",
    "clip": "clamp",
    "copy_async": "gpu.copy_async",
    "cp_async": "gpu.copy_async",
    "double": "float64",
    "dp4a": "dot4",
    "elect_sync": "gpu.warp.elect",
    "fabs": "abs",
    "fix": "trunc",
    "float_power": "pow",
    "fmax": "max",
    "fmin": "min",
    "gammaln": "lgamma",
    "global_idx": "gpu.global_idx",
    "grid_dim": "gpu.grid_dim",
    "gridDim": "gpu.grid_dim",
    "half": "float16",
    "lane_id": "gpu.lane_idx",
    "lane_idx": "gpu.lane_idx",
    "laneid": "gpu.lane_idx",
    "match_any_sync": "gpu.warp.match",
    "maximum": "max",
    "memcpy_async": "gpu.copy_async",
    "minimum": "min",
    "power": "pow",
    "rint": "round",
    "shfl_down_sync": "gpu.warp.shuffle_down",
    "shfl_sync": "gpu.warp.shuffle_idx",
    "shfl_up_sync": "gpu.warp.shuffle_up",
    "shfl_xor_sync": "gpu.warp.shuffle_xor",
    "shuffle_down": "gpu.warp.shuffle_down",
    "shuffle_idx": "gpu.warp.shuffle_idx",
    "shuffle_up": "gpu.warp.shuffle_up",
    "shuffle_xor": "gpu.warp.shuffle_xor",
    "static_range": "unroll",
    "syncthreads": "gpu.barrier",
    "thread_idx": "gpu.thread_idx",
    "threadIdx": "gpu.thread_idx",
    "warp_id": "gpu.warp_idx",
    "warp_idx": "gpu.warp_idx",
    "WARP_SIZE": "gpu.warp_size",
    "warpSize": "gpu.warp_size",
    "warpsize": "gpu.warp_size",
    "where": "select",
}

# What einkorn.stdlib has.
LIBRARY: tuple[str, ...]
LIBRARY = ("All", "Any", "ArgMax", "ArgMin", "LogSumExp", "Max", "Min", "Monoid", "Product", "Sum", "Welford")
LIBRARY += ("argsort", "normal", "philox", "philox_4x32", "philox_4x64", "reduce", "rowwise", "scan", "sort")
LIBRARY += ("stencil", "top_k", "uniform")
LIBRARY += ("ComposedLayout", "Layout", "Swizzle", "blocked_product", "coalesce", "complement", "composition")
LIBRARY += ("left_inverse", "logical_divide", "logical_product", "raked_product", "right_inverse", "tiled_divide")
LIBRARY += ("zipped_divide", "LayoutTensor", "LayoutTensorIter", "TensorCore", "copy_dram_to_local")
LIBRARY += ("copy_dram_to_sram", "copy_dram_to_sram_async", "copy_local_to_dram", "copy_local_to_shared")
LIBRARY += ("copy_sram_to_dram", "copy_sram_to_local", "outer_product_acc")

_REDUCED = {
    "sum": "reduce({}, Sum)",
    "mean": "reduce({}, Welford)[0]",
    "average": "reduce({}, Welford)[0]",
    "var": "reduce({}, Welford)[1]",
    "std": "sqrt(reduce({}, Welford)[1])",
    "max": "reduce({}, Max)",
    "amax": "reduce({}, Max)",
    "min": "reduce({}, Min)",
    "amin": "reduce({}, Min)",
    "prod": "reduce({}, Product)",
    "argmax": "reduce({}, ArgMax)",
    "argmin": "reduce({}, ArgMin)",
    "any": "reduce({}, Any)",
    "all": "reduce({}, All)",
    "logsumexp": "reduce({}, LogSumExp)",
}
_STORAGE = (
    "outputs are declared in the signature; storage of a fixed size is stack[T](n), of a run-time size scratch[T](n)"
)
_SCAN = "sums and products up to each element are scan(out, x, {0}); import it: `from einkorn.stdlib import scan, {0}`"
_INDEX = "an index comes from a loop: foreach(out, lambda i: ...), or `for i in range(n)`"
_ELEMENTS = "all elements are foreach(out, lambda i: ...); along one axis, `for i in range(out.shape[0])`"
_TENSOR = 'tensors of a kernel are InputTensor[T, "m n"] and OutputTensor[T, "m n"]'
_REGISTER = 'a kernel is a function under @register("name")'
_WIDTH = "foreach chooses the width of vectors; x.load(i, width=8) is a vector of 8 elements"
_CONSTANTS = ("pi", "tau", "e")
_MATH = "write `import math` at the top of the file, and math.{}"
_NAMES = {
    **dict.fromkeys(("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "array"), _STORAGE),
    **dict.fromkeys(("tensor", "asarray", "local_array"), _STORAGE),
    **dict.fromkeys(
        ("dot", "matmul", "mm", "einsum"), "write the loops of the product, or use ops.matmul in the graph"
    ),
    **dict.fromkeys(("i", "j", "k", "idx", "index"), _INDEX),
    "cumprod": _SCAN.format("Product"),
    "cumsum": _SCAN.format("Sum"),
    **dict.fromkeys(("cuda", "tid"), "in a kernel that ctx.launch runs, gpu.global_idx.x is the number of the thread"),
    "arange": "numbers in a row are a loop, `for k in range(n)`, or a vector, iota(int32, 8)",
    "constexpr": "what is known at compile time is a parameter: after the `*` of the signature, `*, block: int = 64`",
    "ctx": "take it as the last argument of the op: ctx: DeviceContext",
    **dict.fromkeys(("ndindex", "ndenumerate", "nditer"), _ELEMENTS),
    **dict.fromkeys(
        ("fori_loop", "while_loop"), "loops are Python's: `for i in range(n)`, `while`; variables change in them"
    ),
    "inf": 'write float("inf")',
    "nan": 'write float("nan")',
    "load": "an element is x[i], and x.load(i, width=8) is a vector of them",
    **dict.fromkeys(("prange", "parallelize", "sync_parallelize"), "parallel_for(n, body) calls body(k) in parallel"),
    "elementwise": "foreach(out, lambda i: ...) computes every element of an output",
    **dict.fromkeys(("InlineArray", "StaticTuple", "stack_allocation"), "storage of a fixed size is stack[T](n)"),
    **dict.fromkeys(("UnsafePointer", "LegacyUnsafePointer"), "x.pointer() is the address of a tensor's elements"),
    **dict.fromkeys(("IndexList", "Index2D"), "an index is a tuple of numbers, x[i, j]"),
    **dict.fromkeys(("ManagedTensorSlice", "Tensor"), _TENSOR),
    **dict.fromkeys(("jit", "njit", "guvectorize", "cuda_jit", "kernel", "custom_op"), _REGISTER),
    **dict.fromkeys(("simdwidthof", "simd_width_of"), _WIDTH),
    "Scalar": "a number of dtype T is T(x), and Float32(x) one of float32",
    "memset_zero": "memset(x.pointer(), 0, count) stores a value in elements",
    "program_id": "in a kernel that ctx.launch runs, gpu.block_idx.x is the number of the block",
    "shared_array": "memory that the threads of a block share is gpu.shared[T](n)",
    "tl": "an element is x[i], a vector x.load(i, width=8), and functions such as exp are in einkorn.dsl",
    "math": "write `import math` at the top of the file",
    **dict.fromkeys(("np", "numpy", "torch", "jnp"), "functions of numbers, such as exp(x), are in einkorn.dsl"),
    **{name: _MATH.format(name) for name in _CONSTANTS},
}
_CASTS = {"astype": "", "to": "", "type": "", "view": ""}
_CASTS |= {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "bool": "bool8"}
_PYTHON_TYPES = {"float": "float64", "int": "int64", "bool": "bool8", "bool_": "bool8"}
COMPLEX = {
    "complex": "float64",
    "complex64": "float32",
    "complex128": "float64",
    "cfloat": "float32",
    "cdouble": "float64",
}
_OF_ARRAYS = ("jax", "numpy", "scipy", "torch")
# Functions of NumPy, PyTorch and JAX that mean for numbers what functions of the language do: kernels may call them.
SAME = {
    name: RENAMED.get(name, name)
    for name in (
        *("abs", "absolute", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh"),
        *("asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clip", "copysign", "cos", "cosh", "erf", "erfc"),
        *("exp", "exp2", "expm1", "floor", "hypot", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2"),
        *("maximum", "minimum", "power", "rint", "rsqrt", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
        *("where",),
    )
}
_LIBRARIES = ("numpy", "torch", "jax.numpy", "jax.lax")
_KEYWORDS = {"var": "a variable is made by its first assignment", "let": "a variable is made by its first assignment"}
_KEYWORDS |= dict.fromkeys(("alias", "comptime"), "a compile-time number is a variable of the file, or a parameter")
_KEYWORDS |= {"fn": "a function begins with def", "++": "counting up is k += 1", "--": "counting down is k -= 1"}
_VALUES = {
    "item": "{}",
    "tolist": "{}",
    "numpy": "{}",
    "relu": "max({}, 0)",
    "sigmoid": "1 / (1 + exp(-{}))",
    "square": "{0} * {0}",
    "sum": "{}.reduce_add()",
    "prod": "{}.reduce_mul()",
    "max": "{}.reduce_max()",
    "min": "{}.reduce_min()",
}
_TENSORS = {
    "numel": "write {}.size",
    "ndim": "write {}.rank",
    "ndims": "write {}.rank",
    "T": "elements are reached in any order: {}[j, i]",
    **dict.fromkeys(("transpose", "permute", "t", "mT"), "elements are reached in any order: {}[j, i]"),
    **dict.fromkeys(
        ("reshape", "flatten", "ravel", "flat", "squeeze", "unsqueeze"),
        "{}.at(p) is the element at a row-major position, whatever the shape",
    ),
    **dict.fromkeys(("copy", "clone", "contiguous"), "elements are copied in a loop: foreach(out, lambda i: {}[i])"),
    **dict.fromkeys(("fill", "fill_", "copy_"), "elements are stored in a loop: foreach(out, lambda i: {}[i])"),
    "data": "write {}.pointer()",
    "data_ptr": "write {}.pointer",
    "item": "write {}[0]",
}


def of_name(name: str, known: Collection[str] = ()) -> str | None:
    """The hint for an unknown name; `known` are the names that the author's text has there."""
    if name in RENAMED:
        return f"write {RENAMED[name]}"
    if name in LIBRARY:
        return f"write `from einkorn.stdlib import {name}` at the top of the file"
    if name in _CONSTANTS and "math" in known:
        return f"write math.{name}"
    if name in FORMULAS:
        arguments, formula = FORMULAS[name]
        return f"{name}({arguments}) is {formula}"
    return _NAMES.get(name)


def of_line(line: str) -> str | None:
    """The hint for a line that is not Python, but another language."""
    words = line.split()
    ending = line.rstrip()[-2:]
    return _KEYWORDS.get(words[0] if words else "") or _KEYWORDS.get(ending)


def of_dtype(value: Any) -> str | None:
    """The hint for what stands where a dtype is wanted: Python's own types, those of NumPy and PyTorch, a string."""
    if not isinstance(value, str | type) and type(value).__name__ != "dtype":
        return None
    name = value if isinstance(value, str) else getattr(value, "__name__", str(value)).rpartition(".")[2]
    if name in COMPLEX and name not in DType.__members__:
        return f'write {COMPLEX[name]} for {name}, with an axis of 2 for the real and the imaginary part, as in "n 2"'
    here = _PYTHON_TYPES.get(name, RENAMED.get(name, name))
    if here not in DType.__members__ and here != "bool8":
        return None
    return f"write {here} without quotes" if isinstance(value, str) and name == here else f"write {here} for {name}"


def of_foreign(name: str) -> str | None:
    """The hint for a function or a dtype of another package, by its name with that of the module."""
    module, _, name = name.rpartition(".")
    if name == "remainder" and module != "math":  # that of IEEE 754 has this name in `math` and in the language
        return "remainder(a, b) is a % b"
    if name == "isclose" and module == "math":  # its tolerances are others than those of the language and of NumPy
        return "write isclose(a, b, rtol=1e-9, atol=0.0) of einkorn.dsl"
    here = RENAMED.get(name, name)
    if name in _REDUCED:
        return f"{name}(x) is {_reduction('x', name)}"
    if here in STUBS or here in DType.__members__:
        return f"use '{here}' of einkorn.dsl"
    return of_name(name)


def same_function(value: Any) -> str | None:
    """The function of the language that a function of NumPy, PyTorch or JAX stands for in kernels."""
    name = getattr(value, "__name__", None)
    here = SAME.get(name) if isinstance(name, str) else None
    if here not in STUBS:
        return None
    libraries = (sys.modules.get(library) for library in _LIBRARIES)
    return here if any(getattr(library, str(name), None) is value for library in libraries if library) else None


def is_of_arrays(value: Any) -> bool:
    """Whether a function belongs to NumPy, PyTorch, JAX or SciPy: its text is not compiled as a kernel's."""
    return str(getattr(value, "__module__", None)).partition(".")[0] in _OF_ARRAYS


def of_value(name: str, text: str) -> str | None:
    """The hint for a method that numbers and vectors do not have; `text` is the author's."""
    if name in _CASTS:
        return f"write {text}.cast({_CASTS[name] or '...'})"
    if name in _VALUES:
        return f"write {_VALUES[name].format(text)}"
    here = RENAMED.get(name, name)
    if here not in STUBS or "." in here:
        return None
    more = ", ..." if len(STUBS[here].operands) > 1 else ""
    return f"write {here}({text}{more})"


def of_tensor(name: str, text: str) -> str | None:
    """The hint for a method that tensors do not have."""
    if name in _REDUCED:
        return f"write {_reduction(text, name)}"
    if name in _TENSORS:
        return _TENSORS[name].format(text)
    element = of_value(name, f"{text}[i]")
    return f"work on elements: {element.removeprefix('write ')} in the body of a foreach" if element else None


def of_object(value: Any, name: str) -> str | None:
    """The hint for an object that kernels do not see: what to make of it outside of them."""
    if hasattr(value, "ndim") and hasattr(value, "tolist"):
        rows = {1: f"tuple({name}.tolist())", 2: f"tuple(map(tuple, {name}.tolist()))"}.get(value.ndim)
        return "make it an input of the op" + (f", or a tuple of numbers: {name} = {rows}" if rows else "")
    if isinstance(value, list | set | bytes | range):
        return f"make it a tuple: {name} = tuple({name}), or an input of the op"
    if isinstance(value, dict):
        return "give each value a name of its own, or make them fields of a class under @struct"
    if hasattr(value, "nin") and callable(value):  # a ufunc
        return None
    if callable(value) and is_of_arrays(value):
        return f"{name} takes whole arrays: call it outside of the kernel, and make its result an input of the op"
    if callable(value) and hasattr(value, "__wrapped__"):
        return "call the function itself, without its decorator"
    if isinstance(value, partial):
        return "write a function, or a lambda, that passes the arguments on"
    if not isinstance(value, type) and (hasattr(value, "__dict__") or hasattr(value, "__slots__")):
        kind = type(value).__name__
        if hasattr(value, "__dataclass_fields__"):
            return f"put @struct over the class {kind} instead, and its values can be used as they are"
        return "define the numbers in it as constants at the top of the file"
    return None


def over_tensor(function: str, text: str) -> str | None:
    """The hint for a function of Python's that is given a whole tensor, as in `sum(x)`."""
    return f"write {_reduction(text, function)}" if function in _REDUCED else None


def _reduction(text: str, name: str) -> str:
    written = _REDUCED[name].format(text)
    monoid = _REDUCED[name].partition(", ")[2].partition(")")[0]
    return f"{written}, or rowwise({text}, {monoid}, body) for each row"
