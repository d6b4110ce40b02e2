"""Clusters points: the kernel assigns them to the nearest centre, NumPy moves the centres."""

import math

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, float64, foreach, int64, register


@register("nearest")
def nearest(label: OutputTensor[int64, "n"], points: InputTensor[float64, "n d"], centres: InputTensor[float64, "k d"]):
    def closest(i):
        best = 0
        best_distance = math.inf
        for c in range(centres.shape[0]):
            distance = 0.0
            for j in range(points.shape[1]):
                difference = points[i[0], j] - centres[c, j]
                distance += difference**2
            if distance < best_distance:
                best = c
                best_distance = distance
        return best

    foreach(label, closest)


def main():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(centre, 0.5, (50, 2)) for centre in ((0, 0), (4, 0), (0, 4))])
    centres = points[[0, 50, 100]]
    for _ in range(5):
        labels = nearest(points, centres)
        yield labels, np.argmin(((points[:, None] - centres) ** 2).sum(axis=-1), axis=1)
        centres = np.array([points[labels == k].mean(axis=0) for k in range(3)])
