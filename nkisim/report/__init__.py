"""The cost model: how long a kernel takes on a NeuronCore, and where the time goes.

A consumer of the instruction stream, like execution and checks. `profile` is what users call. The
steps, each in a module: `build` makes the compiler's choices, with `fills`, `copies`, `repeats` and
`joining`; `compute` and `dma` give each instruction its time; `allocation` places tiles in SBUF and
PSUM; `dependences` and `regions` find what must wait for what; `scheduler` runs it all on the
engines; `timeline` holds the result. The numbers are in `nkisim.machine.timing`. All times are
modelled; none is measured.
"""
