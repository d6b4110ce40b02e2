"""Exports the network of examples/models/minilm.py as a file that C programs call, with the words of some sentences.

    python examples/export/export_minilm.py FOLDER
    cc -O2 -IFOLDER examples/export/rank.c FOLDER/libminilm.so -lm -Wl,-rpath,FOLDER -o FOLDER/rank
    FOLDER/rank FOLDER/sentences.txt                     from C
    c++ -std=c++20 -O2 -IFOLDER examples/export/rank.cpp FOLDER/libminilm.so -lm -Wl,-rpath,FOLDER -o FOLDER/rank
    rustc -O examples/export/rank.rs -L FOLDER -C link-arg=-Wl,-rpath,FOLDER -o FOLDER/rank
    python examples/export/rank.py FOLDER                from Python, without Einkorn and without NumPy

All programs print which sentences of a book are nearest to each question, as examples/models/sentence_embeddings.py
does.
"""

from __future__ import annotations

import sys
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "models"
sys.path.insert(0, str(MODELS))

from minilm import load_model  # noqa: E402
from sentence_embeddings import QUESTIONS, SENTENCES, tokens  # noqa: E402

from einkorn.graph import InferenceSession  # noqa: E402


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = load_model(InferenceSession())
    model.export(
        folder / "libminilm.so", header=folder / "minilm.h", name="minilm", output_names=["hidden", "direction"]
    )
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    with (folder / "sentences.txt").open("w", encoding="utf-8") as file:
        print(len(QUESTIONS), len(sentences), file=file)
        for text in (*QUESTIONS, *sentences):
            numbers = tokens([text])[0][0]
            print(len(numbers), *numbers, text, file=file)
    for name in ("libminilm.so", "minilm.h", "sentences.txt"):
        print(f"{folder / name}: {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "output"))
