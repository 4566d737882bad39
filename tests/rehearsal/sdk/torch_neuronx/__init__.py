"""Stand-in for PyTorch's Neuron package. `nki_jit` is not there: it is not supported since SDK 2.24
(about-neuron/announcements, "announce-no-support-nki-jit-torch"). That of SDK 2.33 makes PyTorch's
`neuron` device; the older one is a name and a version here, since torch_xla has the device."""

import rehearsal_rules as rules

if rules.HAS_NKI:
    from rehearsal_neuron import nki_op, synchronize, wrap_nki  # noqa: F401
