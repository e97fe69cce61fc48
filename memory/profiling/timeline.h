// What was in use on a device at every moment, and whose it was: records each allocation and
// release, and answers for the curve, the peak and the phases of a step.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/allocator/allocator.h"

namespace sotto::memory {

struct TimelineOptions {
  Device device = cpu;
  // Released blocks that are remembered; of more, the oldest are forgotten, and the record
  // begins later. About 100 bytes each.
  std::size_t capacity = std::size_t{1} << 16;
};

class Timeline final : public AllocationObserver {
 public:
  // Records from now on. Throws std::invalid_argument when the device is not there.
  explicit Timeline(const TimelineOptions& options = {});
  ~Timeline() override;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Records no more; what was recorded stays.
  void stop();
  // Forgets what was released so far: the record begins here.
  void restart();

  // The bytes of one owner at each moment of a curve. The label has no phase.
  struct Band {
    MemoryLabel label;
    std::vector<std::size_t> bytes;
    std::size_t most() const;
  };
  struct Curve {
    std::vector<double> seconds;  // since the record begins, rising
    std::vector<Band> bands;      // by kind, within it in the order of first use
    std::vector<std::size_t> totals() const;
  };
  // At most `points` moments, or nearly: of each stretch of time the one with most in use. Their
  // largest total is the peak.
  Curve curve(std::size_t points = 1000) const;

  struct Share {
    std::string name;
    std::size_t bytes;
  };
  // What was in use when most was: the largest first, without what had nothing.
  std::vector<Share> peak_by(MemoryAxis axis) const;
  // The same by whole labels.
  std::vector<std::pair<MemoryLabel, std::size_t>> peak_labels() const;
  std::size_t peak() const;
  // In use when the record begins.
  std::size_t first() const;

  struct Phase {
    std::string name;
    std::size_t peak;       // most bytes in use on the device while the phase allocated
    std::size_t allocated;  // bytes, all together
    std::int64_t blocks;
  };
  // In the order in which they first allocated something.
  std::vector<Phase> phases() const;
  // Whether older blocks were forgotten for want of room.
  bool forgot() const;

  void allocated(const Block& block) override;
  void released(const Block& block) override;
  void relabelled(std::uint64_t serial, const MemoryLabel& label) override;

 private:
  struct Moment {
    std::uint64_t tick = 0;  // how many events were before
    double seconds = 0;
  };
  struct Record {
    MemoryLabel label;
    std::size_t bytes;
    std::uint64_t serial;
    Moment from, to;
  };
  // A block comes or goes.
  struct Event {
    Moment at;
    const Record* record;
    bool comes;
  };

  // Every event in order. After `first` of them the record begins.
  struct Course {
    std::vector<Event> events;
    std::size_t first = 0;
    std::vector<std::size_t> totals() const;  // bytes in use after 0, 1, ... events
    std::size_t peak() const;                 // after how many events most was in use
    // After how many events a curve has its points, `from` being when the record begins.
    std::vector<std::size_t> moments(double from, std::size_t points) const;
  };

  Moment now();
  Course course() const;

  TimelineOptions options_;
  mutable std::mutex mutex_;
  bool running_ = true;
  std::chrono::steady_clock::time_point start_;
  std::uint64_t ticks_ = 0;
  Moment begin_;
  bool forgot_ = false;
  std::unordered_map<std::uint64_t, Record> in_use_;  // by serial
  std::deque<Record> released_;                       // in the order of release
};

}  // namespace sotto::memory
