"""The standard library: what is written in the kernel language itself.

`math` and its neighbours say what the functions of mathematics mean; other modules hold the kernels of built-in ops.
Kernels import the names of the language from `einkorn.dsl`. Input: nothing. Output: the modules. Non-goals: importing
this package loads none of them; the compiler and the kernel loader ask for what they need.
"""
