"""Accelerations of bodies that attract each other, with a struct for vectors."""

import math

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, float64, foreach, register, struct


@struct
class Vec:
    x: float64
    y: float64
    z: float64

    def __add__(self, other):
        return Vec(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other):
        return Vec(self.x - other.x, self.y - other.y, self.z - other.z)

    def __mul__(self, factor):
        return Vec(self.x * factor, self.y * factor, self.z * factor)

    def dot(self, other):
        return self.x * other.x + self.y * other.y + self.z * other.z


def body(positions, i):
    return Vec(positions[i, 0], positions[i, 1], positions[i, 2])


@register("accelerations")
def accelerations(
    out: OutputTensor[float64, "n 3"], positions: InputTensor[float64, "n 3"], masses: InputTensor[float64, "n"]
):
    def component(i):
        n, axis = i
        me = body(positions, n)
        total = Vec(0, 0, 0)
        for j in range(masses.shape[0]):
            if j != n:
                between = body(positions, j) - me
                distance = math.sqrt(between.dot(between) + 1e-9)
                total = total + between * (masses[j] / distance**3)
        if axis == 0:
            return total.x
        elif axis == 1:
            return total.y
        else:
            return total.z

    foreach(out, component)


def main():
    rng = np.random.default_rng(0)
    positions, masses = rng.normal(size=(20, 3)), rng.random(20)
    between = positions[None] - positions[:, None]
    distance = np.sqrt((between**2).sum(axis=-1) + 1e-9)
    weights = masses / distance**3
    np.fill_diagonal(weights, 0)
    yield accelerations(positions, masses), (between * weights[..., None]).sum(axis=1)
