"""Converts what prepares features for classical models, in the domain ai.onnx.ml: scales, missing values, categories.

See also `linear_models`, `trees`, `texts` (tensors of texts).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ...types.dims import Dim
from ..agreement import equal_size
from ..call import NodeCall
from ..known import Array, KnownTensor
from ..table import ML, Value, onnx_op
from ..texts import Texts


def as_float(x: TensorValue) -> TensorValue:
    """A tensor in float32, which most op types of ai.onnx.ml compute in."""
    return ops.cast(x, DType.float32)


def as_rows(call: NodeCall, x: TensorValue) -> TensorValue:
    """Rows of features; a tensor of one axis is one row."""
    if x.rank == 1:
        return ops.reshape(x, [1, x.shape[0]])
    if x.rank != 2:
        call.fail(f"takes rows of features, a tensor of 1 or 2 axes, and gets the shape {x.shape}")
    return x


def by_feature(call: NodeCall, x: TensorValue, numbers: Sequence[float], attribute: str, dtype: DType) -> TensorValue:
    """An attribute with one number, or one for each feature along the last axis, to be broadcast with a tensor."""
    array = np.asarray(numbers, dtype.to_numpy()).reshape(-1)
    if array.size == 1:
        return ops.constant(array[0], dtype, x.device)
    if not x.rank or not array.size:
        call.fail(f"attribute '{attribute}' has {array.size} numbers for a tensor of shape {x.shape}")
    equal_size(call, x.shape[-1], Dim(array.size), f"the number of features and that of {attribute}")
    return ops.constant(array, dtype, x.device)


def _extracted(x: Array, y: Array) -> Array:
    return np.take(x, y.astype(np.int64).reshape(-1), -1).reshape(*(x.shape[:-1] if x.ndim > 1 else (1,)), -1)


@onnx_op("ArrayFeatureExtractor", domain=ML, known=_extracted)
def array_feature_extractor(x: TensorValue, y: TensorValue) -> TensorValue:
    """The elements along the last axis at some places; a tensor of one axis becomes one row."""
    taken = ops.gather(x, ops.reshape(y, [-1]), -1)
    return ops.unsqueeze(taken, 0) if x.rank == 1 else taken


@onnx_op("Binarizer", domain=ML)
def binarizer(x: TensorValue, *, threshold: float = 0.0) -> TensorValue:
    """1 where an element is above the threshold, and 0 elsewhere."""
    return ops.cast(ops.greater(x, threshold), x.dtype)


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: NodeCall, *inputs: TensorValue, inputdimensions: list[int] | None = None) -> TensorValue:
    """Rows of several tensors next to each other, as float32."""
    rows = [as_float(as_rows(call, x)) for x in inputs]
    if inputdimensions is not None:
        if len(inputdimensions) != len(rows):
            call.fail(f"has {len(rows)} inputs, and attribute 'inputdimensions' {len(inputdimensions)} sizes")
        for x, size in zip(rows, inputdimensions, strict=True):
            equal_size(call, x.shape[1], Dim(size), "the size of an input and that of inputdimensions")
    return rows[0] if len(rows) == 1 else ops.concat(rows, 1)


@onnx_op("Imputer", domain=ML)
def imputer(
    call: NodeCall,
    x: TensorValue,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> TensorValue:
    """Elements that equal one value replaced, each by the number of its feature; NaN equals NaN."""
    values = imputed_value_floats if x.dtype.is_float() else imputed_value_int64s
    if not values:
        call.fail(f"has no values of the dtype {x.dtype} to replace others with")
    replaced = replaced_value_float if x.dtype.is_float() else replaced_value_int64
    missing = ops.is_nan(x) if replaced != replaced else ops.equal(x, ops.constant(replaced, x.dtype, x.device))
    return ops.where(missing, by_feature(call, x, values, "imputed_value", x.dtype), x)


@onnx_op("Scaler", domain=ML)
def scaler(call: NodeCall, x: TensorValue, *, offset: list[float], scale: list[float]) -> TensorValue:
    """(x - offset) * scale, each one number or one for each feature."""
    rows = as_float(x)
    moved = rows - by_feature(call, rows, offset, "offset", DType.float32)
    return moved * by_feature(call, rows, scale, "scale", DType.float32)


@onnx_op("Normalizer", domain=ML)
def normalizer(call: NodeCall, x: TensorValue, *, norm: str) -> TensorValue:
    """Rows divided by their largest element, sum of magnitudes or root of the sum of squares, unless that is 0."""
    rows = as_float(x)
    if norm == "MAX":
        size = ops.max(rows, axis=-1)
    elif norm == "L1":
        size = ops.sum(ops.abs(rows), -1)
    elif norm == "L2":
        size = ops.sqrt(ops.sum(rows * rows, -1))
    else:
        call.fail(f"attribute 'norm' is {norm!r}, and MAX, L1 and L2 are known", argument="norm")
    return rows / ops.where(ops.equal(size, 0.0), 1.0, size)


# *** categories ***


def looked_up(call: NodeCall, x: Value, keys: list[str] | Array, values: Array, default: object) -> TensorValue:
    """For each element the value of the key that it equals, or the default; of equal keys the last one counts."""
    table = np.append(values, np.asarray(default, values.dtype))
    dtype = DType.from_numpy(table.dtype)
    if isinstance(keys, list):
        if not isinstance(x, Texts):
            call.fail("gets numbers, and its keys are texts")
        at = {key: place for place, key in enumerate(keys)}
        places = call.tensor(x.places)
        listed = table[[at.get(text, len(keys)) for text in x.listed]]
        return ops.gather(ops.constant(listed, dtype, places.device), places, 0)
    if isinstance(x, Texts):
        call.fail("gets texts, and its keys are numbers")
    given = call.tensor(x)
    if given.dtype.is_float() != (keys.dtype.kind == "f"):
        call.fail(f"gets elements of {given.dtype}, and its keys are {keys.dtype}")
    number = given.dtype.to_numpy()
    of = {key: place for place, key in enumerate(keys.astype(number).tolist()) if key == key}
    nan = [place for place, key in enumerate(keys.tolist()) if key != key]
    ordered = sorted(of)
    listed = table[[*(of[key] for key in ordered), len(keys), nan[-1] if nan else len(keys)]]
    row = ops.constant(np.asarray(ordered, number), given.dtype, given.device)
    return builtin("classical", "lookup", [given, row, ops.constant(listed, dtype, given.device)])[0]


def places_among(call: NodeCall, x: Value, keys: list[str] | Array) -> TensorValue:
    """For each element its place among the keys, int64; their number where it is none of them."""
    return looked_up(call, x, keys, np.arange(len(keys), dtype=np.int64), len(keys))


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(
    call: NodeCall,
    x: Value,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> TensorValue:
    """1 at the place of an element among the categories and 0 elsewhere, along a new last axis.

    An element that is no category gives a row of zeros, or ends the call where attribute 'zeros' is 0.
    """
    if not (cats_int64s or cats_strings):
        call.fail("has no categories: one of the attributes 'cats_int64s' and 'cats_strings' lists them")
    if not isinstance(x, Texts):
        x = ops.cast(call.tensor(x), DType.int64)
    places = places_among(call, x, cats_strings or np.asarray(cats_int64s, np.int64))
    size = len(cats_strings or cats_int64s or ())
    rows = np.eye(size + (1 if zeros else 0), size, dtype=np.float32)  # an index behind the last row ends the call
    return ops.gather(ops.constant(rows, DType.float32, places.device), places, 0)


def _one_of(call: NodeCall, what: str, **given: object) -> list[str] | Array:
    """The one attribute of some that is given: texts, or numbers in their dtype."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        call.fail(f"takes one attribute of {', '.join(given)} for its {what}, and has {' and '.join(names) or 'none'}")
    value = given[names[0]]
    if isinstance(value, KnownTensor):
        return value.array.reshape(-1)
    if isinstance(value, Texts):
        return list(value.listed)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [str(each) for each in value]
    return np.asarray(value, np.float32 if names[0].endswith("floats") else np.int64)


def _mapped(
    call: NodeCall, x: Value, keys: list[str] | Array, values: list[str] | Array, default: object
) -> TensorValue | Texts:
    """The values of keys, and the default for what is no key."""
    if len(keys) != len(values):
        call.fail(f"has {len(keys)} keys and {len(values)} values")
    if isinstance(values, list):
        return Texts(places_among(call, x, keys), (*values, str(default)))
    return looked_up(call, x, keys, values, default)


@onnx_op("LabelEncoder", domain=ML, since=1)
def label_encoder_1(
    call: NodeCall, x: Value, *, classes_strings: list[str], default_int64: int = -1, default_string: str = "_Unused"
) -> TensorValue | Texts:
    """The places of texts in a list, or the texts at places."""
    numbers = np.arange(len(classes_strings), dtype=np.int64)
    if isinstance(x, Texts):
        return _mapped(call, x, classes_strings, numbers, default_int64)
    return _mapped(call, x, numbers, classes_strings, default_string)


@onnx_op("LabelEncoder", domain=ML, since=2)
def label_encoder(
    call: NodeCall,
    x: Value,
    *,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: Value = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: Value = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Value = None,
) -> TensorValue | Texts:
    """Each element replaced by the value of its key, or by the default."""
    keys = _one_of(
        call,
        "keys",
        keys_floats=keys_floats,
        keys_int64s=keys_int64s,
        keys_strings=keys_strings,
        keys_tensor=keys_tensor,
    )
    values = _one_of(
        call,
        "values",
        values_floats=values_floats,
        values_int64s=values_int64s,
        values_strings=values_strings,
        values_tensor=values_tensor,
    )
    default: object = default_string
    if not isinstance(values, list):
        default = default_float if values.dtype.kind == "f" else default_int64
    if isinstance(default_tensor, KnownTensor) and default_tensor.array.size == 1:
        default = default_tensor.array.reshape(-1)[0]
    elif isinstance(default_tensor, Texts) and len(default_tensor.listed) == 1:
        default = default_tensor.listed[0]
    return _mapped(call, x, keys, values, default)


@onnx_op("CategoryMapper", domain=ML)
def category_mapper(
    call: NodeCall,
    x: Value,
    *,
    cats_int64s: list[int],
    cats_strings: list[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> TensorValue | Texts:
    """Texts as their numbers, or numbers as their texts."""
    numbers = np.asarray(cats_int64s, np.int64)
    if isinstance(x, Texts):
        return _mapped(call, x, cats_strings, numbers, default_int64)
    return _mapped(call, x, numbers, cats_strings, default_string)
