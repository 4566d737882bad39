// RMSNorm on the CPU, forward and backward, as two XLA FFI handlers. Rows are computed in float32,
// and shared among the threads that XLA itself computes with.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "rms_norm.h"

namespace rms_norm {
namespace {

template <typename T>
float Wide(T v) {
  return static_cast<float>(v);
}

// The sum of f(0) ... f(n - 1) in 32 partial sums, which do not wait for one another.
template <typename F>
inline float Sum(int64_t n, F f) {
  constexpr int kLanes = 32;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += f(i + j);
  }
  for (int j = 0; i < n; ++i, ++j) lanes[j] += f(i);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

template <typename X, typename W>
void ForwardRow(int64_t cols, const X* __restrict x, const W* __restrict weight, float eps,
                X* __restrict y, float* __restrict invvar) {
  const float squares = Sum(cols, [&](int64_t i) { return Wide(x[i]) * Wide(x[i]); });
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
  for (int64_t i = 0; i < cols; ++i) y[i] = static_cast<X>(Wide(x[i]) * inverse * Wide(weight[i]));
  *invvar = inverse;
}

// Writes grad_x of a row, and adds the row's term to a sum of grad_weight.
template <typename X, typename W>
void BackwardRow(int64_t cols, const X* __restrict grad_y, const X* __restrict x,
                 const W* __restrict weight, float invvar, X* __restrict grad_x,
                 float* __restrict grad_weight) {
  const float dot =
      Sum(cols, [&](int64_t i) { return Wide(grad_y[i]) * Wide(weight[i]) * (Wide(x[i]) * invvar); });
  const float mean = dot / static_cast<float>(cols);
  for (int64_t i = 0; i < cols; ++i) {
    const float grad = Wide(grad_y[i]), x_hat = Wide(x[i]) * invvar;
    grad_weight[i] += grad * x_hat;
    grad_x[i] = static_cast<X>(invvar * (grad * Wide(weight[i]) - x_hat * mean));
  }
}

// Calls work(0) ... work(count - 1), on this thread and on those of XLA's pool that are free.
//
// To wait for a task that the pool has not started may be to wait for ever: all its threads may be
// in handlers that wait. So this thread takes pieces until none is left, and waits only for pieces
// that another thread has begun. A task that starts too late finds none.
template <typename Work>
void ParallelFor(ffi::ThreadPool pool, int64_t count, const Work& work) {
  struct State {
    std::atomic<int64_t> next{0};
    int64_t done = 0;
    std::mutex mutex;
    std::condition_variable all_done;
  };
  const auto state = std::make_shared<State>();
  const auto take = [state, count, &work] {
    int64_t taken = 0;
    for (int64_t i; (i = state->next.fetch_add(1)) < count; ++taken) work(i);
    if (taken == 0) return;
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->done += taken;
    if (state->done == count) state->all_done.notify_one();
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads(), count) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([take] { take(); });
  take();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all_done.wait(lock, [&] { return state->done == count; });
}

// Elements that are worth a task: some 10 us of work.
constexpr int64_t kElementsATask = 32768;

ffi::Error Forward(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer weight,
                   ffi::Result<ffi::AnyBuffer> y, ffi::Result<ffi::Buffer<ffi::F32>> invvar,
                   float eps) {
  const auto sizes = CheckSizes(x, weight, invvar->dimensions());
  if (sizes.has_error()) return sizes.error();
  if (auto error = CheckLike("y", *y, x); error.failure()) return error;
  const int64_t rows = sizes->rows, cols = sizes->cols;
  return ForDtypes(x, weight, [&](auto tx, auto tw) {
    using X = typename decltype(tx)::type;
    using W = typename decltype(tw)::type;
    const int64_t rows_a_task = std::max<int64_t>(1, kElementsATask / cols);
    const auto task = [&](int64_t number) {
      const int64_t first = number * rows_a_task;
      for (int64_t r = first; r < std::min(first + rows_a_task, rows); ++r) {
        ForwardRow(cols, Data<X>(x) + r * cols, Data<W>(weight), eps, Data<X>(*y) + r * cols,
                   invvar->typed_data() + r);
      }
    };
    ParallelFor(pool, (rows + rows_a_task - 1) / rows_a_task, task);
    return ffi::Error::Success();
  });
}

// The sum over rows is cut into as many parts as `parts` has, whatever the number of threads, so
// that it is the same in every run. XLA gives the memory for them: they are a result.
ffi::Error Backward(ffi::ThreadPool pool, ffi::AnyBuffer grad_y, ffi::AnyBuffer x,
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
  return ForDtypes(x, weight, [&](auto tx, auto tw) {
    using X = typename decltype(tx)::type;
    using W = typename decltype(tw)::type;
    ParallelFor(pool, count, [&](int64_t part) {
      float* sum = parts->typed_data() + part * cols;
      std::fill(sum, sum + cols, 0.0f);
      for (int64_t r = rows * part / count; r < rows * (part + 1) / count; ++r) {
        BackwardRow(cols, Data<X>(grad_y) + r * cols, Data<X>(x) + r * cols, Data<W>(weight),
                    invvar.typed_data()[r], Data<X>(*grad_x) + r * cols, sum);
      }
    });
    float* total = grad_weight->typed_data();
    std::fill(total, total + cols, 0.0f);
    for (int64_t part = 0; part < count; ++part) {
      const float* sum = parts->typed_data() + part * cols;
      for (int64_t i = 0; i < cols; ++i) total[i] += sum[i];
    }
    return ffi::Error::Success();
  });
}

}  // namespace
}  // namespace rms_norm

XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsNormForward, rms_norm::Forward, rms_norm::BindForward());
XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsNormBackward, rms_norm::Backward, rms_norm::BindBackward());
