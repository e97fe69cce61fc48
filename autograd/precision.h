// Mixed precision (Micikevicius et al. 2018): where a tape asks for 16 bits, products and what
// follows them compute on 16-bit values, and what loses by it stays in f32. Which operation does
// what is one table, in precision.cpp. Parameters stay as they are: an operation takes a 16-bit
// copy, and the gradient comes back in f32. Values in f64 are left alone.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace sotto {

// What an operation does on a tape with a precision.
enum class Width {
  narrow,   // computes on values of that precision
  wide,     // computes on f32
  follows,  // computes on what its batched inputs are; shared ones are converted to it
};
// Of an operation by its name; operations that the table does not have follow their inputs.
Width width_of(const char* op);
// The operations of the table.
std::vector<const char*> ops_with_width();

// The type that an operation is to compute in: nothing where its inputs stay as they are, which is
// so on a tape without a precision, where one of them is f64, and where none has samples: what is
// computed from parameters alone is small, and stays wide. Inputs that are not floating-point, and
// nullptr, say nothing but whether there are samples.
std::optional<Dtype> dtype_for(const Op& op, const std::vector<const Var*>& inputs);
// Replaces the floating-point inputs by values of that type; nullptr is passed over.
void cast_inputs(const Op& op, const std::vector<Var*>& inputs);

// The values as another floating-point type, and their gradient in the type of x. A shared value is
// converted once for a tape; its per-sample gradient keeps its form. x itself where it has the
// type.
Var cast(const Var& x, Dtype dtype);
// f16 and bf16 as f32 on a tape with a precision, for sums and losses; anything else as it is.
Var to_f32(const Var& x);

// Throws std::invalid_argument, naming `what`, for another type than f32, f16 and bf16.
void check_precision(const char* what, Dtype precision);

// A tape's precision for as long as this lives, then again what it was. f32 means that everything
// is computed in f32. Throws as check_precision().
class PrecisionRegion {
 public:
  PrecisionRegion(Tape& tape, Dtype precision);
  PrecisionRegion(const PrecisionRegion&) = delete;
  PrecisionRegion& operator=(const PrecisionRegion&) = delete;
  ~PrecisionRegion();

 private:
  Tape& tape_;
  std::optional<Dtype> before_;
};

}  // namespace sotto
