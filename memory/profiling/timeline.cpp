#include "memory/profiling/timeline.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace sotto::memory {

namespace {

// Labels that differ only in their phase have one owner.
using Owner = std::tuple<MemoryKind, std::string, std::string>;

Owner owner_of(const MemoryLabel& label) { return {label.kind, label.op_name(), label.module}; }

}  // namespace

Timeline::Timeline(const TimelineOptions& options)
    : options_(options), start_(std::chrono::steady_clock::now()) {
  allocator(options.device).add_watch(*this);
  restart();
}

Timeline::~Timeline() { stop(); }

void Timeline::stop() {
  if (std::exchange(running_, false)) allocator(options_.device).remove_watch(*this);
}

void Timeline::restart() {
  const std::lock_guard lock(mutex_);
  start_ = std::chrono::steady_clock::now();
  begin_ = {.tick = ticks_, .seconds = 0};
  released_.clear();
  for (auto& [serial, record] : in_use_) record.from = begin_;
  forgot_ = false;
}

Timeline::Moment Timeline::now() {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
  return {.tick = ++ticks_, .seconds = since.count()};
}

void Timeline::allocated(const Block& block) {
  const std::lock_guard lock(mutex_);
  in_use_.emplace(block.serial, Record{.label = block.label,
                                       .bytes = block.bytes,
                                       .serial = block.serial,
                                       .from = now(),
                                       .to = {}});
}

void Timeline::released(const Block& block) {
  const std::lock_guard lock(mutex_);
  auto node = in_use_.extract(block.serial);
  if (node.empty()) return;
  node.mapped().to = now();
  released_.push_back(node.mapped());
  if (released_.size() <= options_.capacity) return;
  begin_ = released_.front().to;
  forgot_ = true;
  released_.pop_front();
}

void Timeline::relabelled(std::uint64_t serial, const MemoryLabel& label) {
  const std::lock_guard lock(mutex_);
  if (const auto found = in_use_.find(serial); found != in_use_.end()) {
    found->second.label = label;
    return;
  }
  // The block was released a moment ago.
  const auto same = [&](const Record& record) { return record.serial == serial; };
  const auto found = std::find_if(released_.rbegin(), released_.rend(), same);
  if (found != released_.rend()) found->label = label;
}

Timeline::EventLog Timeline::course() const {
  EventLog course;
  std::vector<Event>& all = course.events;
  for (const auto& [serial, record] : in_use_) all.push_back({record.from, &record, true});
  for (const Record& record : released_) {
    all.push_back({record.from, &record, true});
    all.push_back({record.to, &record, false});
  }
  std::sort(all.begin(), all.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.at.tick, a.record->serial) < std::tuple(b.at.tick, b.record->serial);
  });
  const auto after = [&](const Event& event) { return event.at.tick > begin_.tick; };
  course.first =
      static_cast<std::size_t>(std::find_if(all.begin(), all.end(), after) - all.begin());
  return course;
}

std::vector<std::size_t> Timeline::EventLog::totals() const {
  std::vector<std::size_t> all{0};
  for (const Event& event : events)
    all.push_back(event.comes ? all.back() + event.record->bytes
                              : all.back() - event.record->bytes);
  return all;
}

std::size_t Timeline::EventLog::peak() const {
  const std::vector<std::size_t> all = totals();
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  return static_cast<std::size_t>(std::max_element(begin, all.end()) - all.begin());
}

std::vector<std::size_t> Timeline::EventLog::moments(double from, std::size_t points) const {
  const std::vector<std::size_t> all = totals();
  const double length = events.empty() ? 0 : events.back().at.seconds - from;
  std::vector<std::size_t> chosen{first};
  // of the last one chosen; the beginning of the record is a span of its own
  std::size_t stretch = 0;
  for (std::size_t k = first + 1; k < all.size(); ++k) {
    const double share = length > 0 ? (events[k - 1].at.seconds - from) / length : 0;
    const auto own = 1 + static_cast<std::size_t>(share * static_cast<double>(points));
    if (own != stretch) {
      chosen.push_back(k);
    } else if (all[k] > all[chosen.back()]) {
      chosen.back() = k;
    }
    stretch = own;
  }
  return chosen;
}

std::size_t Timeline::Band::max() const { return *std::max_element(bytes.begin(), bytes.end()); }

std::vector<std::size_t> Timeline::Curve::totals() const {
  std::vector<std::size_t> all(seconds.size());
  for (const Band& band : bands) {
    for (std::size_t k = 0; k < all.size(); ++k) all[k] += band.bytes[k];
  }
  return all;
}

Timeline::Curve Timeline::curve(std::size_t points) const {
  check(points >= 1, "Timeline: a curve of {} points", points);
  const std::lock_guard lock(mutex_);
  const EventLog course = this->course();
  const std::vector<std::size_t> chosen = course.moments(begin_.seconds, points);
  // Bands in the order of first use; sorted by kind below.
  std::map<Owner, std::size_t> places;
  Curve curve;
  std::vector<std::size_t> current;
  std::size_t applied = 0;
  for (const std::size_t moment : chosen) {
    for (; applied < moment; ++applied) {
      const auto& [at, record, comes] = course.events[applied];
      const auto [place, fresh] = places.emplace(owner_of(record->label), curve.bands.size());
      if (fresh) {
        MemoryLabel label = record->label;
        label.phase = no_text;
        curve.bands.push_back({label, std::vector<std::size_t>(curve.seconds.size())});
        current.push_back(0);
      }
      std::size_t& bytes = current[place->second];
      bytes = comes ? bytes + record->bytes : bytes - record->bytes;
    }
    curve.seconds.push_back(
        moment == course.first ? 0 : course.events[moment - 1].at.seconds - begin_.seconds);
    for (std::size_t k = 0; k < current.size(); ++k) curve.bands[k].bytes.push_back(current[k]);
  }
  std::stable_sort(curve.bands.begin(), curve.bands.end(),
                   [](const Band& a, const Band& b) { return a.label.kind < b.label.kind; });
  return curve;
}

std::vector<std::pair<MemoryLabel, std::size_t>> Timeline::peak_labels() const {
  const std::lock_guard lock(mutex_);
  const EventLog course = this->course();
  const std::size_t peak = course.peak();
  std::map<std::pair<Owner, std::string>, std::pair<MemoryLabel, std::size_t>> owners;
  for (std::size_t k = 0; k < peak; ++k) {
    const auto& [at, record, comes] = course.events[k];
    auto& [label, bytes] = owners[{owner_of(record->label), record->label.phase}];
    label = record->label;
    bytes = comes ? bytes + record->bytes : bytes - record->bytes;
  }
  std::vector<std::pair<MemoryLabel, std::size_t>> all;
  for (const auto& [owner, share] : owners) {
    if (share.second > 0) all.push_back(share);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return all;
}

std::vector<Timeline::Share> Timeline::peak_by(MemoryAxis axis) const {
  std::map<std::string, std::size_t> sums;
  for (const auto& [label, bytes] : peak_labels()) sums[part_of(label, axis)] += bytes;
  std::vector<Share> all;
  for (const auto& [name, bytes] : sums) all.push_back({name, bytes});
  std::stable_sort(all.begin(), all.end(),
                   [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  return all;
}

std::size_t Timeline::peak() const {
  const std::lock_guard lock(mutex_);
  const EventLog course = this->course();
  return course.totals()[course.peak()];
}

std::size_t Timeline::first() const {
  const std::lock_guard lock(mutex_);
  const EventLog course = this->course();
  return course.totals()[course.first];
}

std::vector<Timeline::Phase> Timeline::phases() const {
  const std::lock_guard lock(mutex_);
  const EventLog course = this->course();
  const std::vector<std::size_t> totals = course.totals();
  std::vector<Phase> phases;
  for (std::size_t k = course.first; k < course.events.size(); ++k) {
    const auto& [at, record, comes] = course.events[k];
    if (!comes) continue;
    const auto same = [&, record = record](const Phase& phase) {
      return phase.name == record->label.phase;
    };
    auto found = std::find_if(phases.begin(), phases.end(), same);
    if (found == phases.end()) found = phases.insert(found, {record->label.phase, 0, 0, 0});
    found->peak = std::max(found->peak, totals[k + 1]);
    found->allocated += record->bytes;
    ++found->blocks;
  }
  return phases;
}

bool Timeline::forgot() const {
  const std::lock_guard lock(mutex_);
  return forgot_;
}

}  // namespace sotto::memory
