// One loop over several views of the same sizes: axes sorted by the last view's strides, joined
// where they are contiguous, split over the threads.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "sotto/core/parallel.h"
#include "sotto/core/view.h"
#include "sotto/kernels/cpu/grain.h"

namespace sotto {

template <std::size_t N>
struct LoopNest {
  int rank = 0;
  std::int64_t size[6] = {};
  std::int64_t stride[N][6] = {};
  std::int64_t count = 1;

  explicit LoopNest(const std::array<View, N>& views) {
    const View& lead = views[N - 1];
    int order[6];
    int axes = 0;
    for (int i = 0; i < lead.rank; ++i) {
      count *= lead.size[i];
      if (lead.size[i] != 1) order[axes++] = i;
    }
    std::stable_sort(order, order + axes,
                     [&](int a, int b) { return lead.stride[a] > lead.stride[b]; });
    for (int k = 0; k < axes; ++k) append(views, order[k]);
    if (rank == 0) {
      rank = 1;
      size[0] = 1;
    }
  }

 private:
  void append(const std::array<View, N>& views, int axis) {
    bool joins = rank > 0;
    for (std::size_t v = 0; v < N && joins; ++v) {
      joins = stride[v][rank - 1] == views[v].stride[axis] * views[v].size[axis];
    }
    if (joins) {
      size[rank - 1] *= views[0].size[axis];
    } else {
      size[rank++] = views[0].size[axis];
    }
    for (std::size_t v = 0; v < N; ++v) stride[v][rank - 1] = views[v].stride[axis];
  }
};

// Calls body(offsets, steps, count) for runs along the innermost axis, in elements, until all
// elements are covered. Different runs may go to different threads.
template <std::size_t N, class Body>
void strided_loop(const std::array<View, N>& views, Body&& body) {
  const LoopNest<N> nest(views);
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
