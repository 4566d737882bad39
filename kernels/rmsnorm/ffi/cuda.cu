// RMSNorm on a GPU, forward and backward, as two XLA FFI handlers. One block computes a row in
// float32; the sum over rows for the weight is taken in two steps, without atomics, so that it is
// the same in every run.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "rms_norm.h"

namespace rms_norm {
namespace {

struct CudaTypes {
  using bfloat16 = __nv_bfloat16;
  using float16 = __half;
};

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of a block
constexpr int64_t kMostBlocks = 65535;

// The sum of v over a block, in each of its threads: in a warp by shuffles, then of the warps.
__device__ float BlockSum(float v) {
  __shared__ float of_warps[kThreads / kWarp];
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    v += __shfl_xor_sync(0xffffffffu, v, distance);
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = v;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kThreads / kWarp; ++i) sum += of_warps[i];
  __syncthreads();  // before a sum for the next row overwrites them
  return sum;
}

template <typename X, typename W>
__global__ void ForwardKernel(int64_t rows, int64_t cols, const X* x, const W* weight, float eps,
                              X* y, float* invvar) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t start = row * cols;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
      const float v = static_cast<float>(x[start + i]);
      squares += v * v;
    }
    const float inverse = 1.0f / sqrtf(BlockSum(squares) / static_cast<float>(cols) + eps);
    for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
      const float v = static_cast<float>(x[start + i]);
      y[start + i] = static_cast<X>(v * inverse * static_cast<float>(weight[i]));
    }
    if (threadIdx.x == 0) invvar[row] = inverse;
  }
}

template <typename X, typename W>
__global__ void GradXKernel(int64_t rows, int64_t cols, const X* grad_y, const X* x,
                            const W* weight, const float* invvar, X* grad_x) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t start = row * cols;
    const float inverse = invvar[row];
    float dot = 0;
    for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
      const float g = static_cast<float>(grad_y[start + i]) * static_cast<float>(weight[i]);
      dot += g * (static_cast<float>(x[start + i]) * inverse);
    }
    const float mean = BlockSum(dot) / static_cast<float>(cols);
    for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
      const float g = static_cast<float>(grad_y[start + i]) * static_cast<float>(weight[i]);
      const float x_hat = static_cast<float>(x[start + i]) * inverse;
      grad_x[start + i] = static_cast<X>(inverse * (g - x_hat * mean));
    }
  }
}

// A thread owns a column, so that the threads of a warp read neighbours. blockIdx.y is the part.
template <typename X>
__global__ void PartsKernel(int64_t rows, int64_t cols, int64_t count, const X* grad_y, const X* x,
                            const float* invvar, float* parts) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= cols) return;
  for (int64_t part = blockIdx.y; part < count; part += gridDim.y) {
    float sum = 0;
    for (int64_t row = rows * part / count; row < rows * (part + 1) / count; ++row) {
      const float x_hat = static_cast<float>(x[row * cols + i]) * invvar[row];
      sum += static_cast<float>(grad_y[row * cols + i]) * x_hat;
    }
    parts[part * cols + i] = sum;
  }
}

__global__ void SumKernel(int64_t cols, int64_t count, const float* parts, float* grad_weight) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= cols) return;
  float sum = 0;
  for (int64_t part = 0; part < count; ++part) sum += parts[part * cols + i];
  grad_weight[i] = sum;
}

// Start a kernel on XLA's stream. It runs later; an error of the launch itself is known at once.
template <typename... Parameters, typename... Args>
ffi::Error Launch(cudaStream_t stream, dim3 grid, void (*kernel)(Parameters...), Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...);
  if (status == cudaSuccess) return ffi::Error::Success();
  return ffi::Error::Internal(std::string("rms_norm: the launch of a kernel failed: ") +
                              cudaGetErrorString(status));
}

unsigned BlocksOf(int64_t count) {
  return static_cast<unsigned>(std::min(count, kMostBlocks));
}

unsigned ColumnBlocks(int64_t cols) {
  return static_cast<unsigned>((cols + kThreads - 1) / kThreads);
}

ffi::Error Forward(cudaStream_t stream, ffi::AnyBuffer x, ffi::AnyBuffer weight,
                   ffi::Result<ffi::AnyBuffer> y, ffi::Result<ffi::Buffer<ffi::F32>> invvar,
                   float eps) {
  const auto sizes = CheckSizes(x, weight, invvar->dimensions());
  if (sizes.has_error()) return sizes.error();
  if (auto error = CheckLike("y", *y, x); error.failure()) return error;
  const int64_t rows = sizes->rows, cols = sizes->cols;
  return ForDtypes<CudaTypes>(x, weight, [&](auto tx, auto tw) {
    using X = typename decltype(tx)::type;
    using W = typename decltype(tw)::type;
    if (rows == 0) return ffi::Error::Success();
    return Launch(stream, dim3(BlocksOf(rows)), ForwardKernel<X, W>, rows, cols, Data<X>(x),
                  Data<W>(weight), eps, Data<X>(*y), invvar->typed_data());
  });
}

ffi::Error Backward(cudaStream_t stream, ffi::AnyBuffer grad_y, ffi::AnyBuffer x,
                    ffi::AnyBuffer weight, ffi::Buffer<ffi::F32> invvar,
                    ffi::Result<ffi::AnyBuffer> grad_x,
                    ffi::Result<ffi::Buffer<ffi::F32>> grad_weight,
                    ffi::Result<ffi::Buffer<ffi::F32>> parts) {
  const auto sizes = CheckSizes(x, weight, invvar.dimensions());
  if (sizes.has_error()) return sizes.error();
  const int64_t rows = sizes->rows, cols = sizes->cols;
  for (auto error : {CheckLike("grad_y", grad_y, x), CheckLike("grad_x", *grad_x, x),
                     CheckSums(grad_weight->dimensions(), parts->dimensions(), weight, rows)}) {
    if (error.failure()) return error;
  }
  const int64_t count = parts->dimensions()[0];
  return ForDtypes<CudaTypes>(x, weight, [&](auto tx, auto tw) {
    using X = typename decltype(tx)::type;
    using W = typename decltype(tw)::type;
    if (rows > 0) {
      auto error = Launch(stream, dim3(BlocksOf(rows)), GradXKernel<X, W>, rows, cols,
                          Data<X>(grad_y), Data<X>(x), Data<W>(weight), invvar.typed_data(),
                          Data<X>(*grad_x));
      if (error.failure()) return error;
      error = Launch(stream, dim3(ColumnBlocks(cols), BlocksOf(count)), PartsKernel<X>, rows, cols,
                     count, Data<X>(grad_y), Data<X>(x), invvar.typed_data(),
                     parts->typed_data());
      if (error.failure()) return error;
    }
    // Of no rows there are no parts, and the sum is zero.
    return Launch(stream, dim3(ColumnBlocks(cols)), SumKernel, cols, rows > 0 ? count : 0,
                  parts->typed_data(), grad_weight->typed_data());
  });
}

}  // namespace
}  // namespace rms_norm

using Stream = rms_norm::ffi::PlatformStream<cudaStream_t>;
XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsNormForward, rms_norm::Forward, rms_norm::BindForward<Stream>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsNormBackward, rms_norm::Backward,
                              rms_norm::BindBackward<Stream>());
