"""Finds speech in a stream of sound by silero-vad, an ONNX file, with its state in buffers.

The file takes a piece of sound and a state, and gives a probability and the next state. Here it stands within another
graph, which keeps the state and the end of the piece before in buffers: a call takes 512 samples, 32 ms, and nothing
else comes or goes. What it gives is compared with ONNX Runtime where that is installed.

    python examples/models/speech.py [sound.wav]

A sound has one channel of 16 000 samples a second, of 16 bits. Without one, the program makes vowels between noise.
The file comes with the package silero-vad: `make models`, or pip install --no-deps silero-vad.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from einkorn.graph import (
    Buffer,
    BufferType,
    DeviceRef,
    DType,
    Graph,
    InferenceSession,
    Model,
    TensorType,
    from_onnx,
    ops,
)

RATE, PIECE, BEFORE = 16000, 512, 64  # samples a second, of a piece, and of the piece before that a call reads again
HOST = DeviceRef.CPU()
TOLERANCE = 1e-4
VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480))  # Hz, of their three formants


def model_file() -> Path:
    """The file of the package, where `make models` or pip has put it.

    Raises:
        SystemExit: the package is not installed.
    """
    spec = importlib.util.find_spec("silero_vad")
    installed = Path(spec.origin).parent if spec and spec.origin else None
    made = Path(__file__).resolve().parents[2] / "build" / "models" / "silero_vad"
    for folder in (installed, made):
        if folder is not None and (folder / "data" / "silero_vad.onnx").exists():
            return folder / "data" / "silero_vad.onnx"
    raise SystemExit("silero-vad is not installed: make models, or pip install --no-deps silero-vad")


def streaming(file: Path) -> Graph:
    """A graph of one piece of sound; its state and the end of the piece before are buffers that it changes."""
    inner = from_onnx(file, shapes={"input": [1, BEFORE + PIECE], "state": [2, 1, 128]}, constants={"sr": RATE})

    def forward(piece, state, before):
        sound = ops.concat([before[...], piece], 1)
        probability, after = ops.call(inner, sound, state[...])
        state[...] = ops.rebind(after, [2, 1, 128])
        before[...] = piece[:, PIECE - BEFORE :]
        return probability

    return Graph(
        "speech",
        forward,
        input_types=[
            TensorType(DType.float32, [1, PIECE], HOST),
            BufferType(DType.float32, [2, 1, 128], HOST),
            BufferType(DType.float32, [1, BEFORE], HOST),
        ],
    )


class Stream:
    """A stream of sound: `probability` takes the next piece of it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.state = Buffer.zeros((2, 1, 128), DType.float32)
        self.before = Buffer.zeros((1, BEFORE), DType.float32)

    def probability(self, piece: np.ndarray) -> float:
        """How probable it is that somewhere in this piece a person speaks."""
        return float(self.model(piece.reshape(1, PIECE), self.state, self.before)[0].to_numpy()[0, 0])


# *** sounds ***


def read_sound(path: str) -> np.ndarray:
    """The samples of a file, from -1 to 1."""
    with wave.open(path) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise SystemExit(f"{path} has to have one channel of {RATE} samples a second, of 16 bits")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def made_sound(random: np.random.Generator) -> np.ndarray:
    """Eight seconds of noise, with vowels from the second to the fourth second and from the fifth to the seventh."""
    sound = 0.002 * random.standard_normal(8 * RATE)
    for start in (2.0, 5.0):
        at = int(start * RATE)
        sound[at : at + 2 * RATE] += spoken(random)
    return sound.astype(np.float32)


def spoken(random: np.random.Generator) -> np.ndarray:
    """Two seconds of syllables: pulses of a voice, through resonances that move from vowel to vowel."""
    times = np.arange(2 * RATE) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * times) + 4 * np.sin(2 * np.pi * 5 * times)
    phase = np.cumsum(pitch) / RATE
    source = np.diff(np.floor(phase), prepend=0) + 0.01 * random.standard_normal(len(times))
    steps = np.linspace(0, len(VOWELS) - 1, 9) % len(VOWELS)
    formants = np.array([VOWELS[int(step)] for step in steps])
    sound = np.zeros(len(times))
    for k, width in enumerate((80, 100, 140)):
        centre = np.interp(times, np.linspace(0, 2, len(formants)), formants[:, k])
        sound += resonance(source, centre, width) / (k + 1)
    syllables = np.clip(np.sin(2 * np.pi * 2 * times) + 0.5, 0, 1)
    return 0.3 * syllables * sound / np.abs(sound).max()


def resonance(x: np.ndarray, centre: np.ndarray, width: float) -> np.ndarray:
    """A resonance at a frequency that moves."""
    radius = np.exp(-np.pi * width / RATE)
    turns = 2 * radius * np.cos(2 * np.pi * centre / RATE)
    y = np.zeros(len(x) + 2)
    for k, sample in enumerate(x):
        y[k + 2] = sample + turns[k] * y[k + 1] - radius * radius * y[k]
    return y[2:]


# *** the program ***


def pieces(sound: np.ndarray) -> Iterator[np.ndarray]:
    """The whole pieces of a sound."""
    for start in range(0, len(sound) - PIECE + 1, PIECE):
        yield sound[start : start + PIECE]


def spans(probabilities: list[float]) -> list[tuple[float, float]]:
    """From when to when in seconds there is speech, pauses of less than 0.3 s among it."""
    intervals: list[tuple[float, float]] = []
    for k, each in enumerate(probabilities):
        start = k * PIECE / RATE
        if each < 0.5:
            continue
        if intervals and start - intervals[-1][1] < 0.3:
            start = intervals.pop()[0]
        intervals.append((start, (k + 1) * PIECE / RATE))
    return intervals


def farthest(file: Path, sound: np.ndarray, probabilities: list[float]) -> float | None:
    """How far the probabilities are from ONNX Runtime's; None where that is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file))
    state, before = np.zeros((2, 1, 128), np.float32), np.zeros((1, BEFORE), np.float32)
    worst = 0.0
    for piece, ours in zip(pieces(sound), probabilities, strict=True):
        given = np.concatenate([before, piece[None]], 1)
        probability, state = session.run(None, {"input": given, "state": state, "sr": np.array(RATE, np.int64)})
        worst, before = max(worst, abs(float(probability[0, 0]) - ours)), given[:, -BEFORE:]
    return worst


def main() -> None:
    file = model_file()
    model = InferenceSession().load(streaming(file))
    sound = read_sound(sys.argv[1]) if len(sys.argv) > 1 else made_sound(np.random.default_rng(4))
    stream, begun = Stream(model), time.process_time()
    probabilities = [stream.probability(piece) for piece in pieces(sound)]
    spent, lasts = time.process_time() - begun, len(probabilities) * PIECE / RATE
    for start, end in spans(probabilities):
        print(f"speech from {start:5.2f} to {end:5.2f} s")
    pace = f"{lasts / spent:.0f} times as fast as it sounds"
    print(f"{lasts:.1f} s of sound took {spent * 1e3:.0f} ms of the processor: {pace}")
    worst = farthest(file, sound, probabilities)
    if worst is not None:
        print(f"probabilities differ from those of ONNX Runtime by {worst:.1e} at most")
        assert worst <= TOLERANCE, "the probabilities differ from those of ONNX Runtime"


if __name__ == "__main__":
    main()
