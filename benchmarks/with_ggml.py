"""Products of ggml, by the libraries that llama-cpp-python brings, for `models_products`.

A matrix is packed when it is loaded where ggml has a packed form for its encoding and this machine, as llama.cpp does.
The left operand is rounded at each call. One thread.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

TYPES: Final = {"f32": 0, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q4_k": 12, "q5_k": 13, "q6_k": 14}
ROOM: Final = 1 << 20  # bytes for the records of tensors and graphs
Handle = ctypes.c_void_p
Array = np.ndarray[Any, Any]


class _Settings(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("memory", Handle), ("without_data", ctypes.c_bool)]


def _library() -> ctypes.CDLL:
    """The libraries as one, with the types of what is called."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise ImportError("needs llama-cpp-python")
    folder = Path(spec.origin).parent / "lib"
    for name in ("ggml-base", "ggml-cpu", "ggml"):
        library = ctypes.CDLL(str(folder / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
    known = ctypes.CDLL(None)
    for name, results, *arguments in (
        ("ggml_init", Handle, _Settings),
        ("ggml_new_tensor_2d", Handle, Handle, ctypes.c_int, ctypes.c_int64, ctypes.c_int64),
        ("ggml_mul_mat", Handle, Handle, Handle, Handle),
        ("ggml_new_graph", Handle, Handle),
        ("ggml_build_forward_expand", None, Handle, Handle),
        ("ggml_nbytes", ctypes.c_size_t, Handle),
        ("ggml_backend_cpu_init", Handle),
        ("ggml_backend_cpu_set_n_threads", None, Handle, ctypes.c_int),
        ("ggml_backend_get_device", Handle, Handle),
        ("ggml_backend_get_default_buffer_type", Handle, Handle),
        ("ggml_backend_dev_backend_reg", Handle, Handle),
        ("ggml_backend_reg_get_proc_address", Handle, Handle, ctypes.c_char_p),
        ("ggml_backend_dev_supports_op", ctypes.c_bool, Handle, Handle),
        ("ggml_backend_alloc_ctx_tensors_from_buft", Handle, Handle, Handle),
        ("ggml_backend_tensor_set", None, Handle, Handle, ctypes.c_size_t, ctypes.c_size_t),
        ("ggml_backend_tensor_get", None, Handle, Handle, ctypes.c_size_t, ctypes.c_size_t),
        ("ggml_backend_graph_compute", ctypes.c_int, Handle, Handle),
    ):
        function = getattr(known, name)
        function.restype, function.argtypes = results, arguments
    assert library
    return known


def product(weight: Array, encoding: str, x: Array) -> tuple[Callable[[], None], Callable[[], Array]]:
    """A call that multiplies the rows of x (m, k) by those of a matrix (n, bytes), and one that gives (m, n)."""
    ggml = _library()
    backend = ggml.ggml_backend_cpu_init()
    ggml.ggml_backend_cpu_set_n_threads(backend, 1)
    device, (m, k), n = ggml.ggml_backend_get_device(backend), x.shape, len(weight)
    plain = ggml.ggml_backend_get_default_buffer_type(backend)
    for kind in [*_packing(ggml, device), plain]:
        held, made = (ggml.ggml_init(_Settings(ROOM, None, True)) for _ in range(2))
        matrix = ggml.ggml_new_tensor_2d(held, TYPES[encoding], k, n)
        rows = ggml.ggml_new_tensor_2d(made, TYPES["f32"], k, m)
        result = ggml.ggml_mul_mat(made, matrix, rows)
        ggml.ggml_backend_alloc_ctx_tensors_from_buft(held, kind)
        if kind == plain or ggml.ggml_backend_dev_supports_op(device, result):
            break
    graph = ggml.ggml_new_graph(made)
    ggml.ggml_build_forward_expand(graph, result)
    ggml.ggml_backend_alloc_ctx_tensors_from_buft(made, plain)
    for tensor, array in ((matrix, weight), (rows, x)):
        assert ggml.ggml_nbytes(tensor) == array.nbytes
        ggml.ggml_backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)

    def call() -> None:
        if ggml.ggml_backend_graph_compute(backend, graph):
            raise RuntimeError("ggml: the product failed")

    def values() -> Array:
        out = np.empty((m, n), np.float32)
        ggml.ggml_backend_tensor_get(result, out.ctypes.data, 0, out.nbytes)
        return out

    return call, values


def _packing(ggml: ctypes.CDLL, device: int) -> list[int]:
    """The kinds of memory in which matrices are packed."""
    register = ggml.ggml_backend_dev_backend_reg(device)
    address = ggml.ggml_backend_reg_get_proc_address(register, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return []
    listed = ctypes.CFUNCTYPE(ctypes.POINTER(Handle), Handle)(address)(device)
    kinds: list[int] = []
    while kind := listed[len(kinds)]:
        kinds.append(kind)
    return kinds
