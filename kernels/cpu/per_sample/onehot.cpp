// Inner products of the gradients of embedding tables, whose rows are sums over positions with
// equal ids.
#include <algorithm>
#include <bit>
#include <vector>

#include "core/threads/parallel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/per_sample/dot.h"

namespace sotto {

namespace {

// The slot of an id by Knuth's multiplicative hashing; the number of slots is a power of two.
std::size_t hashed(std::int64_t id, std::size_t slots) {
  constexpr std::uint64_t golden = 0x9E3779B97F4A7C15u;
  return (static_cast<std::uint64_t>(id) * golden) >> (64 - std::countr_zero(slots));
}

// Counts the ids of one sample after the other: a hash table with open addressing, at most half
// full. Slots store the sample they were filled for, so that the table is never cleared.
class IdCounts {
 public:
  explicit IdCounts(std::int64_t positions)
      : slots_(std::bit_ceil(2 * static_cast<std::uint64_t>(positions) + 2)) {}

  // The sum of the squared counts of the ids; negative ids do not count.
  double sum_of_squares(const std::int64_t* ids, std::int64_t count) {
    const std::size_t mask = slots_.size() - 1;
    std::int64_t sum = 0;
    ++sample_;
    for (std::int64_t t = 0; t < count; ++t) {
      if (ids[t] < 0) continue;
      std::size_t at = hashed(ids[t], slots_.size());
      while (slots_[at].sample == sample_ && slots_[at].id != ids[t]) at = (at + 1) & mask;
      Slot& slot = slots_[at];
      if (slot.sample != sample_) slot = {ids[t], sample_, 0};
      sum += 2 * slot.times++ + 1;  // (k + 1)^2 - k^2
    }
    return static_cast<double>(sum);
  }

 private:
  struct Slot {
    std::int64_t id = 0, sample = 0, times = 0;
  };
  std::vector<Slot> slots_;
  std::int64_t sample_ = 0;
};

// The nonzero rows of one sample's gradient, found by id: a hash table with open addressing, at
// most half full.
class TableRows {
 public:
  TableRows(std::int64_t positions, std::int64_t width)
      : width_(width),
        slots_(std::bit_ceil(2 * static_cast<std::uint64_t>(positions) + 2)),
        ids_(static_cast<std::size_t>(positions)),
        rows_(static_cast<std::size_t>(positions * width)) {}

  // Sums b over equal ids; the row of each position is `step` elements after the previous one.
  template <class T>
  void collect(const std::int64_t* ids, const T* b, std::int64_t step) {
    std::fill(slots_.begin(), slots_.end(), empty);
    count_ = 0;
    for (std::size_t t = 0; t < ids_.size(); ++t, b += step) {
      if (ids[t] < 0) continue;
      std::int32_t& found = slot(ids[t]);
      const bool fresh = found == empty;
      if (fresh) ids_[static_cast<std::size_t>(found = count_++)] = ids[t];
      double* row = rows_.data() + found * width_;
      for (std::int64_t k = 0; k < width_; ++k) {
        const auto value = static_cast<double>(acc_t<T>(b[k]));
        row[k] = fresh ? value : row[k] + value;
      }
    }
  }

  // The squared norm of all rows.
  double squared_norm() const { return dot(rows_.data(), rows_.data(), count_ * width_); }

  // The inner product with the gradient of `count` other positions.
  template <class T>
  double dot_with(const std::int64_t* ids, std::int64_t count, const T* b, std::int64_t step) {
    double sum = 0;
    for (std::int64_t t = 0; t < count; ++t, b += step) {
      const double* row = ids[t] < 0 ? nullptr : this->row(ids[t]);
      if (!row) continue;
      sum += sum_terms(width_, [row, b](std::int64_t k) {
        return row[k] * static_cast<double>(acc_t<T>(b[k]));
      });
    }
    return sum;
  }

 private:
  static constexpr std::int32_t empty = -1;

  // The row of an id; nullptr if no position had it.
  const double* row(std::int64_t id) {
    const std::int32_t found = slot(id);
    return found == empty ? nullptr : rows_.data() + found * width_;
  }

  std::int32_t& slot(std::int64_t id) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hashed(id, slots_.size());
    while (slots_[at] != empty && ids_[static_cast<std::size_t>(slots_[at])] != id)
      at = (at + 1) & mask;
    return slots_[at];
  }

  std::int64_t width_;
  std::int32_t count_ = 0;
  std::vector<std::int32_t> slots_;
  std::vector<std::int64_t> ids_;
  std::vector<double> rows_;
};

}  // namespace

void CpuBackend::onehot_dot(View ids1, View b1, View ids2, View b2, View y) {
  const std::int64_t s_count = ids1.size[1];
  const std::int64_t t_count = ids2.size[1];
  const std::int64_t width = b1.size[2];
  const std::int64_t step1 = b1.size[1] == s_count ? width : 0;
  const std::int64_t step2 = b2.size[1] == t_count ? width : 0;
  const bool itself = ids1.data == ids2.data && b1.data == b2.data;
  const auto ids_of = [](View ids, std::int64_t n) {
    return ids.as<std::int64_t>() + n * ids.size[1];
  };
  const std::int64_t grain = product_grain((s_count + t_count) * width);
  dispatch_float(b1.dtype, [&]<class T>(std::type_identity<T>) {
    const auto grads = [width](View b, std::int64_t n) {
      return b.as<T>() + n * b.size[1] * width;
    };
    // If all positions share one row, the counts of the ids determine the norm.
    const auto by_counts = [&](std::int64_t begin, std::int64_t end) {
      IdCounts counts(s_count);
      for (std::int64_t n = begin; n < end; ++n)
        y.as<double>()[n] = counts.sum_of_squares(ids_of(ids1, n), s_count) *
                            dot(grads(b1, n), grads(b1, n), width);
    };
    const auto by_rows = [&](std::int64_t begin, std::int64_t end) {
      TableRows rows(s_count, width);
      for (std::int64_t n = begin; n < end; ++n) {
        rows.collect(ids_of(ids1, n), grads(b1, n), step1);
        y.as<double>()[n] = itself ? rows.squared_norm()
                                   : rows.dot_with(ids_of(ids2, n), t_count, grads(b2, n), step2);
      }
    };
    if (itself && step1 == 0) {
      parallel_for(ids1.size[0], grain, by_counts);
    } else {
      parallel_for(ids1.size[0], grain, by_rows);
    }
  });
}

}  // namespace sotto
