"""Finds the sentences of a book that mean what is requested, whatever words they use.

A network of six layers (see minilm.py) makes a direction of each sentence; the nearer two directions, the more alike
what the sentences mean. What the graph gives is compared with the same network in NumPy, and shown as a picture.

    python examples/models/sentence_embeddings.py ["a sentence to look for" ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from minilm import InNumpy, load_model, model_folder
from PIL import Image, ImageDraw, ImageFont

from einkorn.graph import CPU, InferenceSession, Model

SENTENCES = Path(__file__).resolve().parent / "data" / "alice.txt"
QUESTIONS = (
    "The animal was in a hurry.",
    "She grew taller and taller.",
    "I miss my pet.",
    "Is this drink dangerous?",
    "The child wept.",
    "Which country am I in?",
)
NEAREST = 3
BATCH = 64
TOLERANCE = 1e-6


def tokens(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of words, row by row, and 1 where there is one."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(texts)
    return np.array([t.ids for t in encoded], np.int64), np.array([t.attention_mask for t in encoded], np.int64)


def directions(model: Model, texts: list[str]) -> np.ndarray:
    """The direction of each text; texts of about the same length go together."""
    order = np.argsort([len(text) for text in texts])
    result = np.empty((len(texts), 384), np.float32)
    for first in range(0, len(texts), BATCH):
        rows = order[first : first + BATCH]
        result[rows] = model(*tokens([texts[row] for row in rows]))[1].to_numpy()
    return result


def compare(model: Model, texts: list[str]) -> str:
    """How far the graph is from NumPy with float64.

    Raises:
        AssertionError: farther than `TOLERANCE`.
    """
    words, mask = tokens(texts)
    difference = float(np.abs(model(words, mask)[1].to_numpy() - InNumpy()(words, mask)).max())
    assert difference <= TOLERANCE, f"differs from NumPy by {difference}"
    return f"matches NumPy with float64 (largest difference {difference:.1e})"


def draw(likeness: np.ndarray, questions: list[str], sentences: list[str], file: Path) -> None:
    """A square for each pair: the darker, the more alike. `likeness` has a row a question."""
    side, left, top = 44, 330, 24
    height, width = top + side * len(sentences) + 24, left + side * max(len(questions), 7) + 20
    image = Image.new("RGB", (width, height + 20 * len(questions)), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for column, question in enumerate(questions):
        x = left + side * column
        pen.text((x + side // 2 - 4, top - 18), chr(65 + column), "black", font)
        pen.text((left, height + 20 * column), f"{chr(65 + column)}  {question}", "black", font)
        for row in range(len(sentences)):
            value = float(likeness[column, row])
            shade = int(255 * (1 - min(max(value, 0.0), 1.0)))
            y = top + side * row
            pen.rectangle((x, y, x + side - 2, y + side - 2), (shade, shade, 255 - (255 - shade) // 4))
            pen.text((x + 9, y + 15), f"{value:.2f}", "white" if value > 0.45 else "black", font)
    for row, sentence in enumerate(sentences):
        plain = sentence.replace("—", "-")  # the font has no dashes
        short = plain if len(plain) <= 52 else f"{plain[:50]} …"
        pen.text((8, top + side * row + 15), short, "black", font)
    image.save(file)


def main(questions: list[str]) -> None:
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    start = time.perf_counter()
    model = load_model(InferenceSession(devices=[CPU()]))
    loaded = time.perf_counter()
    book = directions(model, sentences)
    print(f"{len(sentences)} sentences in {time.perf_counter() - loaded:.2f} s, loaded in {loaded - start:.2f} s")
    print(compare(model, [*questions, *sentences[:10]]))
    likeness = directions(model, questions) @ book.T
    shown: list[int] = []
    for question, row in zip(questions, likeness, strict=True):
        print(f"\n{question}")
        for place in np.argsort(-row)[:NEAREST]:
            print(f"  {row[place]:.2f}  {sentences[place]}")
            shown += [int(place)] if place not in shown else []
    file = Path("output", "sentences.png")
    file.parent.mkdir(exist_ok=True)
    draw(likeness[:, shown], questions, [sentences[place] for place in shown], file)
    print(f"\nwrote {file}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(QUESTIONS))
