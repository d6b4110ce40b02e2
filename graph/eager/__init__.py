"""Tensors that have values: ops run as they are called, or are recorded and run together.

    kinds       dtype, sizes and device of a tensor, one object each
    arguments   what the arguments of an op are: tensors, numbers, sizes, and what decides the code
    patterns    an op with named sizes: the types of its results, found by staging it once
    programs    several ops as one graph, and its model; a thread that compiles
    nodes       what a recorded tensor consists of
    realize     runs what is recorded: op by op, or as one program when it comes back
    record      records a call of an op, or runs it at once
    operators   the ops, made of the rows of the graph's ops
    contexts    when tensors get their values
    tensor      `Tensor`, as `einkorn.tensor` has it
    functional  functions over all ops, as `einkorn.functional` has them
    random      random tensors, as `einkorn.random` has them

No op is defined here: types, errors and code are those of `graph.ops`.
"""
