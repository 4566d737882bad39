"""Answers to the exercises on published kernels and compilers."""


def times_as_fast(kernel, compiler, more_is_better):
    return kernel / compiler if more_is_better else compiler / kernel


def step_gain(gain, share, step_us, calls, boundary_us):
    operation = share * step_us
    now = step_us - operation + operation / gain + calls * boundary_us
    return step_us / now
