// Noise, and the update of parameters.
#include <atomic>
#include <type_traits>

#include "core/random/rounded_gaussian.h"
#include "core/threads/parallel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

namespace {

template <class T, bool noisy, class Rule, class States>
void update_all(const UpdateArray& array, Rule rule, States states, std::int32_t* faults) {
  constexpr std::int64_t grain = 1 << 14;
  parallel_for(array.count, grain, [&](std::int64_t begin, std::int64_t end) {
    const UpdateArray here =
        array;  // a local copy, which stores through the arrays' pointers cannot alias
    for (std::int64_t i = begin; i < end; ++i) {
      const UpdateFault fault = update_element<T, noisy>(here, rule, states, i);
      if (noisy && fault != UpdateFault::none) {
        std::atomic_ref(faults[static_cast<int>(fault) - 1]).store(1, std::memory_order_relaxed);
      }
    }
  });
}

// Passes the number of states as a constant, so that loops vectorize.
template <class F>
void with_states(int states, F&& call) {
  switch (states) {
    case 0: return call(std::integral_constant<int, 0>{});
    case 1: return call(std::integral_constant<int, 1>{});
    case 2: return call(std::integral_constant<int, 2>{});
    default: return call(std::integral_constant<int, max_states>{});
  }
}

template <class T>
void update_as(const UpdateArray& array, std::int32_t* faults) {
  UpdateRules::at(array.rule, [&]<class Rule>(std::type_identity<Rule>) {
    with_states(count_states(array), [&](auto states) {
      if (array.noise) {
        update_all<T, true>(array, Rule{}, states, faults);
      } else {
        update_all<T, false>(array, Rule{}, states, faults);
      }
    });
  });
}

}  // namespace

void CpuBackend::rounded_gaussian(const RoundedGaussian& gaussian, const ChaChaStream& stream,
                                  std::span<const std::int64_t> counts, View y) {
  ChaChaStream next = stream;
  std::int64_t* to = y.as<std::int64_t>();
  for (const std::int64_t count : counts) {
    const auto size = static_cast<std::size_t>(count);
    gaussian.fill(next, {to, size});
    const std::uint64_t blocks = RoundedGaussian::blocks_for(size);
    next.block += blocks;
    to += blocks * RoundedGaussian::words_in_block;
  }
}

void CpuBackend::update(std::span<const UpdateArray> arrays, View faults) {
  for (const UpdateArray& array : arrays) {
    if (array.dtype == Dtype::f64) {
      update_as<double>(array, faults.as<std::int32_t>());
    } else {
      update_as<float>(array, faults.as<std::int32_t>());
    }
  }
}

}  // namespace sotto
