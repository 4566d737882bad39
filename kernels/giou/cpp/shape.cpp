// The shape function of giou.cpp, and the name of the operator. Runs on the host, before the kernel
// and without the boxes: the one place that can refuse arguments with a Python exception.

#include <stdint.h>
#include <stdlib.h>
#include <torch/torch.h>
#include "torchneuron/register.h"

// The memory of a GpSimd processor. A row of boxes, its partner and its scores have to fit.
static const int64_t kTcmBytes = 64 * 1024;

torch::Tensor giou_shape(torch::Tensor boxes1, torch::Tensor boxes2) {
  TORCH_CHECK(boxes1.dim() == 3 && boxes1.size(2) == 4,
              "giou: boxes1 has shape ", boxes1.sizes(), ". Boxes are (rows, boxes, 4): ",
              "x1, y1, x2, y2 in the last dimension. Reshape them.");
  TORCH_CHECK(boxes1.sizes() == boxes2.sizes(),
              "giou: boxes1 has shape ", boxes1.sizes(), " and boxes2 ", boxes2.sizes(),
              ". Each box is compared with its partner: pass tensors of one shape.");
  TORCH_CHECK(boxes1.scalar_type() == torch::kFloat && boxes2.scalar_type() == torch::kFloat,
              "giou: boxes are ", boxes1.scalar_type(), " and ", boxes2.scalar_type(),
              ". The kernel computes in float32: convert them with .float().");
  const int64_t rows = boxes1.size(0), boxes = boxes1.size(1);
  const int64_t row_bytes = (4 + 4 + 1) * boxes * 4;
  TORCH_CHECK(row_bytes <= kTcmBytes,
              "giou: a row of ", boxes, " boxes takes ", row_bytes, " bytes of TCM, and a GpSimd ",
              "processor has ", kTcmBytes, ". Use rows of at most ", kTcmBytes / 36,
              " boxes: boxes.reshape(-1, n, 4).");
  return torch::zeros({rows, boxes}, torch::kFloat);
}

NEURON_LIBRARY(my_ops, m) {
  m.def("giou", &giou_shape, "giou");
}
