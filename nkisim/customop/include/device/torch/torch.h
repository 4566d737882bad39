// The tensor library of Neuron custom C++ operators, for kernel functions, on the CPU.
//
// Provided: the factories, Tensor, and its element, stream and TCM accessors. Not provided: eye, and
// the operations on whole tensors (torch::exp, torch::add, ...), which the documented library has.
// Written against the "Custom Operators API Reference Guide" of the AWS Neuron SDK. C++14, as the
// device's compiler.
#pragma once

#include "nkisim/processor.hpp"
#include "nkisim/tensor.hpp"

namespace torch = nkisim;
namespace at = nkisim;
namespace c10 = nkisim;
