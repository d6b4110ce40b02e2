"""Detects shapes in a picture with a model of ONNX, which this program makes: a small network of convolutions.

    python examples/models/shape_detector.py [FOLDER]

The filters of the two lower layers are random; the uppermost layer is fitted by least squares to patches that are
drawn for it. A detector is the classifier of patches at every place of a larger picture, and what overlaps a better
find is suppressed: all of it is one ONNX file, which `from_onnx` imports. Writes shapes.onnx and shapes.png.

Needs the packages onnx and pillow.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator
from PIL import Image, ImageDraw

from einkorn.graph import InferenceSession, from_onnx

NAMES = ["disc", "ring", "square", "triangle", "cross"]
COLOURS = ["#e6194b", "#f58231", "#3cb44b", "#4363d8", "#911eb4"]
PATCH, STEP, SCENE = 24, 4, 256  # pixels: a patch, the step between two of them, a picture
PLACES = (SCENE - PATCH) // STEP + 1

random = np.random.default_rng(7)


def draw_shape(draw: ImageDraw.ImageDraw, kind: str, x: float, y: float) -> None:
    """Draws one shape around a point, of a random size, brightness and (the angular ones) direction."""
    r, shade = random.uniform(7, 10), int(random.uniform(140, 255))
    turn = random.uniform(-0.3, 0.3)
    if kind in ("disc", "ring"):
        draw.ellipse((x - r, y - r, x + r, y + r), fill=shade if kind == "disc" else None, outline=shade, width=3)
        return
    corners = {"square": [45, 135, 225, 315], "triangle": [-90, 30, 150]}.get(kind)
    if corners is not None:
        angles = np.radians(corners) + turn
        draw.polygon([(x + r * np.cos(a), y + r * np.sin(a)) for a in angles], fill=shade)
        return
    for angle in (turn, turn + np.pi / 2):
        dx, dy = r * np.cos(angle), r * np.sin(angle)
        draw.line((x - dx, y - dy, x + dx, y + dy), fill=shade, width=4)


def noisy(image: Image.Image) -> np.ndarray[Any, Any]:
    """Pixels from 0 to 1 with noise."""
    pixels = np.asarray(image, np.float32) / 255
    return np.clip(pixels + random.normal(0, 0.08, pixels.shape), 0, 1).astype(np.float32)


def patches(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Patches with a shape near their middle, or (class 5) with none or with a part of one, and their classes."""
    labels = random.integers(0, len(NAMES) + 1, count)
    images = []
    for label in labels:
        image = Image.new("L", (PATCH, PATCH), int(random.uniform(0, 60)))
        draw = ImageDraw.Draw(image)
        if label < len(NAMES):
            draw_shape(draw, NAMES[label], *(PATCH / 2 + random.uniform(-2, 2, 2)))
        elif random.random() < 0.8:
            angle, far = random.uniform(0, 2 * np.pi), random.uniform(7, 18)
            middle = PATCH / 2 + far * np.array([np.cos(angle), np.sin(angle)])
            draw_shape(draw, NAMES[random.integers(len(NAMES))], *middle)
        images.append(noisy(image))
    return np.stack(images)[:, None], labels


def scene() -> tuple[np.ndarray[Any, Any], list[tuple[str, float, float]]]:
    """A picture with shapes that do not overlap, and where they are."""
    image = Image.new("L", (SCENE, SCENE), 30)
    draw = ImageDraw.Draw(image)
    placed: list[tuple[str, float, float]] = []
    while len(placed) < 24:
        x, y = random.uniform(PATCH / 2, SCENE - PATCH / 2, 2)
        if all(np.hypot(x - a, y - b) > 30 for _, a, b in placed):
            placed.append((NAMES[len(placed) % len(NAMES)], x, y))
            draw_shape(draw, *placed[-1])
    return noisy(image)[None, None], placed


# --- the network, as ONNX ---


def tensor(name: str, array: np.ndarray[Any, Any]) -> Any:
    return numpy_helper.from_array(array, name)


def make_model(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: dict[str, Any], name: str) -> Any:
    """A model of ONNX; its outputs are floats but for the numbers of what was found."""
    kinds = {"found": TensorProto.INT64}
    results = [helper.make_tensor_value_info(each, kinds.get(each, TensorProto.FLOAT), None) for each in outputs]
    graph = helper.make_graph(nodes, name, inputs, results, [tensor(*pair) for pair in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def lower_layers() -> tuple[list[Any], dict[str, Any]]:
    """Two convolutions of random filters: 24 x 24 pixels become 6 x 6 places of 64 numbers."""
    weights = {
        "filters1": random.normal(0, 0.3, (16, 1, 5, 5)).astype(np.float32),
        "bias1": random.normal(0, 0.2, 16).astype(np.float32),
        "filters2": random.normal(0, 0.15, (64, 16, 3, 3)).astype(np.float32),
        "bias2": random.normal(0, 0.2, 64).astype(np.float32),
    }
    conv = {"strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["image", "filters1", "bias1"], ["a"], pads=[2, 2, 2, 2], **conv),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "filters2", "bias2"], ["c"], pads=[1, 1, 1, 1], **conv),
        helper.make_node("Relu", ["c"], ["features"]),
    ]
    return nodes, weights


def fitted_head(features: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The uppermost layer, by least squares with a small weight on its size: the filters of a convolution."""
    x = np.concatenate([features.reshape(len(features), -1), np.ones((len(features), 1))], 1).astype(np.float64)
    targets = np.eye(len(NAMES) + 1)[labels]
    solved = np.linalg.solve(x.T @ x + 3.0 * np.eye(x.shape[1]), x.T @ targets)
    shape = (len(NAMES) + 1, *features.shape[1:])
    return {
        "filters3": (4 * solved[:-1].T.reshape(shape)).astype(np.float32),
        "bias3": (4 * solved[-1]).astype(np.float32),
    }


def detector(nodes: list[Any], weights: dict[str, Any]) -> Any:
    """The whole model: a picture to classes with scores, the boxes of all places, and the ones that are left."""
    corner = np.arange(PLACES, dtype=np.float32) * STEP
    y, x = (axis.reshape(-1) for axis in np.meshgrid(corner, corner, indexing="ij"))
    boxes = np.stack([y, x, y + PATCH, x + PATCH], 1)[None]
    known = {
        "boxes": boxes,
        "shape": np.array([1, len(NAMES) + 1, -1]),
        "begin": np.array([0]),
        "end": np.array([len(NAMES)]),
        "axis": np.array([1]),
        "most": np.array([100]),
        "overlap": np.array([0.1], np.float32),
        "least": np.array([0.5], np.float32),
    }
    upper = [
        helper.make_node("Conv", ["features", "filters3", "bias3"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"], axis=1),
        helper.make_node("Reshape", ["e", "shape"], ["f"]),
        helper.make_node("Slice", ["f", "begin", "end", "axis"], ["scores"]),
        helper.make_node("ReduceMax", ["scores", "axis"], ["best"]),
        helper.make_node("NonMaxSuppression", ["boxes", "best", "most", "overlap", "least"], ["found"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, SCENE, SCENE])
    return make_model([*nodes, *upper], [image], ["scores", "found"], {**weights, **known}, "detector")


# --- the program ---


def picture(image: np.ndarray[Any, Any], finds: list[tuple[str, float, float, float]]) -> Image.Image:
    """The scene, four times as large, with a box and a name for each find."""
    large = Image.fromarray((image[0, 0] * 255).astype(np.uint8)).convert("RGB").resize((4 * SCENE, 4 * SCENE))
    draw = ImageDraw.Draw(large)
    for name, x, y, score in finds:
        colour = COLOURS[NAMES.index(name)]
        draw.rectangle((4 * x, 4 * y, 4 * (x + PATCH), 4 * (y + PATCH)), outline=colour, width=3)
        draw.text((4 * x + 4, 4 * y + 2), f"{name} {score:.2f}", fill="white")
    return large


def main(folder: Path) -> None:
    session = InferenceSession()
    nodes, weights = lower_layers()
    patch = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["count", 1, PATCH, PATCH])
    lower = session.load(from_onnx(make_model(nodes, [patch], ["features"], weights, "features")))
    images, labels = patches(4000)
    features = lower.execute(images)[0].to_numpy()
    head = fitted_head(features[:3200], labels[:3200])
    guessed = np.argmax(features[3200:].reshape(800, -1) @ head["filters3"].reshape(6, -1).T + head["bias3"], 1)
    print(f"patches that the fit has not seen: {np.mean(guessed == labels[3200:]):.1%} are recognised")

    model = detector(nodes, {**weights, **head})
    save(model, folder / "shapes.onnx")
    begun = time.perf_counter()
    detect = session.load(from_onnx(folder / "shapes.onnx"))
    print(f"shapes.onnx imported and compiled in {time.perf_counter() - begun:.2f} s")

    image, placed = scene()
    scores, detections = (buffer.to_numpy() for buffer in detect.execute(image))
    expected = ReferenceEvaluator(model).run(["scores"], {"image": image})[0]
    print(f"scores differ from those of onnx.reference by {np.abs(scores - expected).max():.1e} at most")
    assert np.allclose(scores, expected, atol=1e-4)

    finds = []
    for _, _, place in detections:
        y, x = divmod(int(place), PLACES)
        kind = int(scores[0, :, place].argmax())
        finds.append((NAMES[kind], STEP * x, STEP * y, float(scores[0, kind, place])))
    right = sum(
        any(name == kind and np.hypot(x + PATCH / 2 - a, y + PATCH / 2 - b) < 6 for name, x, y, _ in finds)
        for kind, a, b in placed
    )
    print(f"found {right} of {len(placed)} shapes, with {len(finds) - right} finds too many")
    picture(image, finds).save(folder / "shapes.png")
    print(f"written: {folder / 'shapes.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
