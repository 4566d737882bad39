"""Running the Python kernel once: the tracer, the cache of lowered calls, what a trace has read."""
