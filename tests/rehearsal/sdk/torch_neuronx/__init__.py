"""Stand-in for PyTorch's Neuron package: a name and a version. `nki_jit` is not there: it is not
supported since SDK 2.24 (about-neuron/announcements, "announce-no-support-nki-jit-torch")."""
