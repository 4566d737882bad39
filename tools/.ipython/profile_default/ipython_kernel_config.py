"""IPython's configuration for the kernels that build and test the book (IPYTHONDIR names it).

It also keeps a reader's own profile, with its startup files, out of them.
"""

c = get_config()  # noqa: F821  (IPython defines it)

# Kernels talk over TCP on the loopback interface; the warning about it drowns the ones that matter.
c.IPKernelApp.log_level = "ERROR"
