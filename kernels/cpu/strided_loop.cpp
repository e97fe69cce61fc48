#include "kernels/cpu/strided_loop.h"

#include <algorithm>
#include <utility>

#include "core/threads/parallel.h"
#include "kernels/cpu/grain.h"
#include "kernels/host_device/loop_nest.h"

namespace sotto {

namespace {

// Swaps the two innermost axes if runs along the last one would be very short: starting a run costs
// as much as about ten elements, and a larger stride costs little.
template <std::size_t N>
void lengthen_runs(LoopNest<N>& nest) {
  constexpr std::int64_t short_run = 4;
  const int inner = nest.rank - 1;
  if (inner < 1 || nest.size[inner] > short_run || nest.size[inner - 1] <= nest.size[inner]) return;
  std::swap(nest.size[inner - 1], nest.size[inner]);
  for (auto& stride : nest.stride) std::swap(stride[inner - 1], stride[inner]);
}

}  // namespace

template <std::size_t N>
void strided_runs(const std::array<View, N>& views, const StridedRun<N>& run) {
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
      const std::int64_t length = std::min(nest.size[inner] - at[inner], end - done);
      run(offsets, steps, length);
      done += length;
      for (std::size_t v = 0; v < N; ++v) offsets[v] += length * steps[v];
      at[inner] += length;
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

template void strided_runs(const std::array<View, 1>&, const StridedRun<1>&);
template void strided_runs(const std::array<View, 2>&, const StridedRun<2>&);
template void strided_runs(const std::array<View, 3>&, const StridedRun<3>&);
template void strided_runs(const std::array<View, 4>&, const StridedRun<4>&);

}  // namespace sotto
