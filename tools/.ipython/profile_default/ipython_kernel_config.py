"""IPython's configuration for the kernels that build and test the book (IPYTHONDIR names it).

It also keeps a reader's own profile, with its startup files, out of them.
"""

from ipykernel.iostream import OutStream

c = get_config()  # noqa: F821  (IPython defines it)

# Kernels talk over TCP on the loopback interface; the warning about it drowns the ones that matter.
c.IPKernelApp.log_level = "ERROR"

# What a cell prints arrives in one piece, at its end: where it is cut otherwise is chance, and a
# page shows a blank line there.
OutStream.flush_interval = 60.0  # seconds
