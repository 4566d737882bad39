"""Answers to the exercises on RMSNorm in C++."""


def fused_residual():
    return """
    static void NormRow(const float* x, const float* residual,
                        const float* weight, float eps, float* y,
                        int64_t cols) {
      float squares = 0;
      for (int64_t i = 0; i < cols; ++i) {
        squares += (x[i] + residual[i]) * (x[i] + residual[i]);
      }
      const float scale = 1 / std::sqrt(squares / cols + eps);
      for (int64_t i = 0; i < cols; ++i) {
        y[i] = (x[i] + residual[i]) * scale * weight[i];
      }
    }
    """


def call_of_the_handler(x, weight):
    import jax
    import jax.numpy as jnp
    import numpy as np

    results = (
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct(x.shape[:-1], jnp.float32),
    )
    call = jax.ffi.ffi_call("rms_norm_forward", results)
    return call(x, weight, eps=np.float32(1e-5))[0]


def columns():
    return """
    static void NormColumn(const float* x, float eps, float* y,
                           int64_t c, int64_t rows, int64_t cols) {
      float squares = 0;
      for (int64_t i = 0; i < rows; ++i) {
        squares += x[i * cols + c] * x[i * cols + c];
      }
      const float scale = 1 / std::sqrt(squares / rows + eps);
      for (int64_t i = 0; i < rows; ++i) {
        y[i * cols + c] = x[i * cols + c] * scale;
      }
    }
    """
