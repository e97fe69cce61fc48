// The bytes in use on a device over time, by owner: records each allocation and release, and
// computes the curve, the peak and the phases of a step.
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
  Device device = cpu;  // watched
  // The number of released blocks that are kept, about 100 bytes each; beyond it the oldest are
  // dropped, and the record begins later.
  std::size_t capacity = std::size_t{1} << 16;
};

// Records a device's memory: construct it, run steps, read curve(), peak_by() or phases().
class Timeline final : public AllocationObserver {
 public:
  // Starts recording. Throws std::invalid_argument when the device does not exist.
  explicit Timeline(const TimelineOptions& options = {});
  ~Timeline() override;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void stop();  // keeps the record
  // Drops the blocks released so far: the record begins now.
  void restart();

  // The bytes of one owner at each moment of a curve. Its label has no phase.
  struct Band {
    MemoryLabel label;               // of the owner
    std::vector<std::size_t> bytes;  // one for each moment
    std::size_t max() const;
  };
  struct Curve {
    std::vector<double> seconds;  // since the record begins, increasing
    std::vector<Band> bands;      // by kind; within a kind in the order of first use
    // The sums of all bands, one for each moment.
    std::vector<std::size_t> totals() const;
  };
  // The curve at about `points` moments: in each of as many equal spans of time, the moment with
  // most bytes in use. The largest total is the peak.
  Curve curve(std::size_t points = 1000) const;

  struct Share {
    std::string name;   // as in the label
    std::size_t bytes;  // at the peak
  };
  // The bytes in use at the peak, by one axis of the label, largest first, without zeros.
  std::vector<Share> peak_by(MemoryAxis axis) const;
  // The bytes in use at the peak, by whole label.
  std::vector<std::pair<MemoryLabel, std::size_t>> peak_labels() const;
  // The most bytes in use at once.
  std::size_t peak() const;
  // The bytes in use when the record begins.
  std::size_t first() const;

  // The allocations under one phase of the label.
  struct Phase {
    std::string name;       // as in the label
    std::size_t peak;       // peak of bytes in use on the device at the phase's allocations
    std::size_t allocated;  // sum of the bytes it allocated
    std::int64_t blocks;    // number of allocations
  };
  // The phases, in the order of their first allocation.
  std::vector<Phase> phases() const;
  // Returns whether older blocks were dropped to keep the capacity.
  bool forgot() const;

  void allocated(const Block& block) override;
  void released(const Block& block) override;
  void relabelled(std::uint64_t serial, const MemoryLabel& label) override;

 private:
  struct Moment {
    std::uint64_t tick = 0;  // the number of events before
    double seconds = 0;
  };
  struct Record {
    MemoryLabel label;
    std::size_t bytes;
    std::uint64_t serial;
    Moment from, to;
  };
  // The allocation or release of a block.
  struct Event {
    Moment at;
    const Record* record;
    bool comes;
  };

  // All events in order; the record begins after the first `first` of them.
  struct EventLog {
    std::vector<Event> events;
    std::size_t first = 0;
    std::vector<std::size_t> totals() const;  // bytes in use after 0, 1, ... events
    std::size_t peak() const;                 // number of events before the peak
    // The numbers of events before the points of a curve; `from` is the time when the record
    // begins.
    std::vector<std::size_t> moments(double from, std::size_t points) const;
  };

  Moment now();
  EventLog course() const;

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
