"""The code of a first day with Einkorn by users of NumPy, PyTorch, Triton, Numba, CUDA, Mojo, or plain Python.

Each row is a mistake: its name, the kernel file, and what the hint has to lead to. That is `FOLLOW` where the hint
names a replacement, which is then put in by `support.hints` and has to compile. Otherwise it is words that the hint has
to say, and the kernel that an author writes to read them; it has to compile, too.
"""

from __future__ import annotations

from textwrap import dedent, indent
from typing import NamedTuple

FOLLOW = "follow"

PRELUDE = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
"""
LINE = 'out: OutputTensor[T, "n"], x: InputTensor[T, "n"]'
PLANE = 'out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]'
ROWS = 'out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]'
COUNTS = 'out: OutputTensor[T, "n"], x: InputTensor[T, "n"], nb: InputTensor[int32, "n"]'
WIDE_COUNTS = COUNTS.replace("int32", "uint64")
NUMPY = "import numpy as np\n"
SPECIAL = "from scipy import special\n"
INTEGERS = 'out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]'
LIBRARY = "from einkorn.stdlib import *\n"


class Mistake(NamedTuple):
    name: str
    wrong: str
    said: str
    right: str = ""


def kernel(body: str, signature: str = LINE, before: str = "") -> str:
    text = indent(dedent(body).strip(), "    ")
    return f'{PRELUDE}{dedent(before)}\n\n@register("op")\ndef op({signature}):\n{text}\n'


def element(expression: str, signature: str = LINE, before: str = "") -> str:
    return kernel(f"foreach(out, lambda i: {expression})", signature, before)


def declared(signature: str, body: str = "foreach(out, lambda i: x[i])", before: str = "") -> str:
    return kernel(body, signature, before)


_METHODS = [
    ("exp_method", "x[i].exp()"),
    ("sqrt_method", "x[i].sqrt()"),
    ("abs_method", "x[i].abs()"),
    ("clamp_method", "x[i].clamp(0, 1)"),
    ("clip_method", "x[i].clip(0, 1)"),
    ("relu_method", "x[i].relu()"),
    ("sigmoid_method", "x[i].sigmoid()"),
    ("pow_method", "x[i].pow(2)"),
    ("square_method", "x[i].square()"),
    ("maximum_method", "x[i].maximum(0)"),
    ("item_method", "x[i].item()"),
    ("method_of_sum", "(x[i] + 1).exp()"),
    ("float_method", "x[i].float().cast(T)"),
    ("to_method", "x[i].to(float32).cast(T)"),
    ("astype_method", "x[i].astype(float32).cast(T)"),
    ("int_method", "x[i].int().cast(T)"),
]
_FUNCTIONS = [
    ("where", "where(x[i] > 0, x[i], 0)"),
    ("maximum", "maximum(x[i], 0)"),
    ("minimum", "minimum(x[i], 0)"),
    ("fabs", "fabs(x[i])"),
    ("clip", "clip(x[i], 0, 1)"),
    ("power", "power(x[i], 2)"),
    ("arctan2", "arctan2(x[i], x[i])"),
    ("misspelt", "sqr(x[i])"),
    ("inf", "max(x[i], -inf)"),
    ("nan", "x[i] + nan"),
    ("pi", "x[i] * pi"),
    ("cdiv", "cdiv(i[0], 2).cast(T)"),
]
_FOREIGN = [
    ("np_fabs", "np.fabs(x[i])"),
    ("np_fmax", "np.fmax(x[i], 0)"),
    ("np_float32", "x[i] * T(np.float32(2))"),
    ("np_cast", "x[i].cast(np.float32).cast(T)"),
]
_MIXED = [
    ("size", "x[i] / x.dim(0)"),
    ("index", "x[i] + i[0]"),
    ("integers", "x[i] * Int32(2)"),
    ("in_max", "max(x[i], i[0])"),
    ("in_conditional", "x[i] if x[i] > 0 else i[0]"),
    ("in_select", "select(x[i] > 0, x[i], i[0])"),
    ("in_fma", "fma(x[i], x[i], i[0])"),
    ("of_function", "exp(x[i]) * x.dim(0)"),
    ("of_negative", "-x[i] * i[0]"),
    ("stored", "x[i].cast(float32) * 2"),
    ("python_float", "float(x[i])"),
    ("stored_index", "i[0]"),
]


def _reduced(name: str, call: str) -> Mistake:
    return Mistake(name, kernel(f"s = {call}\nforeach(out, lambda i: x[i] / s)"), FOLLOW)


_REDUCED = [
    _reduced("sum_method", "x.sum()"),
    _reduced("mean_method", "x.mean()"),
    _reduced("max_method", "x.max()"),
    _reduced("std_method", "x.std()"),
    _reduced("sum_of_axis", "x.sum(axis=0)"),
    Mistake(
        "sum_of_tensor",
        kernel("s = sum(x)\nforeach(out, lambda i: x[i] / s)"),
        "reduce(x, Sum)",
        kernel("s = reduce(x, Sum)\nforeach(out, lambda i: x[i] / s)", before=LIBRARY),
    ),
    Mistake(
        "sum_of_a_view",
        kernel("s = sum(x[0:2])\nforeach(out, lambda i: x[i] / s)"),
        "rowwise(x[0:2], Sum, body)",
        kernel("s = reduce(x[0:2], Sum)\nforeach(out, lambda i: x[i] / s)", before=LIBRARY),
    ),
    Mistake(
        "max_of_tensor",
        kernel("s = max(x)\nforeach(out, lambda i: x[i] / s)"),
        "reduce(x, Max)",
        kernel("s = reduce(x, Max)\nforeach(out, lambda i: x[i] / s)", before=LIBRARY),
    ),
    Mistake(
        "np_sum",
        kernel("s = np.sum(x)\nforeach(out, lambda i: x[i] / s)", before=NUMPY),
        "reduce(x, Sum)",
        kernel("s = reduce(x, Sum)\nforeach(out, lambda i: x[i] / s)", before=LIBRARY),
    ),
]

_ROWWISE = "rowwise(x, Sum, lambda row, value: store(out, row, value))"
_LIBRARY = [
    Mistake(
        "monoid_by_name",
        kernel("rowwise(x, 'sum', lambda row, value: store(out, row, value))", ROWS, LIBRARY),
        "Sum or Max",
        kernel(_ROWWISE, ROWS, LIBRARY),
    ),
    Mistake(
        "monoid_is_a_lambda",
        kernel("out[0] = reduce(x, lambda a, b: a + b)", before=LIBRARY),
        "a class such as Sum",
        kernel("out[0] = reduce(x, Sum)", before=LIBRARY),
    ),
    Mistake(
        "monoid_is_made",
        kernel("out[0] = reduce(x, Sum())", before=LIBRARY),
        "Sum, the class itself",
        kernel("out[0] = reduce(x, Sum)", before=LIBRARY),
    ),
    Mistake(
        "row_body_of_one",
        kernel("rowwise(x, Sum, lambda value: store(out, 0, value))", ROWS, LIBRARY),
        "lambda row, value:",
        kernel(_ROWWISE, ROWS, LIBRARY),
    ),
    Mistake("library_name", kernel("out[0] = reduce(x, Sum)", before="from einkorn.stdlib import Sum\n"), FOLLOW),
    Mistake(
        "functools_reduce",
        kernel("out[0] = reduce(x, Sum)", before="from functools import reduce\nfrom einkorn.stdlib import Sum\n"),
        "from einkorn.stdlib import reduce",
        kernel("out[0] = reduce(x, Sum)", before=LIBRARY),
    ),
]

_TENSORS = [
    Mistake("numel", kernel("for k in range(x.numel()):\n    out[k] = x[k]"), FOLLOW),
    Mistake("ndim", kernel("static_assert(x.ndim == 1)\nout[0] = x[0]"), FOLLOW),
    Mistake("size_of_axis", kernel("for k in range(x.size(0)):\n    out[k] = x[k]"), FOLLOW),
    Mistake("dims", kernel("n = x.dims(0)\nout[n - 1] = x[0]"), FOLLOW),
    Mistake("range_of_method", kernel("for k in range(x.dim):\n    out[k] = x[k]"), FOLLOW),
    Mistake("range_of_shape", kernel("for k in range(x.shape):\n    out[k] = x[k]"), FOLLOW),
    Mistake("range_of_tensor", kernel("for k in range(x):\n    out[k] = x[k]"), FOLLOW),
    Mistake("name_of_a_dim", kernel("for k in range(n):\n    out[k] = x[k]"), FOLLOW),
    Mistake("name_of_the_second_dim", kernel("out[0] = x[0, n - 1]", ROWS), FOLLOW),
    Mistake("brackets_twice", element("x[i[0]][i[1]]", PLANE), "x[i, j]", element("x[i[0], i[1]]", PLANE)),
    Mistake("index_then_number", element("x[i][0]", PLANE), FOLLOW),
    Mistake("width_by_position", kernel("v = x.load(0, 4)\nout.store(v, 0)"), FOLLOW),
    Mistake("transposed", element("x.T[i]", PLANE), "x[j, i]", element("x[i[0], i[1]]", PLANE)),
    Mistake("reshaped", element("x.reshape(-1)[i]"), "x.at(p)", element("x.at(i[0])")),
    Mistake("copied", kernel("y = x.copy()\nout[0] = y[0]"), "lambda i: x[i]", element("x[i]")),
    Mistake("whole_sum", kernel("y = x + 1\nout[0] = y[0]"), "x[i] in the body of a foreach", element("x[i] + 1")),
    Mistake("whole_function", kernel("y = exp(x)\nout[0] = y[0]"), "exp(x[i])", element("exp(x[i])")),
    Mistake("whole_method", kernel("y = x.exp()\nout[0] = y[0]"), "exp(x[i])", element("exp(x[i])")),
    Mistake("whole_cast", kernel("y = x.astype(T)\nout[0] = y[0]"), "x[i].cast", element("x[i].cast(T)")),
    Mistake("mask_index", kernel("out[0] = x[x > 0]"), "x[i]", element("x[i] if x[i] > 0 else 0.0")),
    Mistake("slice_assigned", kernel("out[:] = x[:] + 1"), "foreach", element("x[i] + 1")),
    Mistake("ellipsis", kernel("y = x[...]\nout[0] = y[0]"), "`:`", kernel("y = x[:]\nout[0] = y[0]")),
    Mistake("negative", kernel("out[0] = x[-1]"), "x.dim(0) - 1", kernel("out[0] = x[x.dim(0) - 1]")),
    Mistake("index_without_loop", kernel("out[i] = x[i]"), "foreach(out, lambda i:", element("x[i]")),
    Mistake(
        "value_second",
        kernel("v = x.load(0, width=4)\nout.store(0, v)"),
        "the value comes first",
        kernel("v = x.load(0, width=4)\nout.store(v, 0)"),
    ),
    Mistake(
        "input_stored",
        kernel("x[0] += 1\nout[0] = x[0]"),
        "MutableInputTensor",
        kernel("x[0] += 1\nout[0] = x[0]", LINE.replace("InputTensor", "MutableInputTensor")),
    ),
    Mistake(
        "matrix_product",
        kernel("out[0] = x @ x"),
        "loops of the product",
        kernel("s = 0.0\nfor k in range(x.dim(0)):\n    s += x[k] * x[k]\nout[0] = s"),
    ),
    Mistake(
        "np_dot",
        kernel("out[0] = np.dot(x, x)", before=NUMPY),
        "loops of the product",
        kernel("s = 0.0\nfor k in range(x.dim(0)):\n    s += x[k] * x[k]\nout[0] = s"),
    ),
]

_BODIES = [
    Mistake(
        "two_indices",
        kernel("foreach(out, lambda i, j: x[i, j])", PLANE),
        "`i, j = index`",
        kernel("def body(index):\n    i, j = index\n    return x[i, j]\nforeach(out, body)", PLANE),
    ),
    Mistake(
        "two_indices_of_def",
        kernel("def body(i, j):\n    return x[i, j]\nforeach(out, body)", PLANE),
        "`i, j = index`",
        kernel("def body(index):\n    i, j = index\n    return x[i, j]\nforeach(out, body)", PLANE),
    ),
    Mistake(
        "no_index", kernel("foreach(out, lambda: 1.0)"), "lambda index:", kernel("foreach(out, lambda index: 1.0)")
    ),
    Mistake("value_for_body", kernel("foreach(out, x[0])"), FOLLOW),
    Mistake(
        "foreach_of_number",
        kernel("foreach(x.dim(0), lambda k: store(out, k, x[k]))"),
        "parallel_for(n, body)",
        kernel("parallel_for(x.dim(0), lambda k: store(out, k, x[k]))"),
    ),
    Mistake("foreach_turned", kernel("foreach(lambda i: x[i], out)"), "the output comes first", element("x[i]")),
    Mistake(
        "body_that_stores",
        kernel("def f(i):\n    out[i] = x[i]\nforeach(out, f)"),
        "return what each element is",
        kernel("def f(i):\n    return x[i]\nforeach(out, f)"),
    ),
    Mistake(
        "parallel_for_as_a_range",
        kernel("for k in parallel_for(x.dim(0)):\n    out[k] = x[k]"),
        "parallel_for(..., body)",
        kernel("def body(k):\n    out[k] = x[k]\nparallel_for(x.dim(0), body)"),
    ),
    Mistake(
        "parallel_for_turned",
        kernel("parallel_for(lambda k: store(out, k, x[k]), x.dim(0))"),
        "the number comes first",
        kernel("parallel_for(x.dim(0), lambda k: store(out, k, x[k]))"),
    ),
    Mistake(
        "parallel_for_of_shape",
        kernel("parallel_for(x.shape, lambda k: store(out, k, x[k]))"),
        "one number",
        kernel("parallel_for(x.dim(0), lambda k: store(out, k, x[k]))"),
    ),
    Mistake(
        "parallel_for_of_two",
        kernel("parallel_for(x.dim(0), lambda a, b: store(out, a, x[b]))"),
        "k // n, k % n",
        kernel("def body(k):\n    a, b = k // 2, k % 2\n    out[a] = x[b]\nparallel_for(x.dim(0), body)"),
    ),
    Mistake(
        "parallel_for_value",
        kernel("parallel_for(x.dim(0), lambda k: x[k])"),
        "store(...)",
        kernel("parallel_for(x.dim(0), lambda k: store(out, k, x[k]))"),
    ),
    Mistake(
        "vectorize_of_one",
        kernel("vectorize(x.dim(0), 8, lambda k: store(out, k, x[k]))"),
        "lambda k, width:",
        kernel("vectorize(x.dim(0), 8, lambda k, width: out.store(x.load(k, width=width), k))"),
    ),
    Mistake("index_plus_one", element("x[i + 1]", PLANE), "i[0]", element("x[i[0] + 1, i[1]]", PLANE)),
    Mistake(
        "index_compared",
        element("x[i] if i == 0 else 0.0", PLANE),
        "i[0]",
        element("x[i] if i[0] == 0 else 0.0", PLANE),
    ),
    Mistake("index_member", element("x[i.x]"), "i[0]", element("x[i[0]]")),
]

_COPY = "table = stack[T](2)\nfor k in unroll(2):\n    table[k] = W[k]\nforeach(out, lambda i: x[i] * table[i[0] % 2])"
_TABLES = [
    Mistake(
        "numpy_table",
        element("x[i] * W[0]", before=f"{NUMPY}W = np.array([1.0, 2.0])"),
        "tuple(W.tolist())",
        element("x[i] * W[0]", before=f"{NUMPY}W = np.array([1.0, 2.0])\nW = tuple(W.tolist())"),
    ),
    Mistake(
        "list_table",
        element("x[i] * W[0]", before="W = [1.0, 2.0]"),
        "W = tuple(W)",
        element("x[i] * W[0]", before="W = [1.0, 2.0]\nW = tuple(W)"),
    ),
    Mistake(
        "bytes_table",
        element("x[i] * W[0]", before="W = b'ab'"),
        "W = tuple(W)",
        element("x[i] * W[0]", before="W = b'ab'\nW = tuple(W)"),
    ),
    Mistake(
        "dict_table",
        element("x[i] * W['a']", before="W = {'a': 1.0}"),
        "a name of its own",
        element("x[i] * A", before="A = 1.0"),
    ),
    Mistake(
        "tuple_at_run_time",
        element("x[i] * W[i[0] % 2]", before="W = (1.0, 2.0)"),
        "table[k] = W[k]",
        kernel(_COPY, before="W = (1.0, 2.0)"),
    ),
    Mistake(
        "dataclass",
        element(
            "x[i] * C.scale",
            before="from dataclasses import dataclass\n\n\n@dataclass\nclass Config:"
            "\n    scale: float = 2.0\n\n\nC = Config()",
        ),
        "put @struct over the class Config",
        element("x[i] * C.scale", before="@struct\nclass Config:\n    scale: float = 2.0\n\n\nC = Config()"),
    ),
    Mistake(
        "object",
        element(
            "x[i] * C.scale",
            before="class Config:\n    def __init__(self):\n        self.scale = 2.0\n\n\nC = Config()",
        ),
        "as constants at the top of the file",
        element("x[i] * SCALE", before="SCALE = 2.0"),
    ),
    Mistake(
        "partial",
        element(
            "f(x[i])",
            before="from functools import partial\n\n\ndef g(v, k):\n    return v * k\n\n\nf = partial(g, k=2)",
        ),
        "a lambda",
        element("f(x[i])", before="def g(v, k):\n    return v * k\n\n\ndef f(v):\n    return g(v, 2)"),
    ),
    Mistake(
        "decorated",
        element("f(x[i])", before="from functools import cache\n\n\n@cache\ndef f(v):\n    return v * 2"),
        "without its decorator",
        element("f(x[i])", before="def f(v):\n    return v * 2"),
    ),
    Mistake(
        "np_zeros",
        kernel("a = np.zeros(3)\nout[0] = a[0]", before=NUMPY),
        "stack[T](n)",
        kernel("a = stack[T](3)\nout[0] = a[0]"),
    ),
    Mistake(
        "list_storage",
        kernel("a = [0.0] * 4\nout[0] = a[0]"),
        "stack[float64](4)",
        kernel("a = stack[T](4)\nout[0] = a[0]"),
    ),
]

_LOOPS = [
    Mistake("range_of_uint64", kernel("for r in range(nb[0] + 1):\n    out[r] = x[r]", WIDE_COUNTS), FOLLOW),
    Mistake("second_bound", kernel("for r in range(0, nb[0]):\n    out[r] = x[r]", WIDE_COUNTS), FOLLOW),
    Mistake("range_of_float", kernel("for r in range(x[0]):\n    out[r] = x[r]"), FOLLOW),
    Mistake("slice_of_float", kernel("y = x[x[0]:]\nout[0] = y[0]"), FOLLOW),
    Mistake("position_of_float", kernel("out[0] = x.at(x[0])"), FOLLOW),
    Mistake("second_index", kernel("out[0] = x.load(0, x[0, 0], width=4)[0]", ROWS), FOLLOW),
    Mistake("float_index", kernel("out[0] = x[floor(x[0])]"), FOLLOW),
    Mistake(
        "for_value_in_tensor",
        kernel("for v in x:\n    out[0] = v"),
        "range(x.dim(0))",
        kernel("for k in range(x.dim(0)):\n    v = x[k]\n    out[0] = v"),
    ),
    Mistake(
        "enumerated",
        kernel("for k, v in enumerate(x):\n    out[k] = v"),
        "range(x.dim(0))",
        kernel("for k in range(x.dim(0)):\n    out[k] = x[k]"),
    ),
    Mistake(
        "zipped",
        kernel("for a, b in zip(x, out):\n    out[0] = a"),
        "range(x.dim(0))",
        kernel("for k in range(x.dim(0)):\n    out[k] = x[k]"),
    ),
    Mistake(
        "one_counter_twice",
        kernel("for k in range(4):\n    for k in range(3):\n        out[k] = x[k]\n    out[k] = 1.0"),
        "another variable for this loop",
        kernel("for k in range(4):\n    for j in range(3):\n        out[j] = x[j]\n    out[k] = 1.0"),
    ),
    Mistake(
        "unrolled_at_run_time",
        kernel("for k in unroll(x.dim(0)):\n    out[k] = x[k]"),
        "`range`",
        kernel("for k in range(x.dim(0)):\n    out[k] = x[k]"),
    ),
    Mistake(
        "prange",
        kernel("for k in prange(x.dim(0)):\n    out[k] = x[k]"),
        "parallel_for(n, body)",
        kernel("def body(k):\n    out[k] = x[k]\nparallel_for(x.dim(0), body)"),
    ),
    Mistake(
        "parallelize",
        kernel("def body(k):\n    out[k] = x[k]\nparallelize[body](x.dim(0))"),
        "parallel_for(n, body)",
        kernel("def body(k):\n    out[k] = x[k]\nparallel_for(x.dim(0), body)"),
    ),
    Mistake(
        "elementwise",
        kernel("elementwise(lambda i: x[i], out.shape)"),
        "foreach(out, lambda i: ...)",
        kernel("foreach(out, lambda i: x[i])"),
    ),
    Mistake(
        "inline_array",
        kernel("a = InlineArray[T, 4](0)\na[0] = x[0]\nout[0] = a[0]"),
        "stack[T](n)",
        kernel("a = stack[T](4)\na[0] = x[0]\nout[0] = a[0]"),
    ),
    Mistake("atomic_of_cuda", kernel("atomicAdd(out, 0, x[0])"), FOLLOW),
    Mistake(
        "stack_of_run_time",
        kernel("a = stack[T](x.dim(0))\nout[0] = a[0]"),
        "int parameter",
        kernel("a = stack[T](size)\nout[0] = a[0]", f"{LINE}, *, size: int = 64"),
    ),
    Mistake(
        "stack_without_brackets",
        kernel("a = stack(4, T)\nout[0] = a[0]"),
        "stack[T](4)",
        kernel("a = stack[T](4)\nout[0] = a[0]"),
    ),
]

_NUMBERS = [
    Mistake("helper_argument", element("f(x[i], i[0])", before="def f(v, k):\n    return v * k"), FOLLOW),
    Mistake("helper_constant", element("f(x[i])", before="def f(v):\n    return v * Int32(2)"), FOLLOW),
    Mistake(
        "accumulator", kernel("acc = 0.0\nfor k in range(x.dim(0)):\n    acc += x[k]\nout[0] = acc / x.dim(0)"), FOLLOW
    ),
    Mistake(
        "wide_accumulator",
        kernel("acc = Float32(0)\nfor k in range(3):\n    acc += x[k]\nout[0] = acc.cast(T)"),
        FOLLOW,
    ),
    Mistake("scalar_argument", element("x[i] * s", f"{LINE}, s: Float32"), FOLLOW),
    Mistake(
        "vectors_of_two_dtypes",
        kernel("a, b = x.load(0, width=4), nb.load(0, width=4)\nout.store(a + b, 0)", COUNTS),
        FOLLOW,
    ),
    Mistake(
        "vectors_of_two_widths", kernel("a = x.load(0, width=8)\nb = x.load(0, width=4)\nout.store(a + b, 0)"), FOLLOW
    ),
    Mistake(
        "wider_on_the_right", kernel("a = x.load(0, width=8)\nb = x.load(0, width=4)\nout.store(b * a, 0)"), FOLLOW
    ),
    Mistake("vector_sum", kernel("v = x.load(0, width=4)\nout[0] = v.sum()"), FOLLOW),
    Mistake("vector_max", kernel("v = x.load(0, width=4)\nout[0] = v.max()"), FOLLOW),
    Mistake("typed_variable", kernel("a: Float32 = x[0]\nout[0] = a.cast(T)"), FOLLOW),
    Mistake("typed_helper", kernel("def f(v: Float32):\n    return v\nout[0] = f(x[0]).cast(T)"), FOLLOW),
    Mistake("pointer_store", kernel("p = out.pointer()\np[0] = x.dim(0)"), FOLLOW),
    Mistake("atomic", kernel("atomic_add(out, 0, x.dim(0))"), FOLLOW),
    Mistake("stack_store", kernel("a = stack[T](4)\na[0] = x.dim(0)\nout[0] = a[0]"), FOLLOW),
    Mistake("cast_to_float", element("x[i].cast(float).cast(T)"), FOLLOW),
    Mistake("cast_to_name", element('x[i].cast("float32").cast(T)'), FOLLOW),
    Mistake("xor_as_power", element("x[i] ^ 2"), "x ** n", element("x[i] ** 2")),
    Mistake(
        "and_of_comparisons",
        element("1.0 if x[i] > 0 & x[i] < 1 else 0.0"),
        "(a > 0) & (b > 0)",
        element("1.0 if (x[i] > 0) & (x[i] < 1) else 0.0"),
    ),
    Mistake("truth_of_float", element("1.0 if x[i] else 0.0"), "`!= 0`", element("1.0 if x[i] != 0 else 0.0")),
    Mistake("not_of_float", element("1.0 if not x[i] else 0.0"), "`x == 0`", element("1.0 if x[i] == 0 else 0.0")),
    Mistake(
        "size_divided", kernel("h = x.dim(0) / 2\nout[h] = x[0]"), "`//`", kernel("h = x.dim(0) // 2\nout[h] = x[0]")
    ),
    Mistake("sqrt_of_int", element("sqrt(i[0]).cast(T)"), "cast to a float", element("sqrt(i[0].cast(T))")),
    Mistake(
        "changed_type",
        kernel("a = x[0]\na = x.dim(0)\nout[0] = a"),
        "cast the value to T",
        kernel("a = x[0]\na = x.dim(0).cast(T)\nout[0] = a"),
    ),
    Mistake("shift", element("x[i] << 2"), "x * 2 ** n", element("x[i] * 2 ** 2")),
    Mistake("relu", element("relu(x[i])"), "max(x, 0)", element("max(x[i], 0)")),
    Mistake("sigmoid", element("sigmoid(x[i])"), "1 / (1 + exp(-x))", element("1 / (1 + exp(-x[i]))")),
    Mistake("divmod", element("divmod(i[0], 2)[0].cast(T)"), "a // b", element("(i[0] // 2).cast(T)")),
]

_OTHERS = [
    Mistake(
        "percent_text",
        kernel("print('%f' % x[0])\nout[0] = x[0]"),
        "f-string",
        kernel("print(f'{x[0]}')\nout[0] = x[0]"),
    ),
    Mistake(
        "format_text",
        kernel("print('{}'.format(x[0]))\nout[0] = x[0]"),
        "f-string",
        kernel("print(f'{x[0]}')\nout[0] = x[0]"),
    ),
    Mistake(
        "thread_index",
        kernel("k = threadIdx.x\nout[k] = x[k]"),
        "gpu.thread_idx",
        kernel(
            "def f(out, x):\n    k = gpu.thread_idx.x\n    out[k] = x[k]\nctx.launch(f, out, x, grid=1, block=32)",
            f"{LINE}, ctx: DeviceContext",
        ),
    ),
    Mistake(
        "program_id",
        kernel("k = program_id(0)\nout[k] = x[k]"),
        "gpu.block_idx.x",
        kernel(
            "def f(out, x):\n    k = gpu.block_idx.x\n    out[k] = x[k]\nctx.launch(f, out, x, grid=1, block=32)",
            f"{LINE}, ctx: DeviceContext",
        ),
    ),
    Mistake(
        "not_launched",
        kernel("k = gpu.thread_idx.x\nout[k] = x[k]"),
        "ctx.launch",
        kernel(
            "def f(out, x):\n    k = gpu.thread_idx.x\n    out[k] = x[k]\nctx.launch(f, out, x, grid=1, block=32)",
            f"{LINE}, ctx: DeviceContext",
        ),
    ),
    Mistake(
        "no_context",
        kernel("ctx.launch(f, out, x, grid=1, block=32)", before="def f(out, x):\n    out[0] = x[0]"),
        "ctx: DeviceContext",
        kernel(
            "ctx.launch(f, out, x, grid=1, block=32)",
            f"{LINE}, ctx: DeviceContext",
            "def f(out, x):\n    out[0] = x[0]",
        ),
    ),
    Mistake(
        "triton_load",
        kernel("v = tl.load(x)\nout[0] = v"),
        "x.load(i, width=8)",
        kernel("v = x.load(0, width=8)\nout[0] = v[0]"),
    ),
    Mistake("mojo_variable", kernel("var a = x[0]\nout[0] = a"), "first assignment", kernel("a = x[0]\nout[0] = a")),
    Mistake("counted_up", kernel("k = 0\nk++\nout[k] = x[0]"), "k += 1", kernel("k = 0\nk += 1\nout[k] = x[0]")),
    Mistake("with_block", kernel("with x:\n    out[0] = x[0]"), "call the function directly", kernel("out[0] = x[0]")),
    Mistake(
        "try_block",
        kernel("try:\n    out[0] = x[0]\nexcept ValueError:\n    pass"),
        "`if`",
        kernel("if x.dim(0) > 0:\n    out[0] = x[0]"),
    ),
    Mistake(
        "comprehension",
        kernel("a = [x[k] for k in range(3)]\nout[0] = a[0]"),
        "tuple(... for ...)",
        kernel("a = tuple(x[k] for k in range(3))\nout[0] = a[0]"),
    ),
    Mistake(
        "membership",
        element("1.0 if i[0] in (1, 2) else 0.0"),
        "comparisons",
        element("1.0 if i[0] == 1 or i[0] == 2 else 0.0"),
    ),
    Mistake("identity", element("1.0 if x is out else x[i]"), "`==`", element("1.0 if x.rank == 2 else x[i]")),
    Mistake(
        "walrus",
        element("(y := x[i]) + y"),
        "a line of its own",
        kernel("def f(i):\n    y = x[i]\n    return y + y\nforeach(out, f)"),
    ),
]

_UNBOUND = 'out: OutputTensor[T, "n"], x: InputTensor[T, "(n + 1)"]'
_SIGNATURES = [
    Mistake(
        "computed_input",
        declared(_UNBOUND),
        '"n_x"',
        declared('out: OutputTensor[T, "(n_x - 1)"], x: InputTensor[T, "n_x"]'),
    ),
    Mistake(
        "doubled_input",
        declared('out: OutputTensor[T, "n"], x: InputTensor[T, "(n * 2)"]'),
        '"(n_x // 2)"',
        declared('out: OutputTensor[T, "(n_x // 2)"], x: InputTensor[T, "n_x"]'),
    ),
    Mistake(
        "computed_of_nothing",
        declared('out: OutputTensor[T, "(k + 1)"], x: InputTensor[T, "n"]'),
        "`*, k: int`",
        declared('out: OutputTensor[T, "(k + 1)"], x: InputTensor[T, "n"], *, k: int'),
    ),
    Mistake(
        "commas",
        declared('out: OutputTensor[T, "m, n"], x: InputTensor[T, "m n"]'),
        "blanks",
        declared('out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]'),
    ),
    Mistake(
        "bare_sum",
        declared('out: OutputTensor[T, "n+1"], x: InputTensor[T, "n"]', "out[0] = x[0]"),
        "parentheses",
        declared('out: OutputTensor[T, "(n+1)"], x: InputTensor[T, "n"]', "out[0] = x[0]"),
    ),
    Mistake(
        "dots",
        declared('out: OutputTensor[T, "*s"], x: InputTensor[T, "..."]'),
        "*name",
        declared('out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]'),
    ),
    Mistake("dtype_in_quotes", declared('out: OutputTensor["float32", "n"], x: InputTensor[float32, "n"]'), FOLLOW),
    Mistake("dtype_of_python", declared('out: OutputTensor[float, "n"], x: InputTensor[float64, "n"]'), FOLLOW),
    Mistake(
        "dtype_of_numpy",
        declared('out: OutputTensor[np.float32, "n"], x: InputTensor[float32, "n"]', before=NUMPY),
        FOLLOW,
    ),
    Mistake("parameter_without_type", declared(f"{LINE}, *, k=2"), "k: int = 2", declared(f"{LINE}, *, k: int = 2")),
    Mistake(
        "parameter_by_position", declared(f"{LINE}, k: int = 2"), "after a `*`", declared(f"{LINE}, *, k: int = 2")
    ),
    Mistake("scalar_of_python", declared(f"{LINE}, s: float"), "`s: Float64`", declared(f"{LINE}, s: Float64")),
    Mistake(
        "result_returned",
        f'{PRELUDE}\n\n@register("op")\ndef op(x: InputTensor[T, "n"]):\n    return x\n',
        "its outputs come first",
        element("x[i]"),
    ),
    Mistake(
        "unnamed",
        kernel("out[0] = x[0]").replace('@register("op")', "@register"),
        '@register("name")',
        kernel("out[0] = x[0]"),
    ),
    Mistake(
        "name_with_blank",
        kernel("out[0] = x[0]").replace('"op"', '"my op"'),
        '"name" or "library::name"',
        kernel("out[0] = x[0]").replace('"op"', '"my_op"'),
    ),
]

_ARRAYS = [
    Mistake(
        "slice_set_to_a_number",
        kernel("out[:] = 0"),
        "foreach(out, lambda i: 0)",
        kernel("foreach(out, lambda i: 0)"),
    ),
    Mistake(
        "slice_set_to_a_tensor",
        kernel("out[:] = x"),
        "foreach(out, lambda i: x[i])",
        kernel("foreach(out, lambda i: x[i])"),
    ),
    Mistake(
        "part_set_to_a_number",
        kernel("out[1:] = 0"),
        "in a loop: `for k in range(n):`",
        kernel("for k in range(1, x.dim(0)):\n    out[k] = 0"),
    ),
    Mistake(
        "np_ndindex",
        kernel("for i in np.ndindex(out.shape):\n    out[i] = x[i]", before=NUMPY),
        "foreach(out, lambda i: ...)",
        kernel("foreach(out, lambda i: x[i])"),
    ),
    Mistake(
        "condition_added",
        kernel("count = 0\nfor k in range(x.dim(0)):\n    count += x[k] > 0\nout[0] = T(count)"),
        "(x[k] > 0).cast(int64)",
        kernel("count = 0\nfor k in range(x.dim(0)):\n    count += (x[k] > 0).cast(int64)\nout[0] = T(count)"),
    ),
    Mistake(
        "parameter_without_star",
        declared('out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], eps: float = 1e-06'),
        "`*, eps: float = 1e-06`",
        declared('out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, eps: float = 1e-06'),
    ),
]
_WHOLE = 'out: OutputTensor[T, "n"], x: InputTensor[int32, "n"]'
_MEETING = [
    Mistake(
        "integer_times_float", declared(_WHOLE.replace("T,", "float32,"), "foreach(out, lambda i: x[i] * 0.5)"), FOLLOW
    ),
    Mistake(
        "integer_in_max", declared(_WHOLE.replace("T,", "float32,"), "foreach(out, lambda i: max(x[i], 0.5))"), FOLLOW
    ),
    Mistake(
        "integer_times_whole", declared(_WHOLE.replace("T,", "int32,"), "foreach(out, lambda i: x[i] * 2.0)"), FOLLOW
    ),
    Mistake(
        "unannotated",
        declared('out, x: InputTensor[float32, "n"]'),
        'write `out: OutputTensor[T, "n"]`',
        declared('out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]'),
    ),
    Mistake(
        "complex_input",
        declared('out: OutputTensor[float32, "n"], x: InputTensor[np.complex64, "n"]', before=NUMPY),
        "write complex64 for complex64",
        declared(
            'out: OutputTensor[float32, "n"], x: InputTensor[complex64, "n"]', "foreach(out, lambda i: x[i].real)"
        ),
    ),
    Mistake(
        "numpy_matrix",
        element("x[i] * W[0][1]", before=f"{NUMPY}W = np.array([[1.0, 2.0]])"),
        "tuple(map(tuple, W.tolist()))",
        element("x[i] * W[0][1]", before=f"{NUMPY}W = np.array([[1.0, 2.0]])\nW = tuple(map(tuple, W.tolist()))"),
    ),
    Mistake(
        "np_logaddexp",
        element("np.logaddexp(x[i], x[i])", before=NUMPY),
        "logaddexp(a, b) is max(a, b) + log1p(exp(-abs(a - b)))",
        element("max(x[i], x[i]) + log1p(exp(-abs(x[i] - x[i])))"),
    ),
    Mistake("np_gcd", element("np.gcd(x[i], 6)", INTEGERS, NUMPY), "use 'gcd'", element("gcd(x[i], 6)", INTEGERS)),
    *(
        Mistake(
            f"special_{name}",
            element(f"special.{name}(x[i])", before=SPECIAL),
            f"use '{here}'",
            element(f"{here}(x[i])"),
        )
        for name, here in {"gamma": "gamma", "j0": "j0", "y1": "y1", "i0": "i0"}.items()
    ),
    Mistake("gammaln", element("special.gammaln(x[i])", before=SPECIAL), "use 'lgamma'", element("lgamma(x[i])")),
    Mistake("np_modf", element("np.modf(x[i])[0]", before=NUMPY), "use 'modf'", element("modf(x[i])[0]")),
    Mistake(
        "np_isclose",
        element("1 if np.isclose(x[i], 1) else 0", before=NUMPY),
        "use 'isclose'",
        element("1 if isclose(x[i], 1) else 0"),
    ),
    Mistake(
        "math_isclose",
        element("1 if math.isclose(x[i], 1) else 0", before="import math\n"),
        "isclose(a, b, rtol=1e-9, atol=0.0)",
        element("1 if isclose(x[i], 1, rtol=1e-9, atol=0.0) else 0"),
    ),
    Mistake(
        "np_cumsum",
        kernel("s = np.cumsum(x)\nforeach(out, lambda i: s[i])", before=NUMPY),
        "scan(out, x, Sum); import it: `from einkorn.stdlib import scan, Sum`",
        kernel("scan(out, x, Sum)", before=LIBRARY),
    ),
    Mistake(
        "np_median",
        element("x[i] - np.median(x)", before=NUMPY),
        "call it outside of the kernel",
        element("x[i] - m[0]", 'out: OutputTensor[T, "n"], x: InputTensor[T, "n"], m: InputTensor[T, "1"]'),
    ),
    Mistake("np_remainder", element("np.remainder(x[i], 2)", before=NUMPY), "is a % b", element("x[i] % 2")),
]

_SOME = "from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register"


def _not_imported(name: str, text: str, before: str = "") -> Mistake:
    """A kernel file that imports less than it uses."""
    return Mistake(f"not_imported_{name}", before + text.replace("from einkorn.dsl import *", _SOME), FOLLOW)


_IMPORTS = [
    _not_imported("function", element("exp(x[i])")),
    _not_imported("renamed", element("where(x[i] > 0, x[i], 0)")),
    _not_imported("misspelt", element("sqr(x[i])")),
    _not_imported("dtype", element("x[i].cast(float32).cast(T)")),
    _not_imported("dtype_of_signature", declared('out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: Float32')),
    _not_imported(
        "dtype_of_late_signature",
        declared('out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: Float32'),
        "from __future__ import annotations\n",
    ),
    _not_imported("loop", kernel("parallel_for(x.dim(0), lambda i: out.store(x[i], i))")),
    _not_imported("math", element("x[i] * math.pi")),
    _not_imported("constant_of_math", element("x[i] * pi", before="import math")),
    _not_imported("from_math", element("floor(x[i])", before="from math import floor")),
    _not_imported("from_numpy", element("fmax(x[i], 0)", before="from numpy import fmax")),
    Mistake(
        "not_imported_numpy",
        element("np.exp(x[i])").replace("from einkorn.dsl import *", _SOME),
        "import it: `from einkorn.dsl import exp`",
        element("exp(x[i])"),
    ),
]

MISTAKES: list[Mistake] = [
    *(Mistake(name, element(text), FOLLOW) for name, text in _METHODS + _FUNCTIONS),
    *(Mistake(name, element(text, before=NUMPY), FOLLOW) for name, text in _FOREIGN),
    *_ARRAYS,
    *(Mistake(f"mixed_{name}", element(text), FOLLOW) for name, text in _MIXED),
    *_REDUCED,
    *_LIBRARY,
    *_TENSORS,
    *_BODIES,
    *_TABLES,
    *_LOOPS,
    *_NUMBERS,
    *_OTHERS,
    *_SIGNATURES,
    *_IMPORTS,
    *_MEETING,
]
