"""Writes the header of exported graphs, for C11 and for C++.

The types that all exports share stand behind a guard of their own, so that headers of several files can be included
together. C++20 has functions with spans in namespace `einkorn`, which compare the size of each span with that of its
tensor, and of the workspace.

See also `doors.c` (the functions), `dsl.contract.exports` (the records, whose layout a test compares).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...dsl.contract.exports import ALIGNMENT, EXPORT_ABI, ExportSpec, ExportTensor
from ...dsl.types.dtype import DType
from .c import shown_late
from .c_sizes import PLAN_BYTES, PlanLayout, plan_words

C_TYPES: Final = {
    DType.bool: "bool",
    **{dtype: f"{dtype.name}_t" for dtype in (DType.int8, DType.int16, DType.int32, DType.int64)},
    **{dtype: f"{dtype.name}_t" for dtype in (DType.uint8, DType.uint16, DType.uint32, DType.uint64)},
    DType.float32: "float",
    DType.float64: "double",
}

_SHARED: Final = """\
#ifndef EINKORN_EXPORT_TYPES
#define EINKORN_EXPORT_TYPES @ABI@
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Statuses. Above 0: a kernel stopped itself, for example by a failed assertion. */
enum {
  EINKORN_OK = 0,
  EINKORN_INTERRUPTED = -1,
  EINKORN_NO_MEMORY = -2,
  EINKORN_WRONG_ARGUMENT = -3,  /* a null pointer, a wrong alignment, memory that overlaps */
  EINKORN_WRONG_SIZE = -4,      /* a size below 0, too large, or contradictory */
  EINKORN_WRONG_WORKSPACE = -5, /* null, or no multiple of 64 */
  EINKORN_WRONG_MACHINE = -6,   /* the processor is below the lowest level of the code */
  EINKORN_SMALL_STACK = -7,     /* the thread has too small a stack */
  EINKORN_WRONG_WEIGHTS = -8    /* weights are missing or damaged */
};

/* Why a call has failed. The caller's memory; NAME_describe writes its text. */
typedef struct einkorn_failure {
  int32_t status;
  int32_t argument; /* the tensor that is wrong, inputs first, then outputs; or -1 */
  int32_t axis;     /* the axis of it; or -1 */
  int32_t row;      /* of the model's messages; or -1 */
  int64_t expected, got;
  int64_t values[28];
} einkorn_failure;

/* Elements that C has no type for: their bits. Two elements of a 4-bit type share a byte, the first in its low half. */
typedef uint16_t einkorn_float16;
typedef uint16_t einkorn_bfloat16;
typedef uint8_t einkorn_float8; /* of all formats; floats of 6 bits lie in the low bits */
typedef uint8_t einkorn_packed; /* two elements of 4 bits */
typedef struct einkorn_complex64 { float real, imag; } einkorn_complex64;
typedef struct einkorn_complex128 { double real, imag; } einkorn_complex128;

enum { EINKORN_CHANGED = 1, EINKORN_LATE = 2 }; /* flags of a tensor */

typedef struct einkorn_tensor {
  const char *name, *dtype;
  int32_t rank, flags;
  const char *const *dims; /* of each axis: a number, or an expression over the model's dims */
} einkorn_tensor;

/* What a program can read of a model. Later versions append fields; `size` says how many bytes there are. */
typedef struct einkorn_model {
  int64_t size, abi;
  const char *name, *target;
  int64_t inputs, outputs;
  int64_t dims, late_dims; /* sizes that a call is given, and further ones that it computes */
  const einkorn_tensor *tensors; /* the inputs, then the outputs */
  const char *const *dim_names;
  int64_t plan_bytes, stack_bytes, weights_bytes;
  /* The functions of the model, by arrays: sizes, and the addresses of all inputs and outputs. Those of a model that
     computes sizes are null, but for `call`, which writes these sizes behind the ones that it is given. */
  int64_t (*workspace)(const int64_t *sizes);
  int32_t (*prepare)(const int64_t *sizes, void *plan, einkorn_failure *why);
  int32_t (*run)(const void *plan, void *const *tensors, void *workspace, einkorn_failure *why);
  int32_t (*call_in)(const int64_t *sizes, void *const *tensors, void *workspace, einkorn_failure *why);
  int32_t (*call)(int64_t *sizes, void *const *tensors, einkorn_failure *why);
  size_t (*describe)(const einkorn_failure *why, char *text, size_t room);
  const char *digest;
} einkorn_model;

#ifdef __cplusplus
}
#if __cplusplus >= 202002L
#include <span>
namespace einkorn {
/* Whether spans have the bytes of their tensors, inputs first; else a status. */
template <size_t count>
int32_t sizes_fit(const size_t (&bytes)[count], const int64_t *expected, einkorn_failure *why) {
  for (size_t k = 0; k < count; k++)
    if (bytes[k] != static_cast<size_t>(expected[k])) {
      if (why) {
        *why = {EINKORN_WRONG_SIZE, static_cast<int32_t>(k), -1, -1, expected[k], static_cast<int64_t>(bytes[k]), {}};
      }
      return EINKORN_WRONG_SIZE;
    }
  return EINKORN_OK;
}
} // namespace einkorn
#endif
#endif
#endif
"""


def header_text(specs: Sequence[ExportSpec], file: str) -> str:
    """The header of some graphs; of none: the types that all exports share. `file` is its name."""
    types = _SHARED.replace("@ABI@", str(EXPORT_ABI))
    if not specs:
        return types
    guard = re.sub(r"\W", "_", file.upper(), flags=re.ASCII)
    parts = [
        f"/* {', '.join(spec.name for spec in specs)}: exported by Einkorn. Workspaces begin at multiples of"
        f" {ALIGNMENT} bytes. */",
        f"#ifndef EINKORN_{guard}\n#define EINKORN_{guard}\n",
        types,
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        *(_functions(spec) for spec in specs),
        "#ifdef __cplusplus\n}\n#if __cplusplus >= 202002L\nnamespace einkorn {\n",
        *(_span_functions(spec) for spec in specs if spec.stages == 1 and spec.tensors),
        "} // namespace einkorn\n#endif\n#endif\n",
        "#endif\n",
    ]
    return "\n".join(parts)


def c_type(dtype: DType) -> str:
    """The type in C of the elements of a tensor."""
    if dtype in C_TYPES:
        return C_TYPES[dtype]
    if dtype.is_packed():
        return "einkorn_packed"
    if dtype in (DType.float16, DType.bfloat16, DType.complex64, DType.complex128):
        return f"einkorn_{dtype.name}"
    return "einkorn_float8"


def _functions(spec: ExportSpec) -> str:
    name = spec.name
    sizes = [f"int64_t {each}" for each in spec.dims]
    inputs = [f"{'' if each.changed else 'const '}{c_type(each.dtype)} *{each.name}" for each in spec.inputs]
    outputs = [f"{c_type(each.dtype)} {'**' if each.stage else '*'}{each.name}" for each in spec.outputs]
    late = [f"int64_t *{spec.late_names[k]}" for k in shown_late(spec)]
    why = "einkorn_failure *why"
    tensors = "\n".join(f" *   {_described(each, k >= len(spec.inputs))}" for k, each in enumerate(spec.tensors))
    text = f"/* Graph {_comment(spec.title)}:\n{tensors}\n */\n"
    text += _function("int32_t", name, [*inputs, *sizes, *outputs, *late, why])
    if spec.stages == 1:
        text += (
            f"\n/* The bytes of a workspace; below 0: a status. */\n{_function('int64_t', f'{name}_workspace', sizes)}"
        )
        text += "\n/* Allocates nothing. */\n"
        text += _function("int32_t", f"{name}_in", [*inputs, *sizes, *outputs, "void *workspace", why])
        text += "\n/* Calls with sizes that are known before: prepare once, run often, from any number of threads. */\n"
        text += f"typedef struct {name}_plan {{ int64_t words[{plan_words(spec)}]; }} {name}_plan;\n"
        text += _function("int32_t", f"{name}_prepare", [*sizes, f"{name}_plan *plan", why])
        run = [f"const {name}_plan *plan", *inputs, *outputs, "void *workspace", why]
        text += _function("int32_t", f"{name}_run", run)
    if spec.file is not None:
        text += "\n/* Maps the file of weights; else the first call maps that next to the shared object. */\n"
        text += _function("int32_t", f"{name}_open_weights", ["const char *path", why])
    elif spec.given:
        names = ", ".join(_comment(each.name) for each in spec.given)
        text += f"\n/* Says where a weight is; calls need all of them, as long as they last:\n   {names} */\n"
        text += _function("int32_t", f"{name}_set_weight", ["const char *weight", "const void *memory", why])
    if any(each.stage for each in spec.outputs):
        text += "\n/* Gives back the memory of an output that the call has allocated; null is allowed. */\n"
        text += _function("void", f"{name}_free", ["void *memory"])
    text += _thread_functions(name) if spec.threads else ""
    if spec.prints:
        text += (
            "\n/* Calls `print` with each text that kernels print, from any thread; null: writes to standard output."
        )
        text += "\n   Call it while no call of the model runs. */\n"
        hook = "void (*print)(const char *text, size_t bytes, void *data)"
        text += _function("void", f"{name}_set_print", [hook, "void *data"])
    text += "\n/* Writes the text of a failure, as snprintf does; its length. */\n"
    text += _function("size_t", f"{name}_describe", ["const einkorn_failure *why", "char *text", "size_t room"])
    return f"{text}\nextern const einkorn_model {name}_model;\n"


def _span_functions(spec: ExportSpec) -> str:
    """The functions of C++20. A prepared plan holds the sizes in bytes of each tensor and of the workspace."""
    name, layout = spec.name, PlanLayout(spec)
    inputs, outputs = (
        [f"std::span<{'' if k >= len(spec.inputs) or each.changed else 'const '}{c_type(each.dtype)}> {each.name}"
         for k, each in enumerate(spec.tensors) if (k >= len(spec.inputs)) == late]
        for late in (False, True)
    )  # fmt: skip
    sizes = [f"int64_t {each}" for each in spec.dims]
    given_inputs, given_outputs = (
        [f"{each.name}.data()" for each in tensors] for tensors in (spec.inputs, spec.outputs)
    )
    why, room = "einkorn_failure *why = nullptr", "std::span<std::byte> workspace"
    known = f"const size_t einkorn_bytes[] = {{{', '.join(f'{each.name}.size_bytes()' for each in spec.tensors)}}}"
    fits = f"sizes_fit(einkorn_bytes, {{}}plan{{}}words + {layout.bytes // 8}, why)"
    prepare = f"::{name}_prepare({', '.join([*spec.dims, '&plan', 'why'])})"
    call = f"::{name}({', '.join([*given_inputs, *spec.dims, *given_outputs, 'why'])})"
    run = f"::{name}_run({', '.join(['&plan', *given_inputs, *given_outputs, 'workspace.data()', 'why'])})"
    return f"""\
/* As ::{name}; spans of wrong sizes are refused. */
inline int32_t {name}({", ".join([*inputs, *sizes, *outputs, why])}) {{
  ::{name}_plan plan;
  {known};
  int32_t einkorn_status = {prepare};
  if (einkorn_status == EINKORN_OK) einkorn_status = {fits.format("", ".")};
  return einkorn_status == EINKORN_OK ? {call} : einkorn_status;
}}

/* As ::{name}_run; spans of wrong sizes, and a workspace that is too small, are refused. */
inline int32_t {name}_run({", ".join([f"const ::{name}_plan &plan", *inputs, *outputs, room, why])}) {{
  {known};
  int32_t einkorn_status = {fits.format("", ".")};
  if (einkorn_status == EINKORN_OK && workspace.size() < static_cast<size_t>(plan.words[{PLAN_BYTES // 8}])) {{
    if (why) {{
      const int64_t einkorn_got = static_cast<int64_t>(workspace.size());
      *why = {{EINKORN_WRONG_WORKSPACE, -1, -1, -1, plan.words[{PLAN_BYTES // 8}], einkorn_got, {{}}}};
    }}
    return EINKORN_WRONG_WORKSPACE;
  }}
  return einkorn_status == EINKORN_OK ? {run} : einkorn_status;
}}
"""


def _thread_functions(name: str) -> str:
    tasks = "void (*task)(void *argument, int64_t chunk), void *argument"
    host = [f"void (*parallel)(void *pool, int64_t chunks, {tasks})", "void *pool", "int64_t threads"]
    return "\n".join(
        (
            "\n/* How many threads take part in the calls of all models of this file, the caller included: 0 for one",
            "   a processor, 1 for the caller alone. Workers start with the first call that uses them. */",
            _function("void", f"{name}_set_threads", ["int64_t threads"]),
            "/* Lets the host run parallel work: `parallel` calls task(argument, chunk) for each chunk below `chunks`",
            "   once, in any threads, and returns when all are done. Null: the threads of this file again. */",
            _function("void", f"{name}_set_parallel", host),
            "/* Ends the workers; a later call starts them anew. The child of a fork has none before it calls this. */",
            _function("void", f"{name}_close", []),
        )
    ).removesuffix("\n")


def _function(result: str, name: str, parameters: Sequence[str]) -> str:
    return f"{result} {name}({', '.join(parameters) or 'void'});\n"


def _described(tensor: ExportTensor, is_output: bool) -> str:
    shape = ", ".join(str(axis) for axis in tensor.axes)
    end = ", changed" if tensor.changed else ", allocated by the call" if tensor.stage else ""
    return f"{'output' if is_output else 'input'} {tensor.name}: {tensor.dtype.name}[{_comment(shape)}]{end}"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ")
