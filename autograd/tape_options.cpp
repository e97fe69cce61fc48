#include "autograd/tape_options.h"

#include "core/cuda/capture.h"
#include "core/error.h"

namespace sotto {

std::uint64_t TapeOptions::sample_id(std::int64_t sample) const {
  refuse_capture("public randomness, which the host numbers (dropout)");
  if (rows.empty()) return static_cast<std::uint64_t>(first_row + sample);
  check(sample < std::ssize(rows), "tape: sample {} of {} rows", sample, rows.size());
  return static_cast<std::uint64_t>(rows[static_cast<std::size_t>(sample)]);
}

}  // namespace sotto
