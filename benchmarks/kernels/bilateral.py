"""A kernel of fifty lines: an image is smoothed where neighbours are alike, then its shadows are lifted."""

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, max, min, register, sqrt

T = TypeVar("T", bound=Floating)


def clamped(i, n):
    return max(0, min(i, n - 1))


def luminance(r, g, b):
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def tone(x, gain, shoulder):
    lifted = x * gain
    if lifted < 0:
        return lifted * 0
    if lifted > shoulder:
        over = lifted - shoulder
        lifted = shoulder + over / (1 + over)
    return sqrt(lifted)


@register("bilateral")
def bilateral(
    out: OutputTensor[T, "h w 3"],
    image: InputTensor[T, "h w 3"],
    *,
    radius: int = 2,
    spread: float = 0.1,
    gain: float = 1.5,
):
    """Smooths an image where neighbours are alike, then lifts its shadows."""
    height, width = image.dim(0), image.dim(1)

    def pixel(index):
        y, x, channel = index
        centre = luminance(image[y, x, 0], image[y, x, 1], image[y, x, 2])
        total = 0.0
        weights = 0.0
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                row = clamped(y + dy, height)
                column = clamped(x + dx, width)
                near = luminance(image[row, column, 0], image[row, column, 1], image[row, column, 2])
                difference = (near - centre) / spread
                distance = dy * dy + dx * dx
                if distance > radius * radius:
                    continue
                weight = exp(-0.5 * difference * difference)
                total += weight * image[row, column, channel]
                weights += weight
        return tone(total / weights, gain, 0.8)

    foreach(out, pixel)
