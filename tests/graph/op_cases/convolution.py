"""Cases of the convolutions, and of blocks of images."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
from support import images
from support.graphs import Array
from support.op_cases import T, case, plain_numbers

from einkorn.graph import ConvInputLayout, FilterLayout, ops

NCHW = ConvInputLayout.NCHW
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8)
FLOATS = (np.float32, np.float16)


def t(*dims: int | str) -> T:
    return T(*dims, make=plain_numbers)


def numbers(axes: int, options: dict[str, Any]) -> dict[str, Any]:
    """Options with a number for each axis."""
    filled = {"stride": 1, "dilation": 1, "before": 0, "after": 0} | options
    return {k: [v] * axes if isinstance(v, int) and k != "groups" else v for k, v in filled.items()}


def conv(axes: int, order: str, first: bool, **options: Any) -> Any:
    """The convolution with a bias in NumPy; `order` are the axes of the filter."""

    def reference(x: Array, w: Array, bias: Array) -> Array:
        ordered = w.transpose([order.index(letter) for letter in "FC" + "QRS"[3 - axes :]])
        given = x if first else np.moveaxis(x, -1, 1)
        more = numbers(axes, options)
        result = (images.conv_transpose if "more" in more else images.conv)(given, ordered, **more)
        result = result + images.wide(bias).reshape(-1, *[1] * axes)
        return (result if first else np.moveaxis(result, 1, -1)).astype(x.dtype)

    return reference


def blocks(x: Array, **options: Any) -> Array:
    """The blocks of images."""
    kernel = options.pop("kernel")
    around = images.padded(x, options["before"], options["after"])
    result = images.counts(around.shape[2:], kernel, options["stride"], options["dilation"])
    parts = [part for _, part in images.seen(around, kernel, options["stride"], options["dilation"], result)]
    return np.stack(parts, 2).reshape(x.shape[0], x.shape[1] * len(parts), int(np.prod(result)))


def folded(x: Array, size: tuple[int, ...], **options: Any) -> Array:
    """The image of blocks."""
    kernel = options.pop("kernel")
    taps = list(itertools.product(*map(range, kernel)))
    room = [n + b + a for n, b, a in zip(size, options["before"], options["after"], strict=True)]
    result = images.counts(room, kernel, options["stride"], options["dilation"])
    parts = images.wide(x).reshape(x.shape[0], x.shape[1] // len(taps), len(taps), *result)
    out = np.zeros((x.shape[0], x.shape[1] // len(taps), *room), parts.dtype)
    for k, (_, part) in enumerate(images.seen(out, kernel, options["stride"], options["dilation"], result)):
        part += parts[:, :, k]
    cut = tuple(slice(b, b + n) for b, n in zip(options["before"], size, strict=True))
    return out[(slice(None), slice(None), *cut)].astype(x.dtype)


TRANSPOSED = {"stride": 2, "before": 1, "after": 0, "more": 1}
BLOCKS = {"kernel": (2, 3), "stride": (2, 1), "dilation": (1, 2), "before": (1, 2), "after": (1, 2)}

CASES = [
    case("conv1d", conv(1, "SCF", False), x=t("n", "w", 3), filter=t(4, 3, 5), bias=t(5), dtypes=FLOATS[:1],
         views=False, sizes=[{"n": 2, "w": 9}, {"n": 0, "w": 4}, {"n": 1, "w": 3}]),
    case("conv1d", conv(1, "FCS", True, stride=2, dilation=3, before=4, after=1, groups=2), dtypes=FLOATS[:1],
         x=t(2, 4, "w"), filter=t(6, 2, 3), bias=t(6), views=False, sizes=[{"w": 40}, {"w": 2}],
         call=lambda x, filter, bias: ops.conv1d(x, filter, 2, 3, (4, 1), 2, bias, NCHW, FilterLayout.FCRS)),
    case("conv2d", conv(2, "RSCF", False, before=1, after=1), x=t("n", "h", "w", 3), filter=t(3, 2, 3, "f"),
         bias=t("f"), dtypes=DTYPES, sizes=[{"n": 2, "h": 5, "w": 4, "f": 4}, {"n": 1, "h": 1, "w": 17, "f": 33},
                                            {"n": 1, "h": 0, "w": 3, "f": 0}]),
    case("conv2d", conv(2, "FCRS", True, stride=2, before=(1, 0), after=(2, 1)), dtypes=(np.float32, np.int64),
         x=t("n", 3, "h", "w"), filter=t("f", 3, 3, 2), bias=t("f"),
         sizes=[{"n": 2, "h": 8, "w": 9, "f": 4}, {"n": 1, "h": 9, "w": 37, "f": 15}, {"n": 0, "h": 3, "w": 2, "f": 1}],
         call=lambda x, filter, bias: ops.conv2d(
             x, filter, stride=2, padding=(1, 2, 0, 1), bias=bias, input_layout=NCHW, filter_layout=FilterLayout.FCRS)),
    case("conv2d", conv(2, "CFRS", False, dilation=(1, 2), groups=2), dtypes=FLOATS[:1],
         x=t("n", 6, 7, 4), filter=t(2, 6, 3, 2), bias=t(6), views=False, sizes=[{"n": 2}],
         call=lambda x, filter, bias: ops.conv2d(
             x, filter, dilation=(1, 2), groups=2, bias=bias, filter_layout=FilterLayout.CFRS)),
    case("conv2d", conv(2, "RSCF", False, stride=(1, 2), before=1, after=2, groups=20), dtypes=DTYPES[:3],
         x=t("n", "h", "w", 20), filter=t(3, 3, 1, 20), bias=t(20), sizes=[{"n": 2, "h": 6, "w": 7}, {"n": 1, "h": 1,
         "w": 1}],
         call=lambda x, filter, bias: ops.conv2d(x, filter, (1, 2), 1, (1, 2, 1, 2), 20, bias)),
    case("conv2d", conv(2, "FCRS", True, dilation=(2, 1), before=2, after=2, groups=3), dtypes=DTYPES[:3],
         x=t("n", 3, "h", "w"), filter=t(3, 1, 3, 4), bias=t(3), views=False, sizes=[{"n": 2, "h": 6, "w": 37},
         {"n": 1, "h": 1,
         "w": 0}],
         call=lambda x, filter, bias: ops.conv2d(x, filter, 1, (2, 1), 2, 3, bias, NCHW, "FCRS")),
    case("conv2d", conv(2, "RSCF", False, stride=(1, 2), before=(1, 0), after=(0, 2), groups=9), dtypes=DTYPES[:3],
         x=t("n", "h", 6, 36), filter=t(2, 3, 4, 36), bias=t(36), sizes=[{"n": 2, "h": 4}, {"n": 1, "h": 1}],
         call=lambda x, filter, bias: ops.conv2d(x, filter, (1, 2), 1, (1, 0, 0, 2), 9, bias)),
    case("conv2d", conv(2, "RSCF", False, groups=3), dtypes=DTYPES[:3:2], x=t("n", 3, 4, 48), filter=t(2, 2, 16, 48),
         bias=t(48), views=False, sizes=[{"n": 2}, {"n": 0}],
         call=lambda x, filter, bias: ops.conv2d(x, filter, groups=3, bias=bias)),
    case("conv2d", conv(2, "FCRS", True, stride=(1, 2), dilation=(2, 1), before=2, after=1, groups=3),
         dtypes=DTYPES[:5:2], x=t("n", 6, 4, "w"), filter=t(6, 2, 3, 4), bias=t(6), sizes=[{"n": 2, "w": 41},
         {"n": 1, "w": 1}],
         call=lambda x, filter, bias: ops.conv2d(x, filter, (1, 2), (2, 1), (2, 1, 2, 1), 3, bias, NCHW, "FCRS")),
    case("conv3d", conv(3, "QRSCF", False), x=t("n", 3, "h", 5, 2), filter=t(2, 1, 3, 2, 5), bias=t(5),
         dtypes=FLOATS[:1], views=False, sizes=[{"n": 2, "h": 4}, {"n": 1, "h": 0}]),
    case("conv3d", conv(3, "FCQRS", True, stride=(2, 1, 2), before=(1, 0, 1), after=(1, 0, 1)), dtypes=FLOATS[:1],
         x=t(1, 2, "d", 4, 5), filter=t(3, 2, 2, 2, 3), bias=t(3), views=False, sizes=[{"d": 4}],
         call=lambda x, filter, bias: ops.conv3d(
             x, filter, (2, 1, 2), padding=(1, 1, 0, 0, 1, 1), bias=bias, input_layout=NCHW, filter_layout="FCQRS")),
    case("conv1d_transpose", conv(1, "SCF", False, stride=2, more=0), x=t("n", "w", 3), filter=t(4, 5, 3), bias=t(5),
         dtypes=FLOATS[:1], views=False, sizes=[{"n": 2, "w": 5}, {"n": 0, "w": 2}]),
    case("conv2d_transpose", conv(2, "RSCF", False, stride=2, more=0), x=t("n", "h", "w", 3),
         filter=t(3, 2, 4, 3), bias=t(4), dtypes=DTYPES[:5], sizes=[{"n": 2, "h": 3, "w": 4}, {"n": 0, "h": 1,
         "w": 2}]),
    case("conv2d_transpose", conv(2, "FCRS", True, **TRANSPOSED, groups=2), x=t("n", 4, "h", 3),
         filter=t(4, 3, 3, 4), bias=t(6), dtypes=FLOATS, views=False, sizes=[{"n": 2, "h": 3}, {"n": 1, "h": 1}],
         call=lambda x, filter, bias: ops.conv2d_transpose(
             x, filter, 2, 1, (1, 0, 1, 0), 1, bias, NCHW, FilterLayout.FCRS, groups=2)),
    case("conv2d_transpose", conv(2, "RSCF", False, **TRANSPOSED, groups=2), x=t("n", 2, 3, 4),
         filter=t(2, 3, 18, 4), bias=t(36), dtypes=FLOATS[:1], views=False, sizes=[{"n": 2}],
         call=lambda x, filter, bias: ops.conv2d_transpose(x, filter, 2, 1, (1, 0, 1, 0), 1, bias, groups=2)),
    case("conv3d_transpose", conv(3, "QRSCF", False, stride=2, more=0), x=t(1, 2, "h", 3, 2),
         filter=t(2, 1, 3, 3, 2), bias=t(3), dtypes=FLOATS[:1], views=False, sizes=[{"h": 2}]),
    case("fold", lambda x: folded(x, (4, 5), **BLOCKS | {"kernel": (2, 2), "stride": (1, 1), "dilation": (1, 1),
                                                         "before": (0, 0), "after": (0, 0)}),
         input=t("n", "c", 12), sizes=[{"n": 2, "c": 8}, {"n": 0, "c": 4}], dtypes=DTYPES[:5]),
    case("fold", lambda x: folded(x, (5, 6), **BLOCKS), input=t("n", 12, 18), views=False, sizes=[{"n": 2},
         {"n": 0}], dtypes=FLOATS,
         call=lambda input: ops.fold(input, (5, 6), (2, 3), (2, 1), (1, 2), (1, 2))),
    case("unfold", lambda x: blocks(x, **BLOCKS | {"kernel": (2, 2), "stride": (1, 1), "dilation": (1, 1),
                                                   "before": (0, 0), "after": (0, 0)}),
         input=T("n", "c", "h", 4), sizes=[{"n": 2, "c": 3, "h": 5}, {"n": 0, "c": 2, "h": 3}]),
    case("unfold", lambda x: blocks(x, **BLOCKS), input=T("n", 2, 5, "w"), views=False, sizes=[{"n": 2, "w": 6},
         {"n": 1, "w": 1}],
         call=lambda input: ops.unfold(input, (2, 3), (2, 1), (1, 2), (1, 2))),
]  # fmt: skip
