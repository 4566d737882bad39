"""What instructions cost, one by one: time on each engine that may run them, what DMA moves and how
long that takes, and the memory that they touch, by number. The numbers are in
`nkisim.machine.timing`.
"""
