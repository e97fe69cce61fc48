// The plan of a reduction: which elements of x belong to each result, and how they are folded.
// Device code can include this header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/view.h"

namespace sotto {

struct Axis {
  std::int64_t size;
  std::int64_t stride;
};

// Axes by decreasing stride.
struct AxisList {
  int count = 0;
  Axis axis[6] = {};

  HD bool empty() const { return count == 0; }
  HD const Axis& back() const { return axis[count - 1]; }
  HD std::int64_t numel() const {
    std::int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= axis[i].size;
    return product;
  }
  // The offset of element `index` in row-major order.
  HD std::int64_t offset(std::int64_t index) const {
    std::int64_t sum = 0;
    for (int i = count - 1; i > 0; --i) {
      sum += index % axis[i].size * axis[i].stride;
      index /= axis[i].size;
    }
    return count == 0 ? 0 : sum + index * axis[0].stride;
  }
  // The list without its innermost axis, if it has one.
  AxisList outer() const {
    AxisList y = *this;
    y.count = std::max(0, count - 1);
    return y;
  }
  // True if the innermost axis of this list continues where `inner` ends, so that both merge.
  bool joins(const Axis& inner) const {
    return count > 0 && back().stride == inner.stride * inner.size;
  }
  void append(const Axis& inner, bool join) {
    if (join) {
      axis[count - 1] = {back().size * inner.size, inner.stride};
    } else {
      axis[count++] = inner;
    }
  }
};

// The order of the reduced axes, and so of a result's terms: that of memory, or that of x's axes,
// in which a result's bits do not depend on how x lies in memory.
enum class TermOrder { memory, axes };

// x's axes, split into kept ones and reduced ones (of size 1 in y), merged where contiguous; kept_y
// has y's strides of the kept axes.
struct ReductionPlan {
  AxisList kept_x, kept_y, reduced;

  ReductionPlan(const View& x, const View& y, TermOrder terms) {
    int order[6];
    int axes = 0;
    for (int i = 0; i < x.rank; ++i) {
      if (x.size[i] != 1) order[axes++] = i;
    }
    std::stable_sort(order, order + axes, [&](int a, int b) { return x.stride[a] > x.stride[b]; });
    for (int k = 0; k < axes; ++k) {
      const Axis of_x{x.size[order[k]], x.stride[order[k]]},
          of_y{y.size[order[k]], y.stride[order[k]]};
      if (of_y.size != of_x.size) continue;
      const bool join = kept_x.joins(of_x) && kept_y.joins(of_y);
      kept_x.append(of_x, join);
      kept_y.append(of_y, join);
    }
    if (terms == TermOrder::axes) std::sort(order, order + axes);
    for (int k = 0; k < axes; ++k) {
      const Axis of_x{x.size[order[k]], x.stride[order[k]]};
      if (y.size[order[k]] != of_x.size) reduced.append(of_x, reduced.joins(of_x));
    }
  }

  // True if neighbouring elements of x belong to different results.
  bool columns() const {
    return !kept_x.empty() && !reduced.empty() && kept_x.back().stride < reduced.back().stride;
  }
};

struct SumFold {
  HD static double start() { return 0; }
  HD static double fold(double a, double b) { return a + b; }
};
struct MaxFold {
  HD static double start() { return -HUGE_VAL; }
  HD static double fold(double a, double b) { return b > a || b != b ? b : a; }
};
struct MinFold {
  HD static double start() { return HUGE_VAL; }
  HD static double fold(double a, double b) { return b < a || b != b ? b : a; }
};
struct ProductFold {
  HD static double start() { return 1; }
  HD static double fold(double a, double b) { return a * b; }
};

}  // namespace sotto
