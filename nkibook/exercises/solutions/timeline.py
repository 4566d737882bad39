"""Answers to the exercises on measuring a kernel."""

# fmt: off
# The lines are those of the page, which shows 77 columns.


def busiest(count):
    return "DMA queues" if count <= 2 else "Vector"


def time_of_a_call(clock, call, times):
    call().block_until_ready()
    start = clock.now
    for _ in range(times):
        call().block_until_ready()
    return (clock.now - start) / times


def speedup_seen(device_us, slower_device_us, dispatch_us):
    return (slower_device_us + dispatch_us) / (device_us + dispatch_us)
