#include "multilevel/pass.h"

#include <algorithm>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::multilevel {

void DetachedValues::set(Mode mode) {
  mode_ = mode;
  if (mode != Mode::replay) calls_.clear();
}

Tensor DetachedValues::value(std::size_t call, std::int64_t first, const Var& x) {
  used_ = true;
  if (mode_ == Mode::replay) {
    check(call < calls_.size(), "detach: call {}, where an earlier pass made {}", call,
          calls_.size());
    return replayed(calls_[call], first, x);
  }
  if (mode_ == Mode::record) {
    if (call >= calls_.size()) calls_.resize(call + 1);
    calls_[call].push_back({first, x.value()});
  }
  return x.value();
}

// Rows that were recorded in other physical batches than x's are put together again.
Tensor DetachedValues::replayed(const std::vector<Piece>& pieces, std::int64_t first,
                                const Var& x) const {
  std::vector<Tensor> parts;
  std::int64_t at = first;
  const int axis = x.samples().batched() ? x.samples().axis() : 0;
  const std::int64_t rows = x.samples().batched() ? x.value().size(axis) : 0;
  for (const Piece& piece : pieces) {
    if (!x.samples().batched() || x.tape().views(x) > 1) {
      if (piece.first == first && piece.value.shape() == x.shape()) return piece.value;
      continue;
    }
    const std::int64_t begin = at - piece.first;
    const std::int64_t end = std::min(first + rows - piece.first, piece.value.size(axis));
    if (begin < 0 || begin >= end) continue;
    parts.push_back(piece.value.slice(axis, begin, end));
    at += end - begin;
  }
  check(at == first + rows && !parts.empty(),
        "detach: a value {} of rows from {} on that was not computed so before", x.shape(), first);
  return parts.size() == 1 ? parts[0] : concat(parts, axis);
}

Var Pass::detach(const Var& x) {
  check(&x.tape() == &tape, "detach: inside a segment; detach its inputs or its results");
  const Tensor value = detached_.value(calls_++, first_, x);
  if (!x.samples().batched()) return tape.constant(value, x.samples());
  return tape.input_views(value, tape.views(x), x.samples().axis());
}

}  // namespace sotto::multilevel
