#include "nn/data/batch_loader.h"

#include <algorithm>
#include <deque>
#include <future>
#include <utility>
#include <vector>

#include "core/cuda/upload.h"

namespace sotto {

namespace {

// The rows that batches were announced to have, in order.
class AnnouncedRows {
 public:
  AnnouncedRows() = default;
  AnnouncedRows(std::span<const std::int64_t> rows, std::span<const std::int64_t> then)
      : rows_(rows.begin(), rows.end()), then_(then.begin(), then.end()) {}

  // Returns the rows that probably follow these; empty if these are not among the announced rows.
  std::span<const std::int64_t> expected_after(std::span<const std::int64_t> rows);

 private:
  std::vector<std::int64_t> rows_, then_;
  std::size_t begin_ = 0, at_ = 0;  // where the last physical batch begins and ends in rows_
  std::size_t largest_ = 0;         // the largest physical batch so far
};

std::span<const std::int64_t> AnnouncedRows::expected_after(std::span<const std::int64_t> rows) {
  // These rows follow the last physical batch; or, after running out of memory, repeat its start or
  // that of the whole batch.
  for (const std::size_t place : {at_, begin_, std::size_t{0}}) {
    const auto left = std::span<const std::int64_t>(rows_).subspan(std::min(place, rows_.size()));
    if (rows.empty() || left.size() < rows.size() ||
        !std::equal(rows.begin(), rows.end(), left.begin())) {
      continue;
    }
    largest_ = place == at_ ? std::max(largest_, rows.size()) : rows.size();
    begin_ = place;
    at_ = place + rows.size();
    const auto next =
        at_ < rows_.size() ? left.subspan(rows.size()) : std::span<const std::int64_t>(then_);
    return next.first(std::min(largest_, next.size()));
  }
  return {};
}

// A batch on its way to the device.
struct Slot {
  std::vector<std::int64_t> rows;
  std::deque<Upload> uploads;  // one for each tensor, in the order of Dataset::map
  std::future<void>
      gathered;  // last member: waits in its destructor before the members that it writes to go
};

void gather(const Dataset& data, Slot& slot) {
  auto upload = slot.uploads.begin();
  data.map([&](const Tensor& x) {
    copy_rows(x, slot.rows, upload->room());
    (upload++)->send();
    return x;
  });
}

// Fills a slot, by another thread or at gathered.get().
void fill(const Dataset& data, Slot& slot, std::span<const std::int64_t> rows, bool by_a_thread) {
  if (slot.gathered.valid()) slot.gathered.wait();
  slot.rows.assign(rows.begin(), rows.end());
  const auto shape = [&](const Tensor& x) {
    Shape shape = x.shape();
    shape[0] = std::ssize(rows);
    return shape;
  };
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::data;
  const LabelScope scope(label);
  // The inputs, which are larger, last: if they do not fit, only the targets were allocated in
  // vain.
  auto upload = slot.uploads.begin();
  data.map([&](const Tensor& x) {
    (upload++)->begin(shape(x), x.dtype());
    return x;
  });
  slot.gathered = std::async(by_a_thread ? std::launch::async : std::launch::deferred,
                             [&data, &slot] { gather(data, slot); });
}

}  // namespace

class BatchLoader::Prefetcher {
 public:
  Prefetcher(const Dataset& data, Device device);
  void announce(AnnouncedRows announced) { announced_ = std::move(announced); }
  Dataset batch(std::span<const std::int64_t> rows);
  std::int64_t hits() const { return hits_; }

 private:
  const Dataset& data_;
  Slot slots_[2];       // used alternately
  int turn_ = 0;        // the slot of the next batch
  bool ahead_ = false;  // whether that slot is being prefetched
  AnnouncedRows announced_;
  std::int64_t hits_ = 0;
};

BatchLoader::Prefetcher::Prefetcher(const Dataset& data, Device device) : data_(data) {
  for (Slot& slot : slots_) {
    for (std::size_t i = 0; i < 2 + data.fields.size(); ++i) slot.uploads.emplace_back(device);
  }
}

Dataset BatchLoader::Prefetcher::batch(std::span<const std::int64_t> rows) {
  data_.check_rows(rows);
  Slot& now = slots_[turn_];
  // A physical batch may be a little smaller than the one that was prefetched.
  const bool hit = ahead_ && now.rows.size() >= rows.size() &&
                   std::equal(rows.begin(), rows.end(), now.rows.begin());
  ahead_ = false;
  if (hit) ++hits_;
  if (!hit) fill(data_, now, rows, /*by_a_thread=*/false);
  now.gathered.get();
  auto upload = now.uploads.begin();
  Dataset batch = data_.map([&](const Tensor&) { return (upload++)->arrive(); });
  turn_ = 1 - turn_;
  if (const auto next = announced_.expected_after(rows); !next.empty()) {
    try {
      data_.check_rows(next);
      fill(data_, slots_[turn_], next, /*by_a_thread=*/true);
      ahead_ = true;
    } catch (const std::exception&) {
      // The computation needs the memory, or the rows are wrong: batch() will report that.
      announced_ = {};
    }
  }
  batch = batch.map([&](const Tensor& x) { return x.slice(0, 0, std::ssize(rows)); });
  batch.units = data_.units_of(rows);
  return batch;
}

class BatchLoader::Producer {
 public:
  Producer(BatchSource source, Device device) : source_(std::move(source)), device_(device) {}
  void announce(AnnouncedRows announced) { announced_ = std::move(announced); }
  Dataset batch(std::span<const std::int64_t> rows);
  std::int64_t hits() const { return hits_; }

 private:
  Dataset made(std::span<const std::int64_t> rows) const;

  BatchSource source_;
  Device device_;
  AnnouncedRows announced_;
  std::vector<std::int64_t> rows_;  // of next_
  std::int64_t hits_ = 0;
  std::future<Dataset>
      next_;  // last member: waits in its destructor before the members that it reads go
};

Dataset BatchLoader::Producer::made(std::span<const std::int64_t> rows) const {
  Dataset batch = source_(rows);
  check(batch.size() == std::ssize(rows), "BatchLoader: the source made {} samples for {} rows",
        batch.size(), rows.size());
  return batch;
}

Dataset BatchLoader::Producer::batch(std::span<const std::int64_t> rows) {
  const bool hit = next_.valid() && rows_.size() >= rows.size() &&
                   std::equal(rows.begin(), rows.end(), rows_.begin());
  if (hit) ++hits_;
  std::future<Dataset> ahead = std::move(next_);
  if (!hit && ahead.valid()) ahead.wait();
  const Dataset batch = hit ? ahead.get().slice(0, std::ssize(rows)) : made(rows);
  if (const auto next = announced_.expected_after(rows); !next.empty()) {
    rows_.assign(next.begin(), next.end());
    next_ = std::async(std::launch::async, [this] { return made(rows_); });
  }
  Dataset there = batch.map([&](const Tensor& x) { return x.to(device_); });
  there.units = batch.units;
  return there;
}

BatchLoader::BatchLoader(const Dataset& data, Device device) : data_(&data) {
  if (device != cpu) prefetcher_ = std::make_unique<Prefetcher>(data, device);
}

BatchLoader::BatchLoader(BatchSource source, Device device)
    : producer_(std::make_unique<Producer>(std::move(source), device)) {}

BatchLoader::~BatchLoader() = default;

void BatchLoader::prefetch(std::span<const std::int64_t> rows, std::span<const std::int64_t> then) {
  if (producer_) return producer_->announce({rows, then});
  if (prefetcher_) prefetcher_->announce({rows, then});
  data_->read_ahead(rows);
}

Dataset BatchLoader::batch(std::span<const std::int64_t> rows) {
  if (producer_) return producer_->batch(rows);
  if (prefetcher_) return prefetcher_->batch(rows);
  data_->read_ahead(rows);
  return data_->batch(rows);
}

std::int64_t BatchLoader::hits() const {
  if (producer_) return producer_->hits();
  return prefetcher_ ? prefetcher_->hits() : 0;
}

}  // namespace sotto
