"""RMSNorm in C++ for the CPU, as handlers of XLA's FFI.

``cpu.cpp`` implements the interface that ``rms_norm.h`` declares and checks. ``building`` compiles
it on first use, ``handlers`` tells XLA the names of the two handlers and calls them from JAX,
``jax_op`` makes the differentiable operator of them. Importing this package imports none of these.
"""
