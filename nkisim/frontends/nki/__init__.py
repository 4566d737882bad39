"""`import nki`: NKI 0.7, the dialect of SDK 2.33, on the instructions of `neuronxcc.nki`.

What is where:

    surface/      what kernels import: `nki`, and its `language`, `isa`, `collectives`,
                  `compiler`, `typing`
    surface/isa/  the instructions, a module for each engine or family; `vector/` for the many of
                  the Vector Engine
    tensors/      NkiTensor and its memory (`tensor`), views of it (`views`), how one walks memory
                  (`layout`), `t[...]` (`indexing`), rows that an index tensor picks (`indirect`)
    dtypes        names of types (this dialect's types are strings) and what NumPy stores them as
    operands      brings the operands of an instruction to one iteration domain
    session       what records a kernel, and the short path from a call to an instruction
    matmuls       which elements of PSUM a matmul overwrites and which it adds to
    registers     registers and scalars
    loops         loops whose bounds are data
    grids         a tensor as tiles, or as blocks of tiles
    configuration what `nki.jit` takes: `nki.compiler`
    releases      what differs between NKI 0.7 and 0.6, and which of them runs
    declare       declaring tensors
    kernel        how a call of a kernel is traced, and its outputs
    python_subset Python that the compiler of NKI 0.6 refuses
    target        the NeuronCore generation that the environment names

An instruction takes its destination first and returns none. It has no mask, and its result is cast
to the type of the destination. Loops are Python's and come out unrolled, so a call must be cheap:
what follows from the layouts and settings of a call is worked out once, and kept (`session`).
"""
