"""Models that PyTorch exports with dynamic axes give PyTorch's results, at sizes other than the traced ones."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from einkorn.graph import InferenceSession, from_onnx

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="PyTorch's exporter needs it: make callers")
F = torch.nn.functional
randn = torch.randn


@dataclass
class Exported:
    """A PyTorch module, how to make its inputs from sizes, which axes are dynamic, and the sizes to try."""

    module: Any
    inputs: Callable[..., tuple[Any, ...]]
    dynamic: Sequence[Sequence[int]]
    sizes: Sequence[tuple[int, ...]]


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function of one, two or three tensors as a module: exporters read the names of arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any = None, z: Any = None) -> Any:
        return self.function(*(each for each in (x, y, z) if each is not None))


class Attention(torch.nn.Module):  # type: ignore[misc]
    """A decoder layer, whose mask depends on a size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: Any, y: Any) -> Any:
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        return self.layer(x, y, tgt_mask=mask)


def images(b: int, n: int) -> tuple[Any, ...]:
    return (randn(b, 3, n, n + 1),)


def rows(b: int, n: int) -> tuple[Any, ...]:
    return (randn(b, n),)


def convolutions() -> Any:
    layers = torch.nn
    before = [layers.Conv2d(3, 8, 3, stride=2, padding=1), layers.BatchNorm2d(8), layers.Hardswish()]
    return layers.Sequential(*before, layers.ConvTranspose2d(8, 4, 3, 2, 1, 1), layers.GroupNorm(2, 4))


def changed(x: Any) -> Any:
    y = x.clone()
    y[:, 1:-1] = 0
    y[0] += 1
    return y, x[x > 0].sum(), torch.nonzero(x > 0)


def scattered(x: Any, indices: Any, values: Any) -> Any:
    parts = (
        x.scatter(1, indices, values),
        x.scatter_add(1, indices, values),
        x.scatter_reduce(1, indices, values, "amax"),
    )
    return (*parts, x.gather(1, indices), x[:, indices[0]])


def attended(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v), torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)


IMAGES = [(2, 12), (1, 17), (3, 9)]
TABLES = [(2, 5), (3, 8), (4, 3)]
CASES = {
    "convolutions": Exported(convolutions(), images, [[0, 2, 3]], IMAGES),
    "pools": Exported(
        torch.nn.Sequential(torch.nn.AvgPool2d(3, 2, 1), torch.nn.AdaptiveMaxPool2d(1)), images, [[0, 2, 3]], IMAGES
    ),
    "lstm": Exported(
        torch.nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True), lambda b, n: (randn(b, n, 6),), [[0, 1]], TABLES
    ),
    "encoder": Exported(
        torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), lambda b, n: (randn(b, n, 16),), [[0, 1]], TABLES
    ),
    "decoder": Exported(Attention(), lambda b, n: (randn(b, n, 16), randn(b, n + 2, 16)), [[0, 1], [0, 1]], TABLES),
    "attention": Exported(
        Function(attended),
        lambda b, n: (randn(b, 2, n, 4), randn(b, 2, n + 1, 4), randn(b, 2, n + 1, 4)),
        [[0, 2]] * 3,
        TABLES,
    ),
    "resizing": Exported(
        Function(
            lambda x: (F.interpolate(x, scale_factor=(1.5, 2.5)), F.interpolate(x, scale_factor=0.7, mode="bilinear"))
        ),
        images,
        [[0, 2, 3]],
        IMAGES,
    ),
    "grid": Exported(
        Function(lambda x, y: F.grid_sample(x, y, padding_mode="border", align_corners=False)),
        lambda b, n: (randn(b, 2, n, n + 1), torch.rand(b, 4, n, 2) * 2 - 1),
        [[0, 2, 3], [0, 2]],
        TABLES,
    ),
    "changes": Exported(Function(changed), rows, [[0, 1]], TABLES),
    "scattering": Exported(
        Function(scattered),
        lambda b, n: (randn(b, n), torch.stack([torch.randperm(n) for _ in range(b)]), randn(b, n)),
        [[0, 1]] * 3,
        TABLES,
    ),
    "orders": Exported(
        Function(lambda x: (*x.topk(2, dim=-1), x.sort(0)[0], x.argmax(1), x.cumsum(1), x.flip(1))),
        rows,
        [[0, 1]],
        TABLES,
    ),
    "windows": Exported(
        Function(lambda x: (F.unfold(x, 3, padding=1, stride=2), F.pad(x, (1, 2, 0, 3), mode="reflect"))),
        images,
        [[0, 2, 3]],
        IMAGES,
    ),
}


TRACED_SIZES = ("encoder", "decoder")  # of these the older exporter writes sizes of the traced call as numbers


def written(case: Exported, inputs: tuple[Any, ...], dynamo: bool) -> Any:
    names = ["x", "y", "z"][: len(inputs)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if dynamo:
            shapes = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in case.dynamic)
            program = torch.onnx.export(
                case.module, inputs, dynamo=True, dynamic_shapes=shapes, input_names=names, verbose=False
            )
            return program.model_proto
        file = io.BytesIO()
        axes = {name: {k: f"{name}_{k}" for k in given} for name, given in zip(names, case.dynamic, strict=True)}
        torch.onnx.export(
            case.module, inputs, file, dynamo=False, input_names=names, dynamic_axes=axes, opset_version=18
        )
        return onnx.load_from_string(file.getvalue())


def flat(results: Any) -> list[Any]:
    return [results] if isinstance(results, torch.Tensor) else [part for each in results for part in flat(each)]


@pytest.mark.parametrize(
    ("name", "dynamo"),
    [(name, dynamo) for name in CASES for dynamo in (True, False) if dynamo or name not in TRACED_SIZES],
)
def test_results_are_those_of_pytorch(name: str, dynamo: bool) -> None:
    case = CASES[name]
    case.module.eval()
    torch.manual_seed(7)
    model = InferenceSession().load(from_onnx(written(case, case.inputs(*case.sizes[0]), dynamo)))
    for sizes in case.sizes:
        inputs = case.inputs(*sizes)
        with torch.no_grad():
            expected = flat(case.module(*inputs))
        results = model(*(each.contiguous().numpy() for each in inputs))
        assert len(results) == len(expected)
        for ours, theirs in zip(results, expected, strict=True):
            np.testing.assert_allclose(ours.to_numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5, strict=True)
