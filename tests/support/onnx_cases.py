"""Runs the test cases that the package `onnx` brings along through `from_onnx`.

A case is a model of one node or a few, with inputs and expected outputs. Where an op type needs an input at import (its
error EK0529 says which), that input is given as a constant; the outcome says so.

See also `test_onnx_nodes` (what is expected of them).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import InferenceSession, from_onnx

KNOWN = Path(__file__).with_name("onnx_cases.json")  # the cases that do not pass, and why
RANDOM = ("bernoulli", "training_dropout")  # compared by dtype and shape: the numbers are of another generator
# Something has to be known at import, or sizes of which unknown before a call that they are equal.
NEED_CONSTANTS = ("EK0529", "EK0420", "EK0445")
SMALL = 16  # elements of an input that serves as a shape
KINDS = ("simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        name: of the case.
        state: "pass", "fail" or "unsupported".
        reason: why it did not pass.
        constants: the inputs that had to be known at import.
    """

    name: str
    state: str
    reason: str = ""
    constants: tuple[str, ...] = ()


@cache
def cases() -> dict[str, Any]:
    """All cases by name: those of single nodes, which `onnx` makes in memory, and those that lie in its folder."""
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = {case.name: case for case in collect_testcases(None)}
        for kind in KINDS:
            collected.update((case.name, case) for case in load_model_tests(kind=kind))
    return collected


def op_types(case: Any) -> list[str]:
    """The op types of a case, subgraphs aside."""
    return [node.op_type for node in model_of(case).graph.node]


def model_of(case: Any) -> Any:
    """The model of a case, from memory or from its folder."""
    import onnx

    return case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")


def data_of(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs of a case."""
    import glob

    import onnx
    from onnx import numpy_helper

    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [_plain(each) for each in inputs], [_plain(each) for each in outputs]
        return
    for folder in sorted(glob.glob(f"{case.model_dir}/test_data_set_*")):
        parts: list[list[Any]] = []
        for kind in ("input", "output"):
            arrays = []
            for k in range(len(glob.glob(f"{folder}/{kind}_*.pb"))):
                tensor = onnx.TensorProto()
                with open(f"{folder}/{kind}_{k}.pb", "rb") as file:
                    tensor.ParseFromString(file.read())
                arrays.append(numpy_helper.to_array(tensor))
            parts.append(arrays)
        yield parts[0], parts[1]


def _flat(outputs: list[Any]) -> list[Any]:
    """Expected outputs, the items of lists one by one, as graphs return them."""
    return [item for each in outputs for item in (each if isinstance(each, list) else [each])]


def _plain(value: Any) -> Any:
    """Arrays for tensors of dtypes that NumPy lacks."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def run_case(case: Any, session: InferenceSession) -> Outcome:
    """Imports a case, runs it on all of its data, and compares."""
    used: tuple[str, ...] = ()
    try:
        for inputs, outputs in data_of(case):
            got, used = _run(model_of(case), inputs, session)
            random = any(word in case.name for word in RANDOM)
            for k, (one, expected) in enumerate(zip(got, _flat(outputs), strict=True)):
                wrong = difference(one, one.astype(expected.dtype) if random else expected, case.rtol, case.atol)
                wrong = wrong or ("" if one.shape == expected.shape else f"shape {one.shape}, not {expected.shape}")
                if wrong:
                    return Outcome(case.name, "fail", f"output {k}: {wrong}", used)
    except EinkornError as error:
        state = "unsupported" if error.code in ("EK0527", "EK0530") else "fail"
        return Outcome(case.name, state, f"{error.code}: {_short(error.message)}", used)
    except Exception as error:
        return Outcome(case.name, "fail", f"{type(error).__name__}: {_short(str(error))}", used)
    return Outcome(case.name, "pass", "", used)


def _run(model: Any, inputs: list[Any], session: InferenceSession) -> tuple[list[Any], tuple[str, ...]]:
    names = [each.name for each in model.graph.input]
    values = dict(zip(names, inputs, strict=False))
    constants: dict[str, Any] = {}
    while True:
        try:
            graph = from_onnx(model, constants=constants)
            break
        except EinkornError as error:
            if error.code not in NEED_CONSTANTS or len(constants) == len(values):
                raise
            if error.code == "EK0529" and error.argument in values and error.argument not in constants:
                constants[error.argument] = values[error.argument]
            else:  # what is computed from inputs has to be known: all small ones
                small = {name: value for name, value in values.items() if np.size(value) <= SMALL}
                whole = {name: value for name, value in small.items() if np.asarray(value).dtype.kind in "iub"}
                if small.keys() <= constants.keys():
                    raise
                constants |= small if whole.keys() <= constants.keys() else whole
    free = [np.asarray(value) for name, value in values.items() if name not in constants]
    return [buffer.to_numpy() for buffer in session.load(graph).execute(*free)], tuple(sorted(constants))


def difference(got: np.ndarray[Any, Any], expected: Any, rtol: float, atol: float) -> str:
    """What differs; nothing when all agrees."""
    if not isinstance(expected, np.ndarray | np.generic):
        return f"a {type(expected).__name__} is expected"
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    if got.dtype.kind not in "biuf":
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    with np.errstate(all="ignore"):
        near = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    if near.all():
        return ""
    at = tuple(int(k) for k in np.argwhere(~near)[0])
    return f"{int((~near).sum())} of {near.size} elements, at {at} {got[at]} instead of {expected[at]}"


def _short(message: str) -> str:
    return re.sub(r"\s+", " ", message)[:160]
