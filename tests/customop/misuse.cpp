// Kernel functions for the tests of the simulated processors: right ones, and each way to be wrong.

#include <stdint.h>
#include <stdlib.h>
#include <torch/torch.h>
#include <neuron/neuron-utils.hpp>
#include <algorithm>
#include <stdexcept>

// Each processor writes its id to its element.
torch::Tensor ids(const torch::Tensor& x) {
  torch::Tensor out = get_dst_tensor();
  int32_t* buffer = (int32_t*)torch::neuron::tcm_malloc(sizeof(int32_t));
  buffer[0] = (int32_t)get_cpu_id() + 100 * (int32_t)get_cpu_count();
  out.tcm_accessor().tcm_to_tensor<int32_t>(buffer, get_cpu_id(), 1);
  torch::neuron::tcm_free(buffer);
  return x;
}

// x * factor + offset, in pieces that all processors share.
torch::Tensor affine(const torch::Tensor& x, double factor, int64_t offset) {
  torch::Tensor out = get_dst_tensor();
  const size_t numel = x.numel(), piece = 100;
  float* buffer = (float*)torch::neuron::tcm_malloc(piece * sizeof(float));
  auto from = x.tcm_accessor();
  auto to = out.tcm_accessor();
  for (size_t i = get_cpu_id() * piece; i < numel; i += get_cpu_count() * piece) {
    const size_t count = std::min(piece, numel - i);
    from.tensor_to_tcm<float>(buffer, i, count);
    for (size_t j = 0; j < count; j++) buffer[j] = (float)(factor * buffer[j] + offset);
    to.tcm_to_tensor<float>(buffer, i, count);
  }
  torch::neuron::tcm_free(buffer);
  return out;
}

// Single core: accessors by index and as streams, and a result that is returned.
torch::Tensor negate(const torch::Tensor& x) {
  torch::Tensor out = torch::empty(x.sizes(), torch::kFloat);
  auto from = x.accessor<float, 2>();
  auto to = out.accessor<float, 2>();
  for (int64_t i = 0; i < x.size(0); i++) {
    for (int64_t j = 0; j < x.size(1); j++) to[i][j] = -from[i][j];
  }
  return out;
}

torch::Tensor add(const torch::Tensor& x, const torch::Tensor& y) {
  torch::Tensor out = torch::zeros(x.sizes(), torch::kFloat);
  auto a = x.read_stream_accessor<float>();
  auto b = y.read_stream_accessor<float>();
  auto sum = out.write_stream_accessor<float>();
  for (int64_t i = 0; i < x.numel(); i++) sum.write(a.read() + b.read());
  return out;
}

// (sizes) -> for each size: how many bytes into TCM the block is, or -1 when there was no room. A
// negative size frees the block of that number, from 1 on.
torch::Tensor allocations(const torch::Tensor& sizes) {
  torch::Tensor out = get_dst_tensor();
  auto from = sizes.accessor<int32_t, 1>();
  auto to = out.accessor<int32_t, 1>();
  char* blocks[16] = {};
  char* first = nullptr;
  const int64_t number = sizes.numel();
  for (int64_t i = 0; i < number; i++) {
    const int32_t size = from[i];
    if (size < 0) {
      torch::neuron::tcm_free(blocks[-size - 1]);
      blocks[-size - 1] = nullptr;
      to[i] = 0;
      continue;
    }
    blocks[i] = (char*)torch::neuron::tcm_malloc((size_t)size);
    if (first == nullptr) first = blocks[i];
    to[i] = blocks[i] == nullptr ? -1 : (int32_t)(blocks[i] - first);
  }
  for (int64_t i = 0; i < number; i++) torch::neuron::tcm_free(blocks[i]);
  return out;
}

static void go_wrong(const torch::Tensor& x, torch::Tensor& out, float* buffer, int64_t how) {
  auto from = x.tcm_accessor();
  auto to = out.tcm_accessor();
  const size_t share = x.numel() / get_cpu_count(), start = share * get_cpu_id();
  switch (how) {
    case 0: break;                                                    // nothing is wrong
    case 1: from.tensor_to_tcm<float>(buffer, start + 1, x.numel()); break;
    case 2: from.tensor_to_tcm<float>(buffer + 1, start, share); break;
    case 3: from.tensor_to_tcm<float>(nullptr, start, share); break;
    case 4: torch::neuron::tcm_free(buffer + 1); break;
    case 5: throw std::runtime_error("too many boxes");
    case 6: x.accessor<float, 1>(); break;
    case 7: torch::neuron::tcm_malloc(100); break;                    // never freed
    case 8: to.tcm_to_tensor<float>(buffer, 0, 2); return;            // everyone, the same place
    case 9: return;                                                   // nothing is written
    case 10: from.tensor_to_tcm<int32_t>((int32_t*)buffer, start, share); break;
    case 11: x.sizes()[7]; break;
  }
  from.tensor_to_tcm<float>(buffer, start, share);
  to.tcm_to_tensor<float>(buffer, start, share);
}

torch::Tensor misuse(const torch::Tensor& x, int64_t how) {
  torch::Tensor out = get_dst_tensor();
  const size_t bytes = x.numel() / get_cpu_count() * sizeof(float);
  float* buffer = (float*)torch::neuron::tcm_malloc(bytes);
  go_wrong(x, out, buffer, how);
  torch::neuron::tcm_free(buffer);
  return out;
}
