"""One specialisation serves all sizes, and is what every caller of kernels begins with."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph.interop.specialise import specialise

from . import direct_kernels as k

F32, I64 = DType.float32, DType.int64


def test_equal_questions_have_one_answer() -> None:
    one = specialise(k.add_one, [(F32, 1)])
    assert specialise(k.add_one, [(F32, 1)], {}) is one
    assert specialise(k.add_one, [(F32, 2)]) is not one
    assert specialise(k.scale_and_shift, [(F32, 1)], {"scale": 2}) is specialise(
        k.scale_and_shift, [(F32, 1)], {"scale": 2.0, "shift": 0.0}
    )
    collected = []
    threads = [threading.Thread(target=lambda: collected.append(specialise(k.add, [(F32, 1)] * 2))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, collected))) == 1


def test_dims_are_named_as_the_signature_names_them() -> None:
    two = specialise(k.outer, [(F32, 1), (F32, 1)])
    assert [str(t) for t in two.inputs] == ["Tensor[float32, (m), cpu:0]", "Tensor[float32, (n), cpu:0]"]
    assert [str(t) for t in two.outputs] == ["Tensor[float32, (m, n), cpu:0]"]
    assert two.symbols == {"m": (0, 0), "n": (1, 0)}
    assert [list(map(str, sizes)) for sizes in two.output_sizes] == [["m", "n"]]
    assert specialise(k.add_one, [(I64, 2)]).inputs[0].shape == ["s_0", "s_1"]
    assert specialise(k.add_one, [(I64, 0)]).inputs[0].shape == []
    parts = specialise(k.halves, [(DType.uint8, 1)])
    assert parts.output_shapes([(7,)]) == [(3,), (4,)]
    assert not parts.is_loaded


def test_one_specialisation_runs_for_every_size() -> None:
    add = specialise(k.add, [(F32, 1), (F32, 1)])
    for n in (0, 1, 5, 4096):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(add.model(x, x)[0].to_numpy(), x + x)
    with pytest.raises(EinkornError):
        add.model(np.zeros(3, np.float32), np.zeros(4, np.float32))
    assert add.is_loaded and len(add.plan.slots) == 1


def test_computed_sizes_of_inputs_are_checked() -> None:
    for kernel in (k.pairs, k.swap_pairs):
        made = specialise(kernel, [(F32, 1), (F32, 1)])
        x, twice = np.ones(3, np.float32), np.arange(6, dtype=np.float32)
        assert made.constraints
        made.model(x, twice)
        with pytest.raises(EinkornError):
            made.model(x, np.zeros(5, np.float32))
    assert made.mutable == (1,) and list(twice) == [1, 1, 1, 3, 1, 5]


def test_numbers_take_the_dtype_of_what_they_combine_with() -> None:
    assert specialise(k.axpy, [2, (I64, 1), (I64, 1)]).inputs[0].dtype is I64
    assert specialise(k.axpy, [2, (F32, 1), (F32, 1)]).inputs[0].dtype is F32
    assert specialise(k.add_one, [True and 3]).inputs[0].dtype is I64
    assert specialise(k.add_one, [2.5]).inputs[0].dtype is F32
    assert specialise(k.follow, [(F32, 1), (F32, 1), 1]).inputs[2].dtype is F32


def test_what_only_the_caller_can_determine() -> None:
    made = specialise(k.converted, [(F32, 1)], outputs=[I64])
    assert made.model(np.array([1.5, -2.5], np.float32))[0].to_numpy().tolist() == [1, -2]
    assert specialise(k.tile_twice, [(F32, 1)], {"k": 3}).output_shapes([(2,)]) == [(2, 3)]
    assert len(specialise(k.total_of, [[(F32, 1), (F32, 1), (F32, 1)]]).inputs) == 3
    assert len(specialise(k.spread, [(F32, 1)], {"count": 2}).outputs) == 2


def test_late_sizes_run_in_stages() -> None:
    made = specialise(k.kept, [(F32, 1)])
    assert made.late
    assert made.model(np.array([1, -1, 2], np.float32))[0].to_numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("kernel", "arguments", "code"),
    [
        (k.add, [(F32, 1)], "EK0310"),
        (k.add, [(F32, 1), (F32, 2)], "EK0311"),
        (k.add, [(F32, 1), (I64, 1)], "EK0317"),
        (k.scale_and_shift, [(I64, 1)], "EK0316"),
        (k.converted, [(F32, 1)], "EK0318"),
        (k.tile_twice, [(F32, 1)], "EK0321"),
    ],
)
def test_what_contradicts_the_signature(kernel: object, arguments: list[object], code: str) -> None:
    with pytest.raises(EinkornError) as caught:
        specialise(kernel, arguments)  # type: ignore[arg-type]
    assert caught.value.code == code
