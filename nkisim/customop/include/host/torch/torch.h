// What a shape function needs of <torch/torch.h>: tensors, their sizes, and the factories. All of
// PyTorch's header, which the device's tools use here, takes three times as long to compile.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

namespace torch {
using namespace at;  // as in PyTorch's own header
}
