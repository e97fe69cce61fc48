// Runs the bodies of device_backend.h on a GPU.
#pragma once

#include "kernels/cuda/cublas_gemm.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/cudnn/cudnn_conv.h"
#include "kernels/cuda/runtime/device_block.cuh"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

inline constexpr int warp = 32;
inline constexpr int block = 256;

// A team: a warp, or a block of warps.
template <int width>
struct DeviceTeam {
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % width; }
  __device__ static constexpr int size() { return width; }

  // Folds pairs at distances 16, 8, 4, 2 and 1, then the warps in order.
  template <class F>
  __device__ double fold(F f, double x) const {
    for (int step = warp / 2; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
    if constexpr (width > warp) {
      __shared__ double partial[width / warp];
      __syncthreads();  // all threads have read the previous fold's partial results
      if (threadIdx.x % warp == 0) partial[threadIdx.x / warp] = x;
      __syncthreads();
      x = partial[0];
      for (int i = 1; i < width / warp; ++i) x = f(x, partial[i]);
    }
    return x;
  }
};

template <class F>
__global__ void __launch_bounds__(block) run_each(const F f, const std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * block;
  for (std::int64_t i = std::int64_t{blockIdx.x} * block + threadIdx.x; i < count; i += step) f(i);
}

template <int width, class F>
__global__ void __launch_bounds__(block) run_team(const F f, const std::int64_t count) {
  constexpr int teams = block / width;
  const std::int64_t step = std::int64_t{gridDim.x} * teams;
  std::int64_t i = std::int64_t{blockIdx.x} * teams + threadIdx.x / width;
  for (; i < count; i += step) f(DeviceTeam<width>{}, i);
}

class CudaExec {
 public:
  // `tf32`: products and convolutions may round f32 factors to 11 bits.
  CudaExec(DeviceState& state, const Call& call, bool tf32)
      : state_(state), call_(call), tf32_(tf32) {
    state.use();
  }

  template <class F>
  void for_each(std::int64_t count, const F& f) const {
    if (count == 0) return;
    launch([&] { run_each<<<blocks(count, block), block, 0, state_.stream()>>>(f, count); });
  }
  template <class F>
  void for_each_team(std::int64_t count, std::int64_t width, const F& f) const {
    constexpr std::int64_t widest_for_warp = 1024;
    if (count == 0) return;
    launch([&] {
      if (width <= widest_for_warp) {
        run_team<warp><<<blocks(count, block / warp), block, 0, state_.stream()>>>(f, count);
      } else {
        run_team<block><<<blocks(count, 1), block, 0, state_.stream()>>>(f, count);
      }
    });
  }
  template <class F>
  void for_each_tile(std::int64_t count, const F& f) const {
    launch([&] { run_tile<<<static_cast<unsigned>(count), F::threads, 0, state_.stream()>>>(f); });
  }
  // Code compiled for older GPUs has no instructions for them.
  bool has_matrix_units() const {
    if (oldest_code() < 80) return false;
    int device = 0, major = 0;
    cuda_check(call_, "cudaGetDevice", cudaGetDevice(&device));
    cuda_check(call_, "cudaDeviceGetAttribute",
               cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major >= 8;
  }
  void copy(const void* from, void* to, std::size_t bytes) const {
    cuda_check(call_, "cudaMemcpyAsync",
               cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_.stream()));
  }
  void bring(const void* from, void* to, std::size_t bytes) const {
    // Captured, it would read `from` at each replay.
    if (state_.stream() != state_.main_stream())
      device_failed(call_, "bring", "bytes of the host in captured work");
    // The memory is not pinned, so `from` has been read when the call returns. The host does not
    // wait for up to 64 KiB, which go to the device with the command.
    constexpr std::size_t at_once = std::size_t{64} << 10;
    for (std::size_t at = 0; at < bytes; at += at_once) {
      const std::size_t count = bytes - at < at_once ? bytes - at : at_once;
      cuda_check(call_, "cudaMemcpyAsync",
                 cudaMemcpyAsync(static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
                                 count, cudaMemcpyHostToDevice, state_.stream()));
    }
  }
  // Products inside of primitives have full precision, because norms are computed from them.
  void gemm(const View& a, const View& b, double beta, const View& c) const {
    product(a, b, beta, c, false);
  }
  // Defined in cuda_backend.cu.
  void product(View a, View b, double beta, View c, bool tf32) const;
  // c = a b + bias if library_adds().
  void affine(const View& a, const View& b, const View& bias, const View& c) const;
  const ConvPlan* conv_plan(const ConvProblem& problem) const {
    return sotto::conv_plan(state_, problem);
  }
  const AttentionPlan* attention_plan(const AttentionProblem& problem) const {
    return sotto::attention_plan(state_, problem);
  }
  bool tf32() const { return tf32_; }
  static constexpr std::int64_t scratch_bytes() { return std::int64_t{1} << 28; }
  Device device() const { return state_.device(); }

 private:
  static unsigned blocks(std::int64_t count, int in_block) {
    constexpr std::int64_t max = 1 << 20;  // bodies loop over the rest
    const std::int64_t wanted = (count + in_block - 1) / in_block;
    return static_cast<unsigned>(wanted < max ? wanted : max);
  }
  template <class F>
  void launch(const F& f) const {
    cuda_check_with_room(call_, "launch", [&f] {
      f();
      return cudaGetLastError();
    });
  }

  DeviceState& state_;
  Call call_;
  bool tf32_;
};

}  // namespace sotto
