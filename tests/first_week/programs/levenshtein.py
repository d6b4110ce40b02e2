"""The edit distance of two texts."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, int32, register, uint8


@register("levenshtein")
def levenshtein(out: OutputTensor[int32, "1"], a: InputTensor[uint8, "n"], b: InputTensor[uint8, "m"]):
    previous = [0] * (len(b) + 1)
    for j in range(len(b) + 1):
        previous[j] = j
    for i in range(len(a)):
        diagonal = previous[0]
        previous[0] = i + 1
        for j in range(len(b)):
            cost = 0 if a[i] == b[j] else 1
            best = min(previous[j + 1] + 1, previous[j] + 1, diagonal + cost)
            diagonal = previous[j + 1]
            previous[j + 1] = best
    out[0] = previous[len(b)]


def reference(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def main():
    for a, b in ((b"kitten", b"sitting"), (b"", b"abc"), (b"intention", b"execution"), (b"same", b"same")):
        distance = levenshtein(np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8))
        yield distance[0], reference(a, b)
