"""The ops of a graph: functions that stage kernel nodes in the graph that is being built.

    elementwise   arithmetic, comparisons, logic, mathematics
    mathematics   more functions of one number and of two, bounds
    bits          what combines and moves the bits of integers
    activations   rectifiers and gates
    norms         layers, roots of mean squares, groups, batches
    order         sorts, places in order, the k largest and smallest
    signal        Fourier transforms along an axis, windows; `ops.complex`
    transforms    Fourier transforms along several axes, frequencies
    einsum        sums over named axes
    random        random numbers, as `ops.random`
    scans         running sums and products
    reduction     sums, extremes and their places, softmax
    matmul        matrix products
    attention     attention
    movement      shapes, axes, joining
    indexing      slices, splitting
    rearranging   repeating, padding, rolling
    gathering     elements where indices point
    scattering    updates where indices point
    experts       mixtures of experts: orders of tokens, products
    token_sampling  choosing tokens from logits
    quantization  quantised tensors: encoding, decoding, products
    matrices      bands, triangles, outer products
    factorising   linear systems, determinants, eigenvalues, singular values
    creation      sequences, one number over and over, sizes
    convolution   convolutions, blocks of images
    pooling       pools
    resizing      images of other sizes
    sampling      images at any places, boxes
    constant      literals
    buffers       memory that changes
    cache         keys and values in pages, attention to them
    custom        kernels of the user's
    debugging     prints while a graph runs, fences, checks of devices
    collectives   between ranks and devices: with allreduce, reducescatter
    control_flow  branches, loops, subgraphs
    other_names   what ops are called elsewhere, for errors

An op is a row of its file (see `rows`) or a function under `@op()`. All that are declared there are names here,
and those with a namespace names of a module here.
"""

from typing import TYPE_CHECKING

from ..types.layouts import InterpolationMode
from .stage import OPS

if TYPE_CHECKING:
    from . import allreduce as allreduce
    from . import complex as complex
    from . import random as random
    from . import reducescatter as reducescatter
    from .activations import *
    from .attention import *
    from .bits import *
    from .buffers import *
    from .cache import *
    from .collectives import *
    from .constant import *
    from .control_flow import *
    from .convolution import *
    from .creation import *
    from .custom import *
    from .debugging import *
    from .einsum import *
    from .elementwise import *
    from .experts import *
    from .factorising import *
    from .gathering import *
    from .indexing import *
    from .mathematics import *
    from .matmul import *
    from .matrices import *
    from .movement import *
    from .norms import *
    from .order import *
    from .parts import *
    from .pooling import *
    from .quantization import *
    from .rearranging import *
    from .reduction import *
    from .resizing import *
    from .sampling import *
    from .scans import *
    from .scattering import *
    from .signal import *
    from .token_sampling import *
    from .transforms import *
else:
    from . import (
        activations,
        allreduce,
        attention,
        bits,
        buffers,
        cache,
        collectives,
        complex,
        constant,
        control_flow,
        convolution,
        creation,
        custom,
        debugging,
        einsum,
        elementwise,
        experts,
        factorising,
        gathering,
        indexing,
        mathematics,
        matmul,
        matrices,
        movement,
        norms,
        order,
        other_names,
        parts,
        pooling,
        quantization,
        random,
        rearranging,
        reducescatter,
        reduction,
        resizing,
        sampling,
        scans,
        scattering,
        signal,
        token_sampling,
        transforms,
    )

    globals().update({name: op.function for name, op in OPS.items() if "." not in name})
    __getattr__ = other_names.no_op

__all__ = sorted({name.partition(".")[0] for name in OPS})
