"""From instructions to tasks to times: engines, DMA queues, dependences, allocation."""
