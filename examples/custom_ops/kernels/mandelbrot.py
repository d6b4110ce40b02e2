"""The Mandelbrot set: which points c keep z -> z * z + c small, how fast the others grow, and colours for that."""

from __future__ import annotations

from einkorn.dsl import (
    Float64,
    InputTensor,
    OutputTensor,
    cos,
    float32,
    float64,
    foreach,
    int32,
    log2,
    parallel_for,
    register,
    select,
    sqrt,
    uint8,
    unroll,
)

TURN = 6.283185307179586  # 2 pi
PHASES = (0.62, 0.68, 0.81)  # where red, green and blue begin their turn round the palette


@register("mandelbrot")
def mandelbrot(
    steps: OutputTensor[int32, "height width"],
    size: OutputTensor[float64, "height width"],
    *,
    height: int = 600,
    width: int = 900,
    limit: int = 256,
    left: float = -2.45,
    top: float = 1.2,
    pixel: float = 0.004,
) -> None:
    """For each point of a grid: after how many steps |z|**2 passes 2**16 (at most `limit`), and |z|**2 then.

    `left` and `top` are the corner of the picture in the complex plane, `pixel` is the distance of two points.
    """

    def iterate(index):
        row, column = index
        real = left + Float64(column) * pixel
        imaginary = top - Float64(row) * pixel
        x, y, count = 0.0, 0.0, int32(0)
        while x * x + y * y <= 65536 and count < limit:
            x, y = x * x - y * y + real, 2 * x * y + imaginary
            count += 1
        return count, x * x + y * y

    foreach((steps, size), iterate)


@register("palette")
def palette(
    out: OutputTensor[uint8, "h w 3"],
    steps: InputTensor[int32, "h w"],
    size: InputTensor[float64, "h w"],
    *,
    limit: int = 256,
) -> None:
    """Colours: black within the set, outside a smooth turn of hues by how soon a point left."""

    def paint(row):
        for column in range(steps.dim(1)):
            # The fraction of a step makes rings into a smooth slope. Sizes within the set may be 0: no logarithm there.
            outside = select(size[row, column] > 4.0, size[row, column], 4.0).cast(float32)
            smooth = steps[row, column].cast(float32) + 1 - log2(log2(outside) / 2)
            for channel in unroll(3):
                wave = 0.5 - 0.5 * cos(TURN * (0.22 * sqrt(smooth) + PHASES[channel]))
                shade = select(steps[row, column] == limit, 0.0, 255 * wave)
                out[row, column, channel] = shade.cast(uint8)

    parallel_for(steps.dim(0), paint)
