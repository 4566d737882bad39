// The kernel function with the defects of the one in the article that it follows. Do not use it.
//
// C. Rand, "On the Programmability of AWS Trainium and Inferentia" (2024), lists a kernel of this
// structure. What is wrong in it is kept, line by line; the arithmetic is that of giou.cpp. The page
// notebooks/giou_cpp.md finds the defects, and the tests hold that they are found: `partition` drops
// what is left over, the offsets add rows to elements, `out` has room for four times its scores, and is
// never freed.

#include <stdint.h>
#include <stdlib.h>
#include <torch/torch.h>
#include <neuron/neuron-utils.hpp>
#include <algorithm>

static float giou_of(const float* a, const float* b) {
  const float eps = 1e-7f;
  const float overlap_w = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]), 0.0f);
  const float overlap_h = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]), 0.0f);
  const float overlap = overlap_w * overlap_h;
  const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
  const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
  const float uni = area_a + area_b - overlap;
  const float hull_w = std::max(a[2], b[2]) - std::min(a[0], b[0]);
  const float hull_h = std::max(a[3], b[3]) - std::min(a[1], b[1]);
  const float hull = hull_w * hull_h;
  return overlap / (uni + eps) - (hull - uni) / (hull + eps);
}

torch::Tensor giou(const torch::Tensor& boxes1, const torch::Tensor& boxes2) {
  const size_t boxes = boxes1.sizes()[1];
  torch::Tensor scores = get_dst_tensor();

  const uint32_t id = get_cpu_id();
  const uint32_t partition = boxes1.sizes()[0] / get_cpu_count();

  const size_t in_size = 4 * boxes;
  const size_t out_size = boxes;
  float* row1 = (float*)torch::neuron::tcm_malloc(in_size * sizeof(float));
  float* row2 = (float*)torch::neuron::tcm_malloc(in_size * sizeof(float));
  float* out = (float*)torch::neuron::tcm_malloc(in_size * sizeof(float));
  auto boxes1_tcm = boxes1.tcm_accessor();
  auto boxes2_tcm = boxes2.tcm_accessor();
  auto scores_tcm = scores.tcm_accessor();

  for (size_t i = 0; i < partition; i++) {
    boxes1_tcm.tensor_to_tcm<float>(row1, partition * id + i * in_size, in_size);
    boxes2_tcm.tensor_to_tcm<float>(row2, partition * id + i * in_size, in_size);
    for (size_t j = 0; j < boxes; j++) {
      out[j] = giou_of(row1 + 4 * j, row2 + 4 * j);
    }
    scores_tcm.tcm_to_tensor<float>(out, partition * id + i * out_size, out_size);
  }

  torch::neuron::tcm_free(row1);
  torch::neuron::tcm_free(row2);
  return scores;
}
