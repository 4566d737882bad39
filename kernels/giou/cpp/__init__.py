"""GIOU as a Neuron custom C++ operator: kernel function, shape function, and their build."""
