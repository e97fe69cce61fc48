// Every rank's value, on all.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/ranks/ranks.h"

namespace sotto {

// Returns the values that the ranks pass, in their order. Collective.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> of_all_ranks(Ranks& ranks,
                                                                     std::string_view place,
                                                                     const T& own) {
  std::vector<T> all(static_cast<std::size_t>(ranks.size()));
  std::vector<Ranks::Room> rooms;
  for (T& each : all) rooms.push_back(std::as_writable_bytes(std::span(&each, 1)));
  ranks.gather(place, std::as_bytes(std::span(&own, 1)), rooms).wait();
  return all;
}

}  // namespace sotto
