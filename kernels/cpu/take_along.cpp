// Gather and scatter with one id per element: each line along the axis is independent, so that
// lines can go to different threads.
#include "core/threads/parallel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"

namespace sotto {

namespace {

// The offsets at which one line starts in each of three views.
struct Line {
  std::int64_t offset[3];
};

// The start of line `index`, which counts over the sizes of `ids` except the axis.
Line line_at(std::int64_t index, int axis, const View& x, const View& ids, const View& y) {
  Line line{};
  for (int i = ids.rank - 1; i >= 0; --i) {
    if (i == axis) continue;
    const std::int64_t at = index % ids.size[i];
    index /= ids.size[i];
    line.offset[0] += at * x.stride[i];
    line.offset[1] += at * ids.stride[i];
    line.offset[2] += at * y.stride[i];
  }
  return line;
}

// Calls f(line) for every line; one thread's lines are in order.
template <class F>
void for_each_line(const View& x, const View& ids, int axis, const View& y, F&& f) {
  const std::int64_t length = ids.size[axis];
  if (ids.numel() == 0) return;
  parallel_for(ids.numel() / length, elementwise_grain / length + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t index = begin; index < end; ++index)
                   f(line_at(index, axis, x, ids, y));
               });
}

}  // namespace

void CpuBackend::take_along(View x, View ids, int axis, View y) {
  dispatch(x.dtype, [&]<class T>(std::type_identity<T>) {
    for_each_line(x, ids, axis, y, [&](const Line& line) {
      const T* from = x.as<T>() + line.offset[0];
      const std::int64_t* id = ids.as<std::int64_t>() + line.offset[1];
      T* to = y.as<T>() + line.offset[2];
      for (std::int64_t k = 0; k < ids.size[axis]; ++k) {
        to[k * y.stride[axis]] = from[id[k * ids.stride[axis]] * x.stride[axis]];
      }
    });
  });
}

void CpuBackend::put_along_add(View x, View ids, int axis, View y) {
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    for_each_line(x, ids, axis, y, [&](const Line& line) {
      const T* from = x.as<T>() + line.offset[0];
      const std::int64_t* id = ids.as<std::int64_t>() + line.offset[1];
      T* to = y.as<T>() + line.offset[2];
      for (std::int64_t k = 0; k < ids.size[axis]; ++k) {
        T& slot = to[id[k * ids.stride[axis]] * y.stride[axis]];
        slot = T(acc_t<T>(slot) + acc_t<T>(from[k * x.stride[axis]]));
      }
    });
  });
}

}  // namespace sotto
