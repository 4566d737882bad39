"""RMSNorm in C++ for the CPU and in CUDA for NVIDIA's GPUs, as handlers of XLA's FFI.

``cpu.cpp`` and ``cuda.cu`` implement one interface, which ``rms_norm.h`` declares and checks.
``building`` compiles them on first use, ``handlers`` tells XLA their names and calls them from JAX,
``jax_op`` makes the differentiable operator of them. Importing this package imports none of these.
"""
