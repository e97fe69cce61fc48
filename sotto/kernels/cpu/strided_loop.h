// One loop over several views of the same sizes, split over the threads.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "sotto/core/parallel.h"
#include "sotto/core/view.h"
#include "sotto/kernels/cpu/grain.h"
#include "sotto/kernels/loop_nest.h"

namespace sotto {

// Exchanges the two innermost axes where runs along the last one would be very short: starting a
// run takes as long as some ten elements, and a step between elements costs little.
template <std::size_t N>
void lengthen_runs(LoopNest<N>& nest) {
  constexpr std::int64_t short_run = 4;
  const int inner = nest.rank - 1;
  if (inner < 1 || nest.size[inner] > short_run || nest.size[inner - 1] <= nest.size[inner]) return;
  std::swap(nest.size[inner - 1], nest.size[inner]);
  for (auto& stride : nest.stride) std::swap(stride[inner - 1], stride[inner]);
}

// Calls body(offsets, steps, count) for runs along the innermost axis, in elements, until all
// elements are covered. Different runs may go to different threads.
template <std::size_t N, class Body>
void strided_loop(const std::array<View, N>& views, Body&& body) {
  LoopNest<N> nest(views);
  lengthen_runs(nest);
  const int inner = nest.rank - 1;
  std::array<std::int64_t, N> steps;
  for (std::size_t v = 0; v < N; ++v) steps[v] = nest.stride[v][inner];
  parallel_for(nest.count, elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t at[6];
    std::array<std::int64_t, N> offsets{};
    std::int64_t rest = begin;
    for (int i = inner; i >= 0; --i) {
      at[i] = rest % nest.size[i];
      rest /= nest.size[i];
      for (std::size_t v = 0; v < N; ++v) offsets[v] += at[i] * nest.stride[v][i];
    }
    for (std::int64_t done = begin; done < end;) {
      const std::int64_t run = std::min(nest.size[inner] - at[inner], end - done);
      body(offsets, steps, run);
      done += run;
      for (std::size_t v = 0; v < N; ++v) offsets[v] += run * steps[v];
      at[inner] += run;
      for (int i = inner; i > 0 && at[i] == nest.size[i]; --i) {
        at[i] = 0;
        ++at[i - 1];
        for (std::size_t v = 0; v < N; ++v) {
          offsets[v] += nest.stride[v][i - 1] - nest.size[i] * nest.stride[v][i];
        }
      }
    }
  });
}

}  // namespace sotto
