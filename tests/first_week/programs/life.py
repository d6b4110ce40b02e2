"""A generation of Conway's Life on a torus."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, foreach, register, uint8


@register("generation")
def generation(out: OutputTensor[uint8, "h w"], board: InputTensor[uint8, "h w"]):
    h, w = board.shape

    def cell(i):
        y, x = i
        neighbours = 0
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                if dy != 0 or dx != 0:
                    neighbours += board[(y + dy) % h, (x + dx) % w]
        alive = neighbours == 3 or (neighbours == 2 and board[y, x] == 1)
        return 1 if alive else 0

    foreach(out, cell)


def main():
    board = np.random.default_rng(0).integers(0, 2, (17, 23)).astype(np.uint8)
    for _ in range(3):
        around = [np.roll(board, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
        count = sum(around)
        expected = ((count == 3) | ((count == 2) & (board == 1))).astype(np.uint8)
        yield generation(board), expected
        board = expected
