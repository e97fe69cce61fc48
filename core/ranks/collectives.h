// Collectives on values: every rank makes the same calls in the same order. A function that rank 0
// alone runs may throw: then every rank throws an OnEveryRank with its message, and the run goes
// on. On one rank each collective is the identity: it calls the function, and the error is the
// function's own.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/ranks/packed_values.h"
#include "core/ranks/ranks.h"

namespace sotto {

// Mix-in of errors thrown on every rank at the same call. The run stays usable.
class OnEveryRank {
 public:
  virtual ~OnEveryRank() = default;

 protected:
  OnEveryRank() = default;
  // Errors are copied when they are thrown.
  OnEveryRank(const OnEveryRank&) = default;
};

// Runs `f` on rank 0, and returns on every rank when it has ended. If it throws, every rank throws:
// std::invalid_argument and SystemFailure as such, any other error as std::runtime_error.
void on_rank_0(Ranks& ranks, std::string_view place, const std::function<void()>& f);

// Runs `f`, which is local, on every rank. If it throws on some, every rank throws the error of the
// first of them, as above; with that rank's number and host in front unless all threw the same.
void on_all_ranks(Ranks& ranks, std::string_view place, const std::function<void()>& f);

// Runs `f`, which may contain collectives. If every rank throws at the same call (an OnEveryRank,
// or any error of one rank), runs `undo`; any other error ends the run on all ranks, with its
// message. Throws the error.
void abort_on_error(
    Ranks& ranks, const std::function<void()>& f, const std::function<void()>& undo = [] {});

// True if both are one distributed run, or both are one rank.
bool same_run(const Ranks& one, const Ranks& other);

// The bytes that `f` returns on rank 0, on every rank.
std::vector<std::byte> broadcast_bytes(Ranks& ranks, std::string_view place,
                                       const std::function<std::vector<std::byte>()>& f);
// The bytes of the block that `f` returns on rank 0 for this rank.
std::vector<std::byte> scatter_bytes(Ranks& ranks, std::string_view place,
                                     const std::function<std::vector<std::vector<std::byte>>()>& f);

// Returns the value that `f` returns on rank 0. T: PackedValues says which types.
template <class F, class T = std::decay_t<std::invoke_result_t<const F&>>>
T broadcast(Ranks& ranks, std::string_view place, const F& f) {
  if (ranks.size() == 1) return f();
  return unpack<T>(broadcast_bytes(ranks, place, [&] { return pack(f()); }));
}

// Runs `decide` on rank 0, and then scatters the values that `values` returns there, one for each
// rank. Returns that of this rank, and nullopt on rank 0, which knows what it decided. On one rank
// `values` is not called.
template <class F, class T = typename std::invoke_result_t<const F&>::value_type>
std::optional<T> scatter(Ranks& ranks, std::string_view place, const std::function<void()>& decide,
                         const F& values) {
  if (ranks.size() == 1) return decide(), std::nullopt;
  const auto bytes = scatter_bytes(ranks, place, [&] {
    decide();
    std::vector<std::vector<std::byte>> blocks;
    for (const T& value : values()) blocks.push_back(pack(value));
    return blocks;
  });
  return ranks.rank() == 0 ? std::nullopt : std::optional(unpack<T>(bytes));
}

// Returns the ranks' values, in their order, on rank 0; none on the others.
template <class T>
std::vector<T> gather(Ranks& ranks, std::string_view place, const T& own) {
  if (ranks.size() == 1) return {own};
  std::vector<T> all;
  abort_on_error(ranks, [&] {
    for (auto& bytes : ranks.gather(place, pack(own))) all.push_back(unpack<T>(std::move(bytes)));
  });
  return all;
}

// Returns the ranks' values, in their order, on every rank.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(Ranks& ranks,
                                                                   std::string_view place,
                                                                   const T& own) {
  std::vector<T> all(static_cast<std::size_t>(ranks.size()));
  std::vector<Ranks::Room> rooms;
  for (T& each : all) rooms.push_back(std::as_writable_bytes(std::span(&each, 1)));
  ranks.all_gather(place, std::as_bytes(std::span(&own, 1)), rooms).wait();
  return all;
}

}  // namespace sotto
