"""Prints which sentences are nearest to each question, by the exported file alone: see export_minilm.py.

It needs neither Einkorn nor NumPy: the functions of the file are called by `ctypes`.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

WIDTH, NEAREST = 384, 3


def direction(library: ctypes.CDLL, words: list[int]) -> list[float]:
    """What a sentence means."""
    count = len(words)
    given = (ctypes.c_int64 * count)(*words)
    mask = (ctypes.c_int64 * count)(*[1] * count)
    hidden, result = (ctypes.c_float * (count * WIDTH))(), (ctypes.c_float * WIDTH)()
    why = ctypes.create_string_buffer(256)
    status = library.minilm(given, mask, ctypes.c_int64(1), ctypes.c_int64(count), hidden, result, why)
    if status:
        text = ctypes.create_string_buffer(1000)
        library.minilm_describe(why, text, ctypes.c_size_t(len(text)))
        raise RuntimeError(text.value.decode())
    return list(result)


def main(folder: Path) -> None:
    library = ctypes.CDLL(str(folder.resolve() / "libminilm.so"))
    head, *lines = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    questions = int(head.split()[0])
    texts, directions = [], []
    for line in lines:
        count, rest = line.split(" ", 1)
        parts = rest.split(" ", int(count))
        texts.append(parts[-1])
        directions.append(direction(library, [int(word) for word in parts[:-1]]))
    for question in range(questions):
        print(f"\n{texts[question]}")
        likeness = [
            (sum(a * b for a, b in zip(directions[question], directions[k], strict=True)), texts[k])
            for k in range(questions, len(texts))
        ]
        for value, text in sorted(likeness, key=lambda pair: -pair[0])[:NEAREST]:
            print(f"  {value:.2f}  {text}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "output"))
