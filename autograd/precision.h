// Mixed precision (Micikevicius et al. 2018): on a tape with a 16-bit precision, each operation
// computes in the type that its Op::precision names. Products gain speed in 16 bits and accumulate
// in f32. Sums, powers, logarithms and functions with steep or unbounded derivatives exceed the
// range or the digits of 16 bits: they compute in f32. Normalisation computes its statistics in
// double, and so promotes; ScaleShift::writes_16bit makes it write 16 bits. A sum of f32 and 16
// bits reads both as they are. Parameters keep their type: an operation uses a 16-bit copy, and the
// gradient is f32. Values in f64 are not converted. On a tape with the precision f64, every
// operation computes in f64.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

// The type in which an operation computes. nullopt if its inputs are not converted: on a tape
// without a precision, and on one of 16 bits if an input is f64 or if no input is batched (values
// computed from parameters only are small and stay in f32). Inputs that are not floating-point, and
// nullptr, do not affect the type.
std::optional<Dtype> dtype_for(const Op& op, const std::vector<const Var*>& inputs);
// Converts the floating-point inputs to dtype_for(); skips nullptr.
void cast_inputs(const Op& op, const std::vector<Var*>& inputs);

// x in another floating-point type, or in f64 on a tape of that precision; x itself if it has that
// type. Its gradient has the type of x. A shared value is converted once per tape, and its
// per-sample gradient keeps its form, but for conversions from or to f64.
Var cast(const Var& x, Dtype dtype);
// The value of cast(), without a record.
Tensor value_in(const Var& x, Dtype dtype);
// f16 and bf16 as f32 on a tape with a precision, for sums and losses; other values unchanged.
Var to_f32(const Var& x);

// Throws std::invalid_argument, naming `what`, for a type other than f32, f16 and bf16.
void check_precision(const char* what, Dtype precision);

// While it lives, during a call of a model on a GPU, one launch converts all trainable parameters
// that the model's previous call converted to the tape's 16-bit precision; value_in() returns these
// copies. No such parameter may change meanwhile.
class CastsTogether {
 public:
  // In the order in which a call converted them.
  using Parameters = std::vector<const Parameter*>;
  // `all` are the model's parameters. `converted` lists those that its previous call converted; the
  // destructor replaces it by this call's.
  CastsTogether(Tape& tape, Device device, const std::unordered_set<const Parameter*>& all,
                Parameters& converted);
  CastsTogether(const CastsTogether&) = delete;
  CastsTogether& operator=(const CastsTogether&) = delete;
  ~CastsTogether();

 private:
  friend Tensor value_in(const Var& x, Dtype dtype);
  struct Known {
    const Parameter* parameter;
    Tensor value;  // kept, so that its address is no other tensor's
    Tensor converted = {};
    bool wanted = false;
  };
  Tensor take(const Tensor& value);
  void convert_ahead(const std::unordered_set<const Parameter*>& all);
  Known* find(const Tensor& value);

  Tape& tape_;
  Dtype dtype_;
  Parameters& converted_;
  Parameters wanted_;                             // in order
  std::unordered_map<const void*, Known> known_;  // by the value's address
};

// Sets a tape's precision while it lives; the destructor restores the previous one. f32 makes every
// operation compute in f32. A tape in f64 stays so. Throws as check_precision() does.
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
