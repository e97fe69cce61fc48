// One loop over several views of the same sizes, split over the threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "core/view.h"

namespace sotto {

// What is done with `count` elements of N views, from each one's offset on, its step apart.
template <std::size_t N>
using StridedRun =
    std::function<void(const std::array<std::int64_t, N>& offsets,
                       const std::array<std::int64_t, N>& steps, std::int64_t count)>;

// Calls run for runs along the innermost axis, in elements, until all elements are covered.
// Different runs may go to different threads. Compiled once for each number of views, up to 4.
template <std::size_t N>
void strided_runs(const std::array<View, N>& views, const StridedRun<N>& run);

template <std::size_t N, class Body>
void strided_loop(const std::array<View, N>& views, Body&& body) {
  strided_runs<N>(views, std::ref(body));
}

}  // namespace sotto
