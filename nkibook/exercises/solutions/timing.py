"""Answers to the exercises on timing."""


def time_of_a_call(clock, call, times):
    call().block_until_ready()
    start = clock.now
    for _ in range(times):
        call().block_until_ready()
    return (clock.now - start) / times


def least_us(elements, itemsize):
    return 3 * elements * itemsize / 272e9 * 1e6


def speedup_seen(device_us, slower_device_us, dispatch_us):
    return (slower_device_us + dispatch_us) / (device_us + dispatch_us)
