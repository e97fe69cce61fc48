// A block of threads as RoundedProduct (rounded_product.h) uses it, on a GPU of compute capability
// 8.0 or later: each thread does its own part of a call.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/half.h"

namespace sotto {

class DeviceBlock {
 public:
  // A thread has one warp and one lane.
  template <class X>
  class One {
   public:
    __device__ X& operator()(int) { return x_; }

   private:
    X x_;
  };
  template <class X>
  using PerWarp = One<X>;
  template <class X>
  using PerLane = One<X>;

  template <class F>
  __device__ void each_thread(const F& f) const {
    f(static_cast<int>(threadIdx.x));
  }
  template <class F>
  __device__ void each_warp(const F& f) const {
    f(static_cast<int>(threadIdx.x) / lanes);
  }
  template <class F>
  __device__ void each_lane(const F& f) const {
    f(lane());
  }
  __device__ void sync() const { __syncthreads(); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  __device__ void copy(void* to, const void* from, int bytes) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
  }
  __device__ void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int groups>
  __device__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
  }
  template <class F>
  __device__ void load_transposed(One<std::uint32_t[4]>& y, const F& row_of) const {
    std::uint32_t(&r)[4] = y(0);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row_of(lane())))
                 : "memory");
  }
  template <class T, class F>
  __device__ void multiply(One<std::uint32_t[4]>& a, One<std::uint32_t[4]>& b, int at,
                           const F& c) const {
    const std::uint32_t(&x)[4] = a(0);
    const std::uint32_t y0 = b(0)[at], y1 = b(0)[at + 1];
    float* const z = c(lane());
    if constexpr (std::is_same_v<T, bf16>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
          : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
          : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
    }
  }
#else  // not called: CudaExec::has_matrix_units()
  __device__ void copy(void*, const void*, int) const {}
  __device__ void commit() const {}
  template <int groups>
  __device__ void wait() const {}
  template <class F>
  __device__ void load_transposed(One<std::uint32_t[4]>&, const F&) const {}
  template <class T, class F>
  __device__ void multiply(One<std::uint32_t[4]>&, One<std::uint32_t[4]>&, int, const F&) const {}
#endif

 private:
  static constexpr int lanes = 32;
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % lanes; }
  __device__ static unsigned shared_address(const void* x) {
    return static_cast<unsigned>(__cvta_generic_to_shared(x));
  }
};

template <class F>
__global__ void __launch_bounds__(F::threads) run_tile(const F f) {
  __shared__ typename F::Shared shared;
  f(DeviceBlock{}, shared, blockIdx.x);
}

}  // namespace sotto
