"""Names the orders of axes of images and of filters, and other choices that ops take.

N is the batch, C the channels, H and W the places; in filters F the results, C the channels of the input, and Q, R, S
the taps. Each name lists all axes from the first to the last.
"""

from __future__ import annotations

from enum import Enum


class ConvInputLayout(Enum):
    """Where the channels of images lie; the places are one to three axes, whatever the name says."""

    NHWC = "NHWC"
    NCHW = "NCHW"


class FilterLayout(Enum):
    """The order of the axes of filters."""

    RSCF = "RSCF"
    QRSCF = "QRSCF"
    FCRS = "FCRS"
    FCQRS = "FCQRS"
    CFRS = "CFRS"


class InterpolationMode(Enum):
    """How elements between those of an image are made."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Normalization(Enum):
    """How a Fourier transform and its inverse are scaled."""

    BACKWARD = "backward"
    ORTHO = "ortho"
    FORWARD = "forward"
