// Generalized IoU on the eight GpSimd processors of a NeuronCore, as a Neuron custom C++ operator.
//
// Compiles with the Neuron custom-op toolchain, and with a C++ compiler through nkisim.
// The definition of GIOU is torchvision's; kernels/giou/reference.py has the same in NumPy.

#include <stdint.h>
#include <stdlib.h>
#include <torch/torch.h>
#include <neuron/neuron-utils.hpp>
#include <algorithm>

// Boxes are x1, y1, x2, y2.
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

// (rows, boxes, 4) and (rows, boxes, 4) float32 -> (rows, boxes) float32.
torch::Tensor giou(const torch::Tensor& boxes1, const torch::Tensor& boxes2) {
  const size_t rows = boxes1.sizes()[0];
  const size_t boxes = boxes1.sizes()[1];
  torch::Tensor scores = get_dst_tensor();

  // Rows are dealt out as evenly as they go: 1031 rows are 128 or 129 for each of eight.
  const size_t first = rows * get_cpu_id() / get_cpu_count();
  const size_t last = rows * (get_cpu_id() + 1) / get_cpu_count();

  const size_t coordinates = 4 * boxes;
  float* row1 = (float*)torch::neuron::tcm_malloc(coordinates * sizeof(float));
  float* row2 = (float*)torch::neuron::tcm_malloc(coordinates * sizeof(float));
  float* out = (float*)torch::neuron::tcm_malloc(boxes * sizeof(float));

  // Without memory nothing can be computed, and nothing is written. The shape function has refused
  // rows that fit no TCM; this is for a pool that is smaller than it assumes.
  if (row1 != nullptr && row2 != nullptr && out != nullptr) {
    auto boxes1_tcm = boxes1.tcm_accessor();
    auto boxes2_tcm = boxes2.tcm_accessor();
    auto scores_tcm = scores.tcm_accessor();
    for (size_t row = first; row < last; row++) {
      boxes1_tcm.tensor_to_tcm<float>(row1, row * coordinates, coordinates);
      boxes2_tcm.tensor_to_tcm<float>(row2, row * coordinates, coordinates);
      for (size_t j = 0; j < boxes; j++) {
        out[j] = giou_of(row1 + 4 * j, row2 + 4 * j);
      }
      scores_tcm.tcm_to_tensor<float>(out, row * boxes, boxes);
    }
  }

  torch::neuron::tcm_free(out);
  torch::neuron::tcm_free(row2);
  torch::neuron::tcm_free(row1);
  return scores;  // ignored: the scores are in the output already
}
