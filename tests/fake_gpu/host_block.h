// A block of threads as RoundedProduct (kernels/cuda/rounded_product.h) uses it, on the host: each
// call does the parts of all threads, in loops. Copies arrive as late as can be, when the block
// waits for them and then meets; until then their targets hold NaN, so that a missing wait, a
// missing barrier and a target that is still read show in the results.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "core/error.h"

namespace sotto {

template <int threads>
class HostBlock {
 public:
  template <class X, int count>
  class Each {
   public:
    X& operator()(int k) { return x_[k]; }

   private:
    X x_[count];
  };
  static constexpr int lanes = 32;
  template <class X>
  using PerWarp = Each<X, threads / lanes>;
  template <class X>
  using PerLane = Each<X, lanes>;

  template <class F>
  void each_thread(const F& f) const {
    for (int thread = 0; thread < threads; ++thread) f(thread);
  }
  template <class F>
  void each_warp(const F& f) const {
    for (int warp = 0; warp < threads / lanes; ++warp) f(warp);
  }
  template <class F>
  void each_lane(const F& f) const {
    for (int lane = 0; lane < lanes; ++lane) f(lane);
  }

  void copy(void* to, const void* from, int bytes) const {
    constexpr std::uintptr_t aligned = 16;
    check(reinterpret_cast<std::uintptr_t>(to) % aligned == 0 &&
              (bytes == 0 || reinterpret_cast<std::uintptr_t>(from) % aligned == 0),
          "host block: a copy that is not aligned");
    Copy begun{to, {}};
    std::memcpy(begun.bytes, from, static_cast<std::size_t>(bytes));
    std::memset(to, 0xff, sizeof begun.bytes);
    begun_.push_back(begun);
  }
  void commit() const { groups_.push_back(std::exchange(begun_, {})); }
  template <int left>
  void wait() const {
    for (; std::ssize(groups_) > left; groups_.pop_front())
      arrived_.insert(arrived_.end(), groups_.front().begin(), groups_.front().end());
  }
  void sync() const {
    for (const Copy& copy : arrived_) std::memcpy(copy.to, copy.bytes, sizeof copy.bytes);
    arrived_.clear();
  }

  template <class F>
  void load_transposed(PerLane<std::uint32_t[4]>& y, const F& row_of) const {
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int lane = 0; lane < lanes; ++lane) {
        std::uint16_t of[2];
        for (int k = 0; k < 2; ++k) {
          const void* const row = row_of(8 * matrix + lane % 4 * 2 + k);
          of[k] = static_cast<const std::uint16_t*>(row)[lane / 4];
        }
        y(lane)[matrix] = std::bit_cast<std::uint32_t>(of);
      }
    }
  }

  // Sums of products are exact, and cut off to f32 as matrix units may.
  template <class T, class F>
  void multiply(PerLane<std::uint32_t[4]>& a, PerLane<std::uint32_t[4]>& b, int at,
                const F& c) const {
    double left[16][16], right[16][8];
    for (int lane = 0; lane < lanes; ++lane) {
      for (int k = 0; k < 8; ++k) {
        const int row = lane / 4 + k / 2 % 2 * 8, column = lane % 4 * 2 + k % 2 + k / 4 * 8;
        left[row][column] = half_of<T>(a(lane)[k / 2], k % 2);
      }
      for (int k = 0; k < 4; ++k)
        right[lane % 4 * 2 + k % 2 + k / 2 * 8][lane / 4] = half_of<T>(b(lane)[at + k / 2], k % 2);
    }
    for (int lane = 0; lane < lanes; ++lane) {
      for (int k = 0; k < 4; ++k) {
        float& sum = c(lane)[k];
        double total = static_cast<double>(sum);
        for (int inner = 0; inner < 16; ++inner)
          total += left[lane / 4 + k / 2 * 8][inner] * right[inner][lane % 4 * 2 + k % 2];
        sum = cut_off(total);
      }
    }
  }

 private:
  struct Copy {
    void* to;
    unsigned char bytes[16];
  };
  template <class T>
  static double half_of(std::uint32_t both, int which) {
    const auto bits = static_cast<std::uint16_t>(which == 0 ? both : both >> 16);
    return static_cast<double>(static_cast<float>(std::bit_cast<T>(bits)));
  }
  static float cut_off(double x) {
    const auto y = static_cast<float>(x);
    return std::abs(static_cast<double>(y)) > std::abs(x) ? std::nextafter(y, 0.0f) : y;
  }

  mutable std::vector<Copy> begun_, arrived_;
  mutable std::deque<std::vector<Copy>> groups_;
};

}  // namespace sotto
