"""Which lanes the levels of a transposition of vectors in registers take.

Each table has lanes of two vectors of eight, numbered 0 to 7 and 8 to 15: of the lower and of the upper result. After
`WORDS` and `PAIRS` each half of the vectors is transposed by itself; `HALVES` joins them.
"""

WORDS = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
PAIRS = ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
