"""Mistakes in kernels: each with its golden text, and each leaves the process usable."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

import pytest

SIGNATURE = 'out: OutputTensor[T, "n"], x: InputTensor[T, "n"]'
CONTEXT = f"{SIGNATURE}, ctx: DeviceContext"


def kernel(body: str, *, before: str = "", signature: str = SIGNATURE) -> str:
    """A kernel file with one op of this body."""
    return f'{dedent(before)}\n\n@register("op")\ndef op({signature}):\n{indent(dedent(body).strip(), "    ")}\n'


def element(expression: str, *, before: str = "", signature: str = SIGNATURE) -> str:
    return kernel(f"foreach(out, lambda i: {expression})", before=before, signature=signature)


SYNTAX = {
    "unknown_name": element("x[i] + sqr(x[i])"),
    "unknown_member": element("gpu.lane_index.x"),
    "try": kernel("try:\n    out[0] = x[0]\nexcept ValueError:\n    pass"),
    "with": kernel("with x:\n    pass"),
    "async_def": kernel("async def f():\n    pass"),
    "async_helper": element("f(x[i])", before="async def f(v):\n    return v"),
    "await": kernel("a = f(x[0])", before="def f(v):\n    yield v"),
    "list_comprehension": element("max([x[j] for j in range(3)])"),
    "generator": kernel("a = (x[j] for j in range(3))"),
    "generator_of_own_function": element("sum(v for v in (x[i],))", before="def sum(t):\n    return t"),
    "generator_length": element("sum(v for v in (x[i], x[i]) if v > 0)"),
    "generator_range": element("sum(x[j] for j in range(x.dim(0)))"),
    "sorted_values": element("sorted((x[i], i[0]))[0]"),
    "global": kernel("global G\nG = 3", before="G = 1"),
    "nonlocal": kernel("n = 1\ndef f():\n    nonlocal n\n    n = 2\nf()"),
    "star_parameter": element("f(x[i])", before="def f(*v):\n    return v[0]"),
    "star_keyword": element("max(x[i], **{})"),
    "class": kernel("class Point:\n    x = 1"),
    "walrus": element("(y := x[i]) + y"),
    "match": kernel("match 3:\n    case 3:\n        pass"),
    "dict": element("{1: x[i]}[1]"),
    "list": element("[x[i]][0]"),
    "set": kernel("s = {1, 2}"),
    "del": kernel("a = 1\ndel a"),
    "import": kernel("import math"),
    "is": element("x[i] if x is out else 1.0"),
    "in": element("1.0 if 1 in (1, 2) else 0.0"),
    "text_conversion": kernel('print(f"{x[0]!r} {y}")'),
    "nested_format": kernel('print(f"{x[0]:{2}}")'),
    "nested_total": kernel(
        "total = T(0)\ndef body(i):\n    total += x[i]\nparallel_for(x.dim(0), body)\nout[0] = total"
    ),
    "nested_variable": kernel("n = 1\ndef f():\n    k = n\n    n = 2\n    return k\nout[0] = x[f()]"),
    "never_stored": kernel("y = x[0]"),
    "returned": kernel("return x[0] + 1"),
    "matrix_product": element("x[i] @ x[i]"),
    "power_assign": kernel("a = 2\na **= 2"),
    "starred_target": kernel("a, *b = (1, 2, 3)"),
    "attribute_assign": kernel("x.size = 3"),
    "loop_else": kernel("for i in range(3):\n    pass\nelse:\n    pass"),
    "decorated_nested": kernel("@fast\ndef f(a):\n    return a"),
    "raise_form": kernel("raise"),
    "python_function": element("divmod(x[i], 2)"),
    "numpy_function": element("np.fabs(x[i])", before="import numpy as np"),
    "list_global": element("x[i] * SIZES[0]", before="SIZES = [1, 2]"),
    "class_call": element("K(x[i])", before="class K:\n    pass"),
    "kernel_call": element("op(out, x)"),
    "two_lambdas": element("f(x[i])", before="f, g = lambda v: v, lambda v: v * 2"),
    "no_source": element("f(x[i])", before='made = {}\nexec("def f(v): return v", made)\nf = made["f"]'),
    "nested_too_deeply": kernel(f"out[0] = {'-' * 151}x[0]"),
    "recursion": element("f(x[i])", before="def f(v):\n    return f(v)"),
    "mutual_recursion": element("f(x[i])", before="def f(v):\n    return g(v)\n\n\ndef g(v):\n    return f(v)"),
    "nested_recursion": kernel("def f(a):\n    return f(a)\nout[0] = f(x[0])"),
}

TYPES = {
    "mix_float_int": kernel("out[0] = x[0] + x.dim(0)"),
    "mix_float_int32": element("x[i] * Int32(2)"),
    "complex_constant": element("x[i] + 1j"),
    "mix_float_complex": element("(x[i].cast(int32) + complex64(2.0)).real"),
    "complex_order": element("x[i] if complex64(x[i]) < 1 else 0.0"),
    "complex_remainder": element("(complex64(x[i]) % 2).real"),
    "complex_function": element("erf(complex64(x[i])).real"),
    "complex_cast": element("complex64(x[i]).cast(T)"),
    "complex_stored": element("complex64(x[i]) * complex64(x[i])"),
    "mix_in_max": element("max(x[i], Int32(2))"),
    "mix_in_conditional": element("x[i] if x[i] > 0 else Int32(2)"),
    "divide_ints": kernel("half = x.dim(0) / 2"),
    "if_on_float": kernel("if x[0]:\n    out[0] = x[0]"),
    "while_on_int": kernel("n = x.dim(0)\nwhile n:\n    n -= 1"),
    "not_on_float": element("1.0 if not x[i] else 0.0"),
    "condition_tensor": kernel("assert x"),
    "tensor_arithmetic": element("x + 1"),
    "store_tensor": element("x"),
    "no_value": element("None"),
    "two_values": element("(x[i], x[i])"),
    "changed_type": kernel("a = x[0]\na = x.dim(0)\nout[0] = x[0]"),
    "changed_type_in_loop": kernel("a = True\nfor i in range(3):\n    a = 2\nout[0] = x[0]"),
    "changed_function_in_loop": kernel(
        "f = lambda v: v\nfor i in range(3):\n    out[i] = f(x[i])\n    f = lambda v: v * 2"
    ),
    "one_branch_only": kernel("if x[0] > 0:\n    a = x[0]\nout[0] = a"),
    "differing_branches": kernel("if x[0] > 0:\n    a = x[0]\nelse:\n    a = Int32(2)\nout[0] = a"),
    "only_if_loop_runs": kernel("for i in range(x.dim(0)):\n    a = x[i]\nout[0] = a"),
    "used_before": kernel("out[0] = a\na = 1.0"),
    "return_in_one_branch": kernel("def f(v):\n    if v > 0:\n        return v\nout[0] = f(x[0])"),
    "return_in_some_rounds": kernel(
        "def f(v):\n    for i in range(3):\n        if x[i] > v:\n            return i\nout[0] = x[f(0)]"
    ),
    "function_out_of_loop": kernel(
        "def f():\n    for i in range(x.dim(0)):\n        return lambda v: v + i\n    return 1\nout[0] = f()(x[0])"
    ),
    "function_out_of_branch": kernel(
        "def f():\n    for i in unroll(3):\n        if x[i] > 0:\n            return lambda v: v\n    return 1\n"
        "out[0] = f()(1)"
    ),
    "tuple_changes_length": kernel("t = (1, 2)\nfor i in range(3):\n    t = (*t, i)\nout[0] = x[t[0]]"),
    "part_changes_type": kernel("t = (x[0], 0)\nfor i in range(3):\n    t = (i + 1, 0)\nout[0] = t[0]"),
    "endless_while": kernel("while True:\n    out[0] = x[0]"),
    "range_step": kernel("for i in range(0, 3, 0):\n    pass"),
    "range_float": kernel("for i in range(1.5):\n    pass"),
    "loop_over_tensor": kernel("for v in x:\n    pass"),
    "unroll_runtime": kernel("for i in unroll(x.dim(0)):\n    pass"),
    "unroll_endless": kernel("for i in unroll(0, 10, 0):\n    pass"),
    "unroll_too_far": kernel("for i in unroll(10**30):\n    out[i] = x[i]"),
    "division_by_zero": element("x[i] * (1 / 0)"),
    "division_of_size_by_zero": kernel("n = x.dim(0) // 0"),
    "too_large": kernel("a = 1 << (1 << 40)"),
    "no_number": element("x[i] + 1" + 40 * "0"),
    "no_uint8": kernel("a = UInt8(300)"),
    "wrong_rank": element("x[i, 0]"),
    "wrong_rank_store": kernel("out[0, 0] = 1.0"),
    "negative_index": kernel("out[0] = x[-1]"),
    "float_index": element("x[x[i]]"),
    "no_axis": kernel("n = x.dim(3)"),
    "tuple_item": kernel("n = x.shape[5]"),
    "store_to_input": kernel("x[0] = 1.0"),
    "foreach_into_input": kernel("foreach(x, lambda i: 1.0)"),
    "helper_stores_to_input": kernel("clear(x)", before="def clear(t):\n    t[0] = 0.0"),
    "static_assert": kernel(
        "check(x)",
        before='def check(t):\n    two(t)\n\n\ndef two(t):\n    static_assert(t.rank == 2, f"rank is {t.rank}")',
    ),
    "static_assert_runtime": kernel("static_assert(x[0] > 0)"),
    "too_few_arguments": kernel("out[0] = f(x[0])", before="def f(a, b):\n    return a + b"),
    "too_many_arguments": kernel("out[0] = f(x[0], 1, 2)", before="def f(a, b):\n    return a + b"),
    "unknown_keyword": kernel("out[0] = f(x[0], scael=2)", before="def f(a, scale=1):\n    return a * scale"),
    "argument_twice": kernel("out[0] = f(x[0], a=2)", before="def f(a):\n    return a"),
    "builtin_arguments": element("fma(x[i], 1)"),
    "method_arguments": element("x[i].cast(float32, 3)"),
    "method_keyword": element("x.load(i, widht=4)"),
    "annotated_argument": kernel("out[0] = f(x[0])", before="def f(a: Int32):\n    return a"),
    "unknown_attribute": element("x.shap"),
    "attribute_of_number": kernel("a = 0\nout[0] = a.reduce_add()"),
    "folded_forever": kernel("def f(n):\n    while n > 0:\n        n += 1\n    return n\na = f(1)"),
    "folded_deeply": kernel("a = f(100)", before="def f(n):\n    return 0 if n == 0 else f(n - 1)"),
    "library_without_result": kernel("a = log(-1.0)"),
    "library_argument": kernel("out[0] = exp(x)"),
    "library_of_int": kernel("a = exp(x.dim(0))"),
    "inside_ceildiv": kernel("n = ceildiv(3, 0)"),
    "atomic_add_bool": kernel(
        "atomic_add(out, 0, True)", signature='out: OutputTensor[bool8, "n"], x: InputTensor[T, "n"]'
    ),
    "print_format": kernel('print(f"{x[0]:d}")'),
    "unknown_feature": kernel('if ctx.target.supports("tensor_corse"):\n    pass', signature=CONTEXT),
    "calling_a_number": element("x[i](1)"),
    "lambda_in_lambda": kernel(
        "f = lambda v: v + Int32(1)\ng = lambda v: f(v)\nforeach(out, lambda i: g(x[i]))",
    ),
    "helper_in_helper": element(
        "twice(x[i])", before="def twice(v):\n    return once(v) * 2\n\n\ndef once(v):\n    return v + Int32(1)"
    ),
    "gpu_outside_launch": element("x[gpu.thread_idx.x]"),
    "barrier_outside_launch": kernel("gpu.barrier()"),
    "launch_block": kernel(
        "ctx.launch(k, out, grid=1, block=x.dim(0))", before="def k(o):\n    pass", signature=CONTEXT
    ),
    "launch_value": kernel("ctx.launch(k, out, grid=1, block=1)", before="def k(o):\n    return 1", signature=CONTEXT),
}

SIGNATURES = {
    "no_annotation": kernel("pass", signature='out: OutputTensor[T, "n"], x'),
    "no_dims": kernel("pass", signature='out: OutputTensor[T], x: InputTensor[T, "n"]'),
    "no_dtype": kernel("pass", signature='out: OutputTensor["float", "n"], x: InputTensor[T, "n"]'),
    "bad_dims": kernel("pass", signature='out: OutputTensor[T, "n +"], x: InputTensor[T, "n"]'),
    "unknown_dim": kernel("pass", signature='out: OutputTensor[T, "(n + pad)"], x: InputTensor[T, "n"]'),
    "parameter_type": kernel("pass", signature=f"{SIGNATURE}, *, sizes: list = 3"),
    "parameter_default": kernel("pass", signature=f'{SIGNATURE}, *, size: int = "a"'),
    "star_arguments": kernel("pass", signature="*tensors"),
    "no_output": kernel("pass", signature='x: InputTensor[T, "n"]'),
    "op_name": kernel("pass").replace('"op"', '"my op"'),
    "register_without_name": kernel("pass").replace('("op")', ""),
    "kernel_called_at_import": kernel("pass") + "\n\nop(1, 2)\n",
    "stub_called_at_import": "\nforeach(1, 2)\n",
    "invalid_python": "\ndef f(:\n    pass\n",
    "wrong_indent": "\ndef f():\npass\n",
    "import_error": "\nimport module_that_is_not_there\n",
    "import_failure": "\nSIZE = 1 // 0\n",
    "import_exit": "\nraise SystemExit(3)\n",
}

ALL = {**SYNTAX, **TYPES, **SIGNATURES}


@pytest.mark.parametrize("name", ALL)
def test_mistake(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden(name, workplace.load(ALL[name]))


def test_wrong_store(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    """The shape that the language reference shows: both types, where each comes from, and where it is required."""
    text = """
        acc = 0.0
        for j in range(x.dim(0)):
            acc += x[j].cast(float32)
        out[0] = acc * scale
    """
    error = workplace.load(kernel(text, signature=f"{SIGNATURE}, *, scale: float = 1.5"), dtype="bfloat16")
    golden("wrong_store", error)
    assert (error.code, error.op, error.argument, error.expected, error.got) == (
        "EK0213",
        "op",
        "out",
        "bfloat16",
        "float32",
    )


def test_wrong_store_of_a_body(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden("wrong_store_lambda", workplace.load(element("x[i].cast(float64)")))
    golden("wrong_store_function", workplace.load(kernel("def f(i):\n    a = Int32(1)\n    return a\nforeach(out, f)")))


def test_independent_mistakes(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    """All in one go; what uses a failed variable is not a new mistake."""
    names = """
        a = foo
        b = a + 1
        with x:
            pass
        for i in range(3):
            out[i] = bar(b)
    """
    golden("several_names", workplace.load(kernel(names)))
    types = """
        a = x[0] + Int32(3)
        b = a * 2
        out[0] = b
        for i in range(3):
            b = b + x[i]
        out[1] = b
        x[0] = 1.0
        if x[0] > 0:
            c = a
        else:
            c = x[1] + x.dim(0)
        out[2] = c
        out[3] = helper(x[0])
        out[4] = x[0, 0]
    """
    helper = "def helper(v):\n    if v.foo:\n        return v\n    return v + 1"
    golden("several_types", workplace.load(kernel(types, before=helper)))


def test_many_mistakes_end(workplace) -> None:  # type: ignore[no-untyped-def]
    error = workplace.load(kernel("\n".join(f"a{n} = x[0] + Int32({n})" for n in range(130))))
    assert len(error.errors) == 100
    assert str(error).endswith("\n\n100 errors, and there may be more: the search in a kernel was ended early")


def test_growth_ends(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    text = "for i in unroll(4000):\n    for j in unroll(4000):\n        a = i + j"
    golden("unroll_nested", workplace.load(kernel(text)))


def test_unicode_columns(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden("unicode", workplace.load(kernel('名 = "日本"; größe = x[0] + Int32(3)')))
