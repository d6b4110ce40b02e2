"""A reader of the softmax stood in two groups: KeyError in the planner."""

from networks.network import Network

NETWORK = Network(
    inputs=(("float32", ("m", "n"), ""),),
    steps=(
        ("softmax", (0,), {"axis": 1}),
        ("add", (1,), {"number": 1.0}),
        ("mean", (2,), {"axis": 1, "keepdims": True}),
        ("mul", (2, 3), {}),
    ),
    outputs=(4,),
    sizes=({"m": 3, "n": 5}, {"m": 1, "n": 1}, {"m": 2, "n": 0}),
)
