"""Rows of ops on batches of small matrices, and on complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.graph import ops

from .row import Array, Row, floats, torch_module

_SIZE = "64 x 32 x 32"
_PLANE = "256 x 1024"


def _matrices() -> list[Array]:
    """Far from singular."""
    return [floats(64, 32, 32) + 8 * np.eye(32, dtype=np.float32)]


def _symmetric() -> list[Array]:
    """Symmetric, with positive eigenvalues."""
    x = floats(64, 32, 32)
    return [x @ x.transpose(0, 2, 1) + 8 * np.eye(32, dtype=np.float32)]


def _complex() -> list[Array]:
    return [(floats(256, 1024) + 1j * floats(256, 1024)).astype(np.complex64)]


def _sorted_row() -> list[Array]:
    return [np.sort(floats(4096)), floats(256, 1024)]


def _linalg(name: str) -> Any:
    return getattr(torch_module().linalg, name)


LINEAR_ALGEBRA = [
    Row("det", _SIZE, _matrices, ops.det, np.linalg.det, lambda x: _linalg("det")(x), tolerance=1e-4),
    Row("slogdet", _SIZE, _matrices, lambda x: ops.slogdet(x)[1], lambda x: np.linalg.slogdet(x)[1],
        lambda x: _linalg("slogdet")(x)[1], tolerance=1e-4),
    Row("solve", _SIZE, lambda: [*_matrices(), floats(64, 32, 4)], ops.solve, np.linalg.solve,
        lambda a, b: _linalg("solve")(a, b), tolerance=1e-3),
    Row("cholesky", _SIZE, _symmetric, ops.cholesky, np.linalg.cholesky, lambda x: _linalg("cholesky")(x),
        tolerance=1e-4),
    Row("qr", _SIZE, _matrices, lambda x: ops.abs(ops.qr(x)[1]), lambda x: np.abs(np.linalg.qr(x)[1]),
        lambda x: _linalg("qr")(x)[1].abs(), tolerance=1e-4),
    Row("eigh", _SIZE, _symmetric, lambda x: ops.eigh(x)[0], lambda x: np.linalg.eigh(x)[0],
        lambda x: _linalg("eigh")(x)[0], tolerance=1e-4),
    Row("svd", _SIZE, _matrices, lambda x: ops.svd(x)[1], lambda x: np.linalg.svd(x)[1],
        lambda x: _linalg("svd")(x)[1], tolerance=1e-4),
    Row("searchsorted", "4096, 256 x 1024", _sorted_row, ops.searchsorted, np.searchsorted,
        lambda row, x: torch_module().searchsorted(row, x)),
    Row("real", _PLANE, _complex, ops.real, lambda x: np.ascontiguousarray(x.real), lambda x: x.real.contiguous()),
    Row("imag", _PLANE, _complex, ops.imag, lambda x: np.ascontiguousarray(x.imag), lambda x: x.imag.contiguous()),
    Row("conj", _PLANE, _complex, ops.conj, np.conj, lambda x: x.conj().resolve_conj()),
    Row("angle", _PLANE, _complex, ops.angle, np.angle, lambda x: x.angle(), tolerance=1e-5),
    Row("complex_of", _PLANE, lambda: [floats(256, 1024), floats(256, 1024)], ops.complex_of,
        lambda x, y: x + np.complex64(1j) * y, lambda x, y: torch_module().complex(x, y)),
]  # fmt: skip
