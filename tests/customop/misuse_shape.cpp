#include <stdint.h>
#include <stdlib.h>
#include <torch/torch.h>
#include "torchneuron/register.h"

torch::Tensor ids_shape(torch::Tensor x) { return torch::zeros(x.sizes(), torch::kInt); }
torch::Tensor same(const torch::Tensor& x) { return torch::empty(x.sizes(), torch::kFloat); }
torch::Tensor same2(const torch::Tensor& x, const torch::Tensor& y) { return torch::zeros(x.sizes(), torch::kFloat); }
torch::Tensor affine_shape(torch::Tensor x, double factor, int64_t offset) {
  return torch::ones(x.sizes(), torch::kFloat);
}
torch::Tensor misuse_shape(torch::Tensor x, int64_t how) { return torch::zeros(x.sizes(), torch::kFloat); }

NEURON_LIBRARY(test_ops, m) {
  m.def("ids", &ids_shape, "ids");
  m.def("affine", &affine_shape, "affine");
  m.def("negate", &same, "negate");
  m.def("plus", &same2, "add");
  m.def("allocations", &ids_shape, "allocations");
  m.def("misuse", &misuse_shape, "misuse");
}
