// One loop over several views of equal sizes, split over the threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "core/view.h"

namespace sotto {

// Processes `count` elements of N views, each from its offset on and with its step.
template <std::size_t N>
using StridedRun =
    std::function<void(const std::array<std::int64_t, N>& offsets,
                       const std::array<std::int64_t, N>& steps, std::int64_t count)>;

// Calls `run` for runs along the innermost axis until all elements are covered. Different runs may
// be on different threads. Compiled once per number of views, up to 4.
template <std::size_t N>
void strided_runs(const std::array<View, N>& views, const StridedRun<N>& run);

template <std::size_t N, class Body>
void strided_loop(const std::array<View, N>& views, Body&& body) {
  strided_runs<N>(views, std::ref(body));
}

}  // namespace sotto
