#include "memory/checkpointing/chain_plan.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace sotto::memory {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Peak bytes, beyond the first block's input, of running blocks begin .. end - 1 for the result of
// the last.
std::size_t run_peak(const Chain& chain, int begin, int end) {
  std::size_t peak = 0;
  for (int j = begin; j < end; ++j)
    peak = std::max(peak, chain[at(j)].run + (j > begin ? chain[at(j)].input : 0));
  return peak;
}

template <class Member>
auto total(const Chain& chain, int begin, int end, Member member) {
  auto sum = chain[0].*member;
  sum = 0;
  for (int j = begin; j < end; ++j) sum += chain[at(j)].*member;
  return sum;
}

// Simulates the bytes in use, beyond the first part's input, while parts are recorded and backward
// then runs over them. `incoming` is the size of the gradient of the last result, which stays.
class Run {
 public:
  Run(const Chain& chain, std::size_t incoming) : chain_(chain), incoming_(incoming) {}

  void record(const ChainPart& part) {
    const ChainBlock& last = chain_[at(part.end - 1)];
    see(part.again ? run_peak(chain_, part.begin, part.end) : last.record, true);
    held_ += held_by(part);
    if (!part.again) return;
    work_ += total(chain_, part.begin, part.end, &ChainBlock::work) +
             of(chain_, part.parts, last.output, BackwardPasses::one).work_;
  }
  void back(const ChainPart& part) {
    held_ -= held_by(part);
    pass(part);
    held_ += total(chain_, part.begin, part.end, &ChainBlock::gradients);
    first_ = false;
  }
  // The first of two backwards, which frees no recorded value. A block's saved values are counted
  // within its `backward` bytes, except for its result, which counts with the next block.
  void back_and_keep(const std::vector<ChainPart>& parts) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const ChainBlock& block = chain_[at(part->begin)];
      const std::size_t own = part->again ? 0 : block.kept - std::min(block.kept, block.output);
      held_ -= own;
      pass(*part);
      held_ += own;
      first_ = false;
    }
    first_ = true;
  }
  std::size_t peak() const { return peak_; }
  double work() const { return work_; }

  static Run of(const Chain& chain, const std::vector<ChainPart>& parts, std::size_t incoming,
                BackwardPasses backwards) {
    Run run(chain, incoming);
    for (const ChainPart& part : parts) run.record(part);
    if (backwards == BackwardPasses::two) run.back_and_keep(parts);
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) run.back(*part);
    return run;
  }

 private:
  std::size_t held_by(const ChainPart& part) const {
    const ChainBlock& last = chain_[at(part.end - 1)];
    return part.again ? last.output : last.kept;
  }
  void pass(const ChainPart& part) {
    const ChainBlock& last = chain_[at(part.end - 1)];
    see(part.again ? of(chain_, part.parts, last.output, BackwardPasses::one).peak_ : last.backward,
        !first_);
  }
  // The incoming gradient is already counted in the last block's bytes.
  void see(std::size_t bytes, bool with_incoming) {
    peak_ = std::max(peak_, held_ + bytes + (with_incoming ? incoming_ : 0));
  }

  const Chain& chain_;
  std::size_t incoming_, held_ = 0, peak_ = 0;
  double work_ = 0;
  bool first_ = true;
};

void check_parts(const std::vector<ChainPart>& parts, int begin, int end) {
  for (const ChainPart& part : parts) {
    check(part.begin == begin && part.end > begin && part.end <= end,
          "chain: part {} .. {} does not continue the cover of {} .. {}", part.begin, part.end,
          begin, end);
    check(part.again || part.end == begin + 1,
          "chain: a part keeps {} blocks; only one can be kept", part.end - begin);
    if (part.again) check_parts(part.parts, part.begin, part.end);
    begin = part.end;
  }
  check(begin == end, "chain: blocks {} .. {} are in no part", begin, end);
}

// The dynamic programme: the least work for blocks s .. t - 1 with m slots of bytes beyond the
// input of s, for all s < t and m.
class Table {
 public:
  Table(const Chain& chain, std::size_t budget)
      : chain_(chain),
        size_(static_cast<int>(chain.size())),
        slot_(std::max<std::size_t>(budget / slots, 1)),
        most_(static_cast<int>(budget / slot_)) {
    const std::size_t cells = chain.size() * (chain.size() + 1) * at(most_ + 1);
    work_.assign(cells, impossible);
    first_.assign(cells, 0);
    for (int length = 1; length <= size_; ++length) {
      for (int s = 0; s + length <= size_; ++s) fill(s, s + length);
    }
  }

  bool feasible() const { return work(0, size_, most_) < impossible; }
  std::vector<ChainPart> parts() const { return parts(0, size_, most_); }

 private:
  static constexpr std::size_t slots = 500;

  // Rounded up: a plan that fits in slots fits in bytes.
  int slots_of(std::size_t bytes) const {
    return static_cast<int>(std::min<std::size_t>((bytes + slot_ - 1) / slot_, at(most_) + 1));
  }
  std::size_t cell(int s, int t, int m) const {
    return (at(s) * (chain_.size() + 1) + at(t)) * at(most_ + 1) + at(m);
  }
  double work(int s, int t, int m) const { return m < 0 ? impossible : work_[cell(s, t, m)]; }
  // The gradient that waits behind block t - 1; that of the whole chain counts with the last block.
  std::size_t incoming(int t) const { return t < size_ ? chain_[at(t - 1)].output : 0; }

  void offer(std::size_t where, double work, int first) {
    if (work >= work_[where]) return;
    work_[where] = work;
    first_[where] = first;
  }

  // Chooses the first part of blocks s .. t - 1: block s, kept, or the segment s .. k - 1,
  // recomputed.
  void fill(int s, int t) {
    const ChainBlock& block = chain_[at(s)];
    const bool last = t == s + 1;
    const int kept = slots_of(block.kept);
    const int need =
        slots_of(std::max(block.record + incoming(t),
                          block.backward + total(chain_, s + 1, t, &ChainBlock::gradients) +
                              (last ? 0 : incoming(t))));
    for (int m = need; m <= most_; ++m)
      offer(cell(s, t, m), last ? 0 : work(s + 1, t, m - kept), s);
    for (int k = s + 1; k < t; ++k) fill_segment(s, k, t);
  }

  void fill_segment(int s, int k, int t) {
    const double again = total(chain_, s, k, &ChainBlock::work);
    const int need = slots_of(run_peak(chain_, s, k) + incoming(t)), left = left_slots(k),
              waiting = waiting_slots(k, t);
    for (int m = need; m <= most_; ++m)
      offer(cell(s, t, m), again + work(k, t, m - left) + work(s, k, m - waiting), k);
  }
  int left_slots(int k) const { return slots_of(chain_[at(k - 1)].output); }
  int waiting_slots(int k, int t) const {
    return slots_of(total(chain_, k, t, &ChainBlock::gradients) + incoming(t));
  }

  std::vector<ChainPart> parts(int s, int t, int m) const {
    std::vector<ChainPart> all;
    while (s < t) {
      const int k = first_[cell(s, t, m)];
      if (k == s) {
        all.push_back({s, s + 1});
        m -= slots_of(chain_[at(s)].kept);
        ++s;
      } else {
        all.push_back({s, k, true, parts(s, k, m - waiting_slots(k, t))});
        m -= left_slots(k);
        s = k;
      }
    }
    return all;
  }

  const Chain& chain_;
  int size_;
  std::size_t slot_;
  int most_;
  std::vector<double> work_;
  std::vector<int> first_;
};

// Returns a budget within 1/256 above the smallest that has a plan; `enough` has one.
std::size_t min_budget(const Chain& chain, std::size_t enough) {
  std::size_t low = 0, high = enough;
  while (high - low > 1 + high / 256) {
    const std::size_t middle = low + (high - low) / 2;
    (Table(chain, middle).feasible() ? high : low) = middle;
  }
  return high;
}

}  // namespace

ChainPlan evaluated(const Chain& chain, std::vector<ChainPart> parts, BackwardPasses backwards) {
  check(!chain.empty(), "chain: no blocks");
  check_parts(parts, 0, static_cast<int>(chain.size()));
  const Run run = Run::of(chain, parts, 0, backwards);
  return {std::move(parts), run.peak(), run.work()};
}

ChainPlan plan_chain(const Chain& chain, std::size_t budget, BackwardPasses backwards) {
  check(!chain.empty(), "chain: no blocks");
  const int size = static_cast<int>(chain.size());
  ChainPlan best{.work = impossible};
  std::size_t min = std::numeric_limits<std::size_t>::max();
  const auto offer = [&](std::vector<ChainPart> parts) {
    ChainPlan plan = evaluated(chain, std::move(parts), backwards);
    min = std::min(min, plan.peak);
    if (plan.peak <= budget && plan.work < best.work) best = std::move(plan);
  };
  const auto offer_within = [&](std::size_t bytes) {
    const Table table(chain, bytes);
    if (!table.feasible()) return;
    offer(table.parts());
    // One segment around everything: the first of two backwards then frees all it has passed.
    if (backwards == BackwardPasses::two) offer({{0, size, true, table.parts()}});
  };
  std::vector<ChainPart> kept;
  for (int s = 0; s < size; ++s) kept.push_back({s, s + 1});
  offer(kept);
  if (best.work == 0) return best;
  // Two passes need more bytes than the one pass that the table plans for, so smaller budgets are
  // tried, too.
  constexpr std::size_t steps = 32;
  offer_within(budget);
  for (std::size_t k = 1; k < steps && backwards == BackwardPasses::two; ++k)
    offer_within(budget - budget / steps * k);
  if (best.work == impossible) offer_within(min_budget(chain, 2 * min));
  check(best.work < impossible,
        "chain: no plan fits into {} bytes; the smallest found needs {} bytes", budget, min);
  return best;
}

}  // namespace sotto::memory
