// Movement: fill, copy with conversion, gather and scatter along an axis, random masks.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/strided_loop.h"
#include "kernels/host_device/dropout_counter.h"

namespace sotto {

namespace {

template <class X, class Y>
Y converted(X x) {
  if constexpr (std::is_same_v<X, Y>)
    return x;
  else
    return static_cast<Y>(static_cast<acc_t<Y>>(static_cast<acc_t<X>>(x)));
}

// to[i] = from[i], converted; in vectors where a side has 16 bits.
template <class X, class Y>
void convert_all(const X* from, Y* to, std::int64_t count) {
  const auto all = [=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = converted<X, Y>(from[i]);
  };
  if constexpr (!std::is_same_v<X, Y> && (sizeof(X) == sizeof(bf16) || sizeof(Y) == sizeof(bf16)))
    return simd_dispatch_avx512(all);
  all();
}

// Slice `index` along an axis, which keeps size 1.
View at_index(View x, int axis, std::int64_t index) {
  x.data = static_cast<char*>(x.data) +
           index * x.stride[axis] * static_cast<std::int64_t>(size_of(x.dtype));
  x.size[axis] = 1;
  return x;
}

std::int64_t id_at(View ids, std::int64_t k) { return ids.as<std::int64_t>()[k * ids.stride[0]]; }

// True if both are row-major and the axis is 0, so that a slice is one run of bytes.
bool rows_are_runs(View x, View y, int axis) {
  return axis == 0 && x.contiguous() && y.contiguous();
}

std::int64_t row_elements(View x) { return x.size[0] == 0 ? 0 : x.numel() / x.size[0]; }

void gather_runs(View x, View ids, View y) {
  const auto bytes = static_cast<std::size_t>(row_elements(y)) * size_of(x.dtype);
  if (bytes == 0) return;
  const char* from = static_cast<const char*>(x.data);
  char* to = static_cast<char*>(y.data);
  const std::int64_t grain = elementwise_grain * 4 / static_cast<std::int64_t>(bytes) + 1;
  parallel_for(ids.size[0], grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      char* row = to + static_cast<std::size_t>(k) * bytes;
      const std::int64_t id = id_at(ids, k);
      if (id < 0) {
        std::memset(row, 0, bytes);
      } else {
        std::memcpy(row, from + static_cast<std::size_t>(id) * bytes, bytes);
      }
    }
  });
}

// The number of ids of each slice along an axis.
std::int64_t ids_each(View ids, std::int64_t slices) {
  return slices == 0 ? 1 : ids.size[0] / slices;
}

// Each thread adds to its own rows of y, so that each row is summed in the order of the ids.
void scatter_runs(View x, View ids, View y) {
  const std::int64_t width = row_elements(x), each = ids_each(ids, x.size[0]);
  const std::int64_t values = ids.size[0] * width / std::max<std::int64_t>(y.size[0], 1);
  const std::int64_t grain = elementwise_grain / std::max<std::int64_t>(values, 1) + 1;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(y.size[0], grain, [&](std::int64_t begin, std::int64_t end) {
      const T* from = x.as<T>();
      for (std::int64_t k = 0, same = 0; k < ids.size[0]; ++k) {
        const std::int64_t id = id_at(ids, k);
        if (id >= begin && id < end) {
          T* to = y.as<T>() + id * width;
          for (std::int64_t i = 0; i < width; ++i) to[i] = T(acc_t<T>(to[i]) + acc_t<T>(from[i]));
        }
        if (++same == each) {
          same = 0;
          from += width;
        }
      }
    });
  });
}

}  // namespace

void CpuBackend::fill(double value, View y) {
  dispatch(y.dtype, [&]<class T>(std::type_identity<T>) {
    const T v = static_cast<T>(static_cast<acc_t<T>>(value));
    strided_loop(std::array{y}, [&](const auto& offset, const auto& step, std::int64_t count) {
      T* p = y.as<T>() + offset[0];
      if (step[0] == 1) {
        std::fill(p, p + count, v);
      } else {
        for (std::int64_t i = 0; i < count; ++i) p[i * step[0]] = v;
      }
    });
  });
}

void CpuBackend::copy(View x, View y) {
  dispatch(x.dtype, [&]<class X>(std::type_identity<X>) {
    dispatch(y.dtype, [&]<class Y>(std::type_identity<Y>) {
      strided_loop(std::array{x, y}, [&](const auto& offset, const auto& step, std::int64_t count) {
        const X* p = x.as<X>() + offset[0];
        Y* q = y.as<Y>() + offset[1];
        if (step[0] == 1 && step[1] == 1) {
          convert_all(p, q, count);
        } else {
          for (std::int64_t i = 0; i < count; ++i) q[i * step[1]] = converted<X, Y>(p[i * step[0]]);
        }
      });
    });
  });
}

void CpuBackend::gather(View x, View ids, int axis, View y) {
  if (rows_are_runs(x, y, axis)) return gather_runs(x, ids, y);
  for (std::int64_t k = 0; k < ids.size[0]; ++k) {
    const std::int64_t id = id_at(ids, k);
    if (id < 0) {
      fill(0, at_index(y, axis, k));
    } else {
      copy(at_index(x, axis, id), at_index(y, axis, k));
    }
  }
}

void CpuBackend::scatter_add(View x, View ids, int axis, View y) {
  if (rows_are_runs(x, y, axis) && x.dtype == y.dtype) return scatter_runs(x, ids, y);
  const std::int64_t each = ids_each(ids, x.size[axis]);
  for (std::int64_t k = 0; k < ids.size[0]; ++k) {
    const std::int64_t id = id_at(ids, k);
    if (id >= 0) axpby(1, at_index(x, axis, k / each), 1, at_index(y, axis, id));
  }
}

void CpuBackend::bernoulli(PhiloxKey key, View rows, double keep, View y) {
  if (y.numel() == 0) return;
  const std::int64_t line =
      y.rank > 1 ? y.size[y.rank - 1] : 1;  // elements with consecutive counters
  const std::int64_t in_row = y.numel() / y.size[0] / line;
  const auto* const numbers = rows.as<const std::uint64_t>();
  dispatch(y.dtype, [&]<class T>(std::type_identity<T>) {
    const auto draw = [&](std::int64_t at) {
      const std::uint64_t* const row = numbers + at / in_row * 2;
      const PhiloxKey own = key_of_row(key, row[0]);
      const std::uint64_t first = row[1] + rng_counter(y.size + 1, y.rank - 1, at % in_row * line);
      for (std::int64_t i = 0; i < line; ++i) {
        const bool kept = uniform(own, first + static_cast<std::uint64_t>(i)) < keep;
        y.as<T>()[at * line + i] = T(acc_t<T>(kept ? 1 : 0));
      }
    };
    parallel_for(y.size[0] * in_row, elementwise_grain / line + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t at = begin; at < end; ++at) draw(at);
                 });
  });
}

}  // namespace sotto
