"""Three steps of an image pipeline. Pictures have the shape [height, width, channel], or [height, width] when grey."""

from __future__ import annotations

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, max, min, register, uint8, unroll

RED, GREEN, BLUE = 0.2126, 0.7152, 0.0722  # how bright each colour looks: ITU-R BT.709


@register("grayscale")
def grayscale(out: OutputTensor[float32, "h w"], image: InputTensor[uint8, "h w 3"]) -> None:
    """The brightness of every pixel, 0 (black) to 255 (white)."""

    def luminance(index):
        y, x = index
        red = image[y, x, 0].cast(float32)
        green = image[y, x, 1].cast(float32)
        blue = image[y, x, 2].cast(float32)
        return RED * red + GREEN * green + BLUE * blue

    foreach(out, luminance)


@register("brightness")
def brightness(out: OutputTensor[float32, "*s"], image: InputTensor[float32, "*s"], *, factor: float = 1.5) -> None:
    """Every pixel times `factor`, at most white."""
    foreach(out, lambda i: min(image[i] * factor, 255))


@register("blur")
def blur(
    out: OutputTensor[float32, "h w"], image: InputTensor[float32, "h w"], *, axis: int = 0, radius: int = 3
) -> None:
    """The mean over 2 * radius + 1 pixels along an axis; beyond the edge the last pixel repeats."""
    last = image.dim(axis) - 1

    def mean(index):
        y, x = index
        total = 0.0
        for offset in unroll(-radius, radius + 1):  # written out: radius is known at compile time
            if axis == 0:
                total += image[min(max(y + offset, 0), last), x]
            else:
                total += image[y, min(max(x + offset, 0), last)]
        return total / (2 * radius + 1)

    foreach(out, mean)
