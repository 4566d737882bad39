// Stands in for CUDA's header of this name, so that a C++ compiler makes a library of a CUDA source
// whose kernels run on the CPU: slowly, one block after another, for tests where there is no GPU.
//
// The threads of a block are coroutines. They run in turn, each to its next barrier or shuffle, where
// it waits for the others. So a value that is read without a barrier is read too early. A block whose
// threads do not all come to one barrier is an error of the launch. What a GPU has and this has
// not: blocks at the same time, limits of registers and shared memory, time.
#ifndef CUDA_ON_CPU_RUNTIME_H_
#define CUDA_ON_CPU_RUNTIME_H_

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

#define __global__
#define __device__
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

typedef struct CUstream_st* cudaStream_t;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9, cudaErrorLaunchFailure = 719 };

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "the threads of a block part at a barrier"
                                         : "invalid configuration argument";
}

namespace cuda_on_cpu {

// One block: its threads, and where each of them waits.
class Block {
 public:
  explicit Block(const std::function<void()>& body) : body_(body), threads_(blockDim.x) {
    lanes.resize(threads_.size());
  }

  // Runs all threads to their ends. False if they wait at different places.
  bool Run() {
    current_ = this;
    for (Thread& thread : threads_) {
      thread.stack.resize(32 << 10);
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      thread.context.uc_link = &scheduler_;
      makecontext(&thread.context, &Block::Enter, 0);
    }
    for (;;) {
      for (unsigned i = 0; i < threads_.size(); ++i) {
        if (threads_[i].place == kEnd) continue;
        threadIdx = dim3(i);
        swapcontext(&scheduler_, &threads_[i].context);
      }
      for (const Thread& thread : threads_) {
        if (thread.place != threads_[0].place) return false;
      }
      if (threads_[0].place == kEnd) return true;
    }
  }

  // Called by a thread: wait until all threads are at this place.
  static void Wait(int place) {
    Thread& thread = current_->threads_[threadIdx.x];
    thread.place = place;
    swapcontext(&thread.context, &current_->scheduler_);
  }

  static Block& Current() { return *current_; }

  std::vector<float> lanes;  // what each thread gives to a shuffle

 private:
  static constexpr int kStart = 0, kEnd = -1;
  struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    int place = kStart;
  };

  static void Enter() {
    current_->body_();
    current_->threads_[threadIdx.x].place = kEnd;
  }

  static inline thread_local Block* current_ = nullptr;
  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  ucontext_t scheduler_;
};

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::Block::Wait(1); }

inline float __shfl_xor_sync(unsigned, float value, int distance) {
  const unsigned self = threadIdx.x;
  cuda_on_cpu::Block::Current().lanes[self] = value;
  cuda_on_cpu::Block::Wait(2);
  const float other = cuda_on_cpu::Block::Current().lanes[self ^ distance];
  cuda_on_cpu::Block::Wait(3);
  return other;
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <typename... Parameters, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Args&&... args) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x < 1 || grid.y < 1 || grid.y > 65535 || block.x < 1 || block.x > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  const std::function<void()> body = [&] { kernel(args...); };
  gridDim = grid;
  blockDim = block;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      if (!cuda_on_cpu::Block(body).Run()) return cudaErrorLaunchFailure;
    }
  }
  return cudaSuccess;
}

// XLA's CPU has no streams to hand out.
template <>
struct xla::ffi::CtxDecoding<xla::ffi::PlatformStream<cudaStream_t>> {
  using Type = cudaStream_t;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return cudaStream_t{};
  }
};

#endif  // CUDA_ON_CPU_RUNTIME_H_
