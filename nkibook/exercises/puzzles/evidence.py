"""Exercises of the page on published kernels and compilers."""

from nkibook.exercises import exercise


@exercise(
    (90.92, 86.65, True),
    (958.449, 931.839, False),
    (14.86, 0.824, False),
    lines=1,
    reveal=False,
    hint="A latency of half as many seconds is twice as fast.",
)
def times_as_fast(kernel, compiler, more_is_better):
    # How many times as fast the kernel is.
    return kernel / compiler if more_is_better else compiler / kernel


@exercise(
    (4.0, 0.5, 1000.0, 0, 0.0),
    (1.05, 0.3, 2000.0, 12, 40.0),
    (20.0, 0.25, 800.0, 30, 670.0),
    lines=3,
    reveal=False,
    hint="Add up what the step takes now: the rest, the operation, the boundaries.",
)
def step_gain(gain, share, step_us, calls, boundary_us):
    # How many times as fast the step is with the kernel.
    operation, rest = share * step_us, (1 - share) * step_us
    return step_us / (rest + operation / gain + calls * boundary_us)
