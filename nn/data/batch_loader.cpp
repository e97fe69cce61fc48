#include "nn/data/batch_loader.h"

#include <algorithm>
#include <deque>
#include <future>

#include "core/cuda/upload.h"

namespace sotto {

struct BatchLoader::Slot {
  std::vector<std::int64_t> rows;
  std::deque<Upload> uploads;  // one for each tensor, in the order of Dataset::map
  std::future<void> gathered;  // the last member: it ends before what it writes to
};

BatchLoader::~BatchLoader() = default;

BatchLoader::BatchLoader(const Dataset& data, Device device) : data_(data) {
  for (int k = 0; device != cpu && k < 2; ++k) {
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>());
    for (std::size_t i = 0; i < 2 + data.fields.size(); ++i) slot.uploads.emplace_back(device);
  }
}

void BatchLoader::prefetch(std::span<const std::int64_t> rows, std::span<const std::int64_t> then) {
  if (slots_.empty()) return;
  rows_.assign(rows.begin(), rows.end());
  then_.assign(then.begin(), then.end());
  begin_ = at_ = largest_ = 0;
}

Dataset BatchLoader::batch(std::span<const std::int64_t> rows) {
  if (slots_.empty()) return data_.batch(rows);
  data_.check_rows(rows);
  Slot& now = *slots_[turn_];
  // A physical batch may be a little smaller than the one that was prefetched.
  const bool hit = ahead_ && now.rows.size() >= rows.size() &&
                   std::equal(rows.begin(), rows.end(), now.rows.begin());
  ahead_ = false;
  if (hit) ++hits_;
  if (!hit) start(rows, /*by_a_thread=*/false);
  now.gathered.get();
  auto upload = now.uploads.begin();
  Dataset batch = data_.map([&](const Tensor&) { return (upload++)->arrive(); });
  turn_ = 1 - turn_;
  if (const auto next = expected_after(rows); !next.empty()) {
    try {
      data_.check_rows(next);
      start(next, /*by_a_thread=*/true);
      ahead_ = true;
    } catch (const std::exception&) {
      // The computation needs the memory, or the rows are wrong: batch() will report that.
      rows_.clear();
    }
  }
  batch = batch.map([&](const Tensor& x) { return x.slice(0, 0, std::ssize(rows)); });
  batch.units = data_.units_of(rows);
  return batch;
}

// Fills the slot of the next batch.
void BatchLoader::start(std::span<const std::int64_t> rows, bool by_a_thread) {
  Slot& slot = *slots_[turn_];
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
  data_.map([&](const Tensor& x) {
    (upload++)->begin(shape(x), x.dtype());
    return x;
  });
  slot.gathered = std::async(by_a_thread ? std::launch::async : std::launch::deferred,
                             [this, &slot] { gather(slot); });
}

void BatchLoader::gather(Slot& slot) const {
  auto upload = slot.uploads.begin();
  data_.map([&](const Tensor& x) {
    copy_rows(x, slot.rows, upload->room());
    (upload++)->send();
    return x;
  });
}

// Returns the rows that probably follow these; empty if these are not among the announced
// rows.
std::span<const std::int64_t> BatchLoader::expected_after(std::span<const std::int64_t> rows) {
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

}  // namespace sotto
