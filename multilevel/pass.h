// One forward pass: the computation of a problem's loss on a tape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/tape.h"

namespace sotto::multilevel {

// The values of Pass::detach() in one batch, in the order of its calls.
class DetachedValues {
 public:
  enum class Mode {
    present,  // each pass has its own values
    record,   // the present values, which it stores
    replay,   // passes get the values that were kept
  };
  // Recording forgets earlier values.
  void set(Mode mode);
  // The value of x for rows first, first + 1, ... of the batch.
  Tensor value(std::size_t call, std::int64_t first, const Var& x);
  // True once a loss has called detach().
  bool used() const { return used_; }

 private:
  struct Piece {
    std::int64_t first;
    Tensor value;
  };
  Tensor replayed(const std::vector<Piece>& pieces, std::int64_t first, const Var& x) const;

  Mode mode_ = Mode::present;
  bool used_ = false;
  std::vector<std::vector<Piece>> calls_;
};

// The tape and the rows of a physical batch, which a problem's loss is computed from.
class Pass {
 public:
  // `first` is the place of rows[0] in the batch.
  Pass(Tape& tape, std::span<const std::int64_t> rows, std::int64_t first, DetachedValues& detached)
      : tape(tape), rows(rows), first_(first), detached_(detached) {}

  Tape& tape;                          // of this physical batch
  std::span<const std::int64_t> rows;  // their numbers in the data
  // The place of rows[0] in the batch.
  std::int64_t first() const { return first_; }

  // x as a constant, with derivative zero; where a response moves the parameters, it keeps the
  // value that it has at the parameters before. Throws std::invalid_argument inside a checkpointed
  // segment.
  Var detach(const Var& x);

 private:
  std::int64_t first_;
  DetachedValues& detached_;
  std::size_t calls_ = 0;
};

}  // namespace sotto::multilevel
