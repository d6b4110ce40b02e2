"""Every name that a kernel may use, with its signature and its meaning.

A `Stub` stands for an operation that the compiler knows under the same name: a row of its table of operations, or a
rule of its own. A library stub (`exp`, `sin`, …) is written in the language itself, in the standard library. Outside a
kernel a stub only says that it belongs into one. Type checkers see `language.pyi` instead of this module.

Input: nothing. Output: the names. Non-goals: no meaning in code; that is the compiler's.
"""

from __future__ import annotations

from typing import Any

from ..types import dtype as types
from ..types.dtype import DType
from . import python as python
from .annotations import BOUNDS as BOUNDS
from .annotations import SIMD as SIMD
from .annotations import DeviceContext as DeviceContext
from .annotations import Element as Element
from .annotations import Floating as Floating
from .annotations import InputTensor as InputTensor
from .annotations import Integral as Integral
from .annotations import MutableInputTensor as MutableInputTensor
from .annotations import Numeric as Numeric
from .annotations import OutputTensor as OutputTensor
from .annotations import Pointer as Pointer
from .annotations import Storable as Storable
from .annotations import TensorAnnotation as TensorAnnotation
from .annotations import stack as stack
from .mathematics import acos as acos
from .mathematics import acosh as acosh
from .mathematics import asin as asin
from .mathematics import asinh as asinh
from .mathematics import atan as atan
from .mathematics import atan2 as atan2
from .mathematics import atanh as atanh
from .mathematics import cbrt as cbrt
from .mathematics import cos as cos
from .mathematics import cosh as cosh
from .mathematics import erf as erf
from .mathematics import erfc as erfc
from .mathematics import exp as exp
from .mathematics import exp2 as exp2
from .mathematics import expm1 as expm1
from .mathematics import fmod as fmod
from .mathematics import frexp as frexp
from .mathematics import hypot as hypot
from .mathematics import ldexp as ldexp
from .mathematics import lgamma as lgamma
from .mathematics import log as log
from .mathematics import log1p as log1p
from .mathematics import log2 as log2
from .mathematics import log10 as log10
from .mathematics import pow as pow
from .mathematics import remainder as remainder
from .mathematics import rsqrt as rsqrt
from .mathematics import sin as sin
from .mathematics import sinh as sinh
from .mathematics import tan as tan
from .mathematics import tanh as tanh
from .stubs import STUBS as STUBS
from .stubs import Namespace, value
from .stubs import Stub as Stub
from .stubs import stub as _stub

# *** arithmetic: one row each in the table of operations ***


@_stub("row")
def min(x: Any, y: Any) -> Any:
    """The smaller of two values; NaN if either is NaN; -0.0 is smaller than 0.0. More than two arguments fold left."""


@_stub("row")
def max(x: Any, y: Any) -> Any:
    """The larger of two values; NaN if either is NaN. More than two arguments fold left."""


@_stub("row")
def abs(x: Any) -> Any:
    """The absolute value. The smallest signed integer stays as it is."""


@_stub("row")
def floor(x: Any) -> Any:
    """The largest whole number not above a float, as a float."""


@_stub("row")
def ceil(x: Any) -> Any:
    """The smallest whole number not below a float, as a float."""


@_stub("row")
def round(x: Any) -> Any:
    """The nearest whole number of a float, ties to even, as a float."""


@_stub("row")
def trunc(x: Any) -> Any:
    """A float without its fraction, as a float."""


@_stub("row")
def sqrt(x: Any) -> Any:
    """The square root of a float, correctly rounded."""


@_stub("row")
def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c` of floats, rounded once (half types: computed in float32, then rounded)."""


@_stub("row")
def isnan(x: Any) -> Any:
    """Whether a float is NaN."""


@_stub("row")
def isinf(x: Any) -> Any:
    """Whether a float is plus or minus infinity."""


@_stub("rule")
def select(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, else `y`. Both are computed."""


@_stub("rule")
def map_parts(f: Any, value: Any, *others: Any) -> Any:
    """`f` of each number in a value, and of those in the same place in the others, in the form that the value has:
    tuples and structs part by part. Parts may become anything, whatever a struct declares.
    """


@_stub("rule")
def bitcast(x: Any, dtype: DType) -> Any:
    """The bits of `x` read as another dtype of the same width."""


# *** loops and algorithms ***


@_stub("rule")
def foreach(out: Any, body: Any) -> None:
    """Stores `body(index)` into every element of `out`; a tuple of outputs takes a tuple of values."""


@_stub("rule")
def rare(condition: Any) -> Any:
    """The condition, of which you know that it holds for nearly no element.

    A `foreach` on a CPU then looks at a block of elements first, and computes the blocks where it never holds by a loop
    without that case.
    """


@_stub("rule")
def parallel_for(n: Any, body: Any, *, grain: Any = 1) -> None:
    """Calls `body(i)` for every i in [0, n), in any order and in parallel; a task takes at least `grain` calls."""


@_stub("rule")
def unroll(*bounds: Any) -> Any:
    """`for i in unroll(...)`: like range, or over a range or tuple, but the body is written out once for each value."""


@_stub("rule")
def static_assert(condition: Any, message: Any = "") -> None:
    """Fails the compilation with `message`, at the place of the call, unless the compile-time condition holds."""


@_stub("rule")
def store(out: Any, index: Any, value: Any) -> None:
    """`out[index] = value`, as an expression for lambdas."""


@_stub("rule")
def compiled_for() -> Any:
    """What the code is being compiled for, as `ctx.target` says it, where no `ctx` is at hand."""


@_stub("rule")
def within_parallel() -> Any:
    """Whether the code is part of parallel work already, so that loops in it run in order; known at compile time."""


# *** GPU ***


def _axes(name: str, doc: str) -> Namespace:
    return Namespace(**{axis: value(f"gpu.{name}.{axis}", f"{doc}, axis {axis}.") for axis in "xyz"})


@_stub("rule", "gpu.barrier")
def _barrier() -> None:
    """Waits until every thread of the block is here, and makes their stores to shared memory visible."""


gpu = Namespace(
    thread_idx=_axes("thread_idx", "The thread's index within its block"),
    block_idx=_axes("block_idx", "The block's index within the grid"),
    block_dim=_axes("block_dim", "Threads in a block"),
    grid_dim=_axes("grid_dim", "Blocks in the grid"),
    global_idx=_axes("global_idx", "`block_idx * block_dim + thread_idx`"),
    barrier=_barrier,
)


# *** types ***


def ceildiv(a: Any, b: Any) -> Any:
    """a / b rounded up."""
    return -(-a // b)


bool8 = DType.bool
int8 = DType.int8
int16 = DType.int16
int32 = DType.int32
int64 = DType.int64
uint8 = DType.uint8
uint16 = DType.uint16
uint32 = DType.uint32
uint64 = DType.uint64
float16 = DType.float16
bfloat16 = DType.bfloat16
float32 = DType.float32
float64 = DType.float64

Int = types.INT
Bool = types.BOOL
Int8 = types.SCALARS["Int8"]
Int16 = types.SCALARS["Int16"]
Int32 = types.SCALARS["Int32"]
Int64 = types.SCALARS["Int64"]
UInt8 = types.SCALARS["UInt8"]
UInt16 = types.SCALARS["UInt16"]
UInt32 = types.SCALARS["UInt32"]
UInt64 = types.SCALARS["UInt64"]
Float16 = types.SCALARS["Float16"]
BFloat16 = types.SCALARS["BFloat16"]
Float32 = types.SCALARS["Float32"]
Float64 = types.SCALARS["Float64"]
