// Runs the bodies of kernels on the host: in loops, or in teams of threads that wait for each
// other.
#pragma once

#include <array>
#include <barrier>
#include <cstdint>
#include <thread>

namespace sotto {

// Not a power of two, so that index arithmetic cannot rely on one.
inline constexpr int team_size = 3;

struct TeamShared {
  std::barrier<> barrier{team_size};
  std::array<double, team_size> values;
};

class HostTeam {
 public:
  HostTeam(TeamShared& shared, int rank) : shared_(shared), rank_(rank) {}
  int rank() const { return rank_; }
  static constexpr int size() { return team_size; }
  template <class F>
  double fold(F f, double x) const {
    shared_.values[static_cast<std::size_t>(rank_)] = x;
    shared_.barrier.arrive_and_wait();
    double sum = shared_.values[0];
    for (int i = 1; i < team_size; ++i) sum = f(sum, shared_.values[static_cast<std::size_t>(i)]);
    shared_.barrier.arrive_and_wait();
    return sum;
  }

 private:
  TeamShared& shared_;
  int rank_;
};

inline void run_each(std::int64_t count, const auto& f) {
  for (std::int64_t i = count - 1; i >= 0; --i) f(i);  // in reverse: the order is unspecified
}

inline void run_team(std::int64_t count, const auto& f) {
  TeamShared shared;
  std::array<std::jthread, team_size> threads;
  for (int rank = 0; rank < team_size; ++rank) {
    threads[static_cast<std::size_t>(rank)] = std::jthread([&shared, &f, count, rank] {
      for (std::int64_t i = 0; i < count; ++i) f(HostTeam(shared, rank), i);
    });
  }
}

}  // namespace sotto
