// Loops over several views of equal sizes, in as few axes as possible: axes are sorted by the last
// view's strides and merged where all views allow it. Device code can include this header.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/view.h"

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

}  // namespace sotto
