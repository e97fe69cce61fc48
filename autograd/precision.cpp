#include "autograd/precision.h"

#include <algorithm>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/parameter.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op cast_op("cast", {.captures = Op::Captures::shared, .batchable = true});

// The common type of two: f32 for two different ones.
Dtype wider(Dtype a, Dtype b) { return a == b ? a : Dtype::f32; }

bool any_float(const std::vector<const Var*>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const Var* x) { return x && is_float(x->dtype()); });
}

// The type of the inputs, of the batched ones if there are any; nullopt for f64 or if no input is
// batched.
std::optional<Dtype> type_of_inputs(const std::vector<const Var*>& inputs) {
  std::optional<Dtype> with_samples, any;
  bool samples = false;
  for (const Var* x : inputs) {
    if (!x) continue;
    samples = samples || !x->samples().is_shared();
    if (!is_float(x->dtype())) continue;
    if (x->dtype() == Dtype::f64) return std::nullopt;
    const auto join = [&](std::optional<Dtype>& type) {
      type = wider(x->dtype(), type.value_or(x->dtype()));
    };
    join(any);
    if (!x->samples().is_shared()) join(with_samples);
  }
  if (!samples) return std::nullopt;
  return with_samples ? with_samples : any;
}

}  // namespace

std::optional<Dtype> dtype_for(const Op& op, const std::vector<const Var*>& inputs) {
  const auto batch_dims =
      std::find_if(inputs.begin(), inputs.end(), [](const Var* x) { return x; });
  if (batch_dims == inputs.end()) return std::nullopt;
  const std::optional<Dtype> precision = (*batch_dims)->tape().precision();
  if (!precision) return std::nullopt;
  if (precision == Dtype::f64) return any_float(inputs) ? precision : std::nullopt;
  const std::optional<Dtype> type = type_of_inputs(inputs);
  if (!type) return std::nullopt;
  switch (op.precision) {
    case Op::Precision::lower: return precision;
    case Op::Precision::f32: return Dtype::f32;
    case Op::Precision::promote: break;
  }
  return precision == Dtype::f32 ? precision : type;
}

void cast_inputs(const Op& op, const std::vector<Var*>& inputs) {
  const std::optional<Dtype> dtype = dtype_for(op, {inputs.begin(), inputs.end()});
  if (!dtype) return;
  for (Var* x : inputs) {
    if (x && is_float(x->dtype())) *x = cast(*x, *dtype);
  }
}

Var cast(const Var& x, Dtype dtype) {
  check(is_float(x.dtype()) && is_float(dtype),
        "cast: {} to {} is not between floating-point types", name(x.dtype()), name(dtype));
  if (x.tape().precision() == Dtype::f64) dtype = Dtype::f64;
  if (x.dtype() == dtype) return x;
  std::vector<Var>& known = x.tape().casts_;
  for (std::size_t i = 0; i + 1 < known.size(); i += 2) {
    if (known[i].is(x) && known[i + 1].dtype() == dtype) return known[i + 1];
  }
  const Dtype from = x.dtype();
  // f16 and bf16 factors represent f32 numbers exactly, so a per-sample gradient passes unchanged.
  Tape::PullBack same;
  if (from != Dtype::f64 && dtype != Dtype::f64)
    same = [](const PerSampleGrad& gradient) { return gradient; };
  const Var y = x.tape().record(
      cast_op, {x}, value_in(x, dtype), x.samples(),
      [from](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, to_dtype(dy, from)); }, same);
  // Only the last batched value is cached: several products often share one operand.
  if (!x.samples().is_shared() && !known.empty() && !known.front().samples().is_shared())
    known.erase(known.begin(), known.begin() + 2);
  known.insert(x.samples().is_shared() ? known.end() : known.begin(), {x, y});
  return y;
}

namespace {

thread_local CastsTogether* together = nullptr;

MemoryLabel label_of_casts() {
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::activation;
  label.op = cast_op.name;
  return label;
}

}  // namespace

CastsTogether::CastsTogether(Tape& tape, Device device,
                             const std::unordered_set<const Parameter*>& all, Parameters& converted)
    : tape_(tape), dtype_(tape.precision().value_or(Dtype::f32)), converted_(converted) {
  if (device != cpu && is_16bit(dtype_)) {
    for (const Parameter* parameter : all) {
      const Tensor& value = parameter->value;
      if (parameter->trainable && value.device() == device)
        known_.emplace(value.view().data, Known{parameter, value});
    }
    convert_ahead(all);
  }
  together = this;
}

CastsTogether::~CastsTogether() {
  together = nullptr;
  if (!known_.empty()) converted_ = std::move(wanted_);
}

// Values that the tape has converted already are not converted again, but count as used.
void CastsTogether::convert_ahead(const std::unordered_set<const Parameter*>& all) {
  std::unordered_set<const Known*> on_tape;
  for (const Var& x : tape_.casts_) on_tape.insert(find(x.value()));
  const LabelScope scope(label_of_casts());
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const Parameter* parameter : converted_) {
    Known* const known = all.contains(parameter) ? find(parameter->value) : nullptr;
    if (known == nullptr || known->value.dtype() == dtype_) continue;
    if (on_tape.contains(known)) {
      take(known->value);
      continue;
    }
    known->converted = Tensor::empty_ordered(known->value.shape(), known->value.memory_order(),
                                             dtype_, known->value.device());
    pairs.emplace_back(known->value, known->converted);
  }
  copy_all(pairs);
}

// The parameter that is this value, or that this value is a reshaped view of.
CastsTogether::Known* CastsTogether::find(const Tensor& value) {
  const auto found = known_.find(value.view().data);
  if (found == known_.end()) return nullptr;
  const Tensor& own = found->second.value;
  const bool same = value.shape() == own.shape() && value.strides() == own.strides(),
             reshaped = value.numel() == own.numel() && value.contiguous() && own.contiguous();
  return value.dtype() == own.dtype() && (same || reshaped) ? &found->second : nullptr;
}

// Returns the value converted, or an undefined tensor; notes that the conversion was used.
Tensor CastsTogether::take(const Tensor& value) {
  Known* const known = find(value);
  if (known == nullptr) return {};
  if (!std::exchange(known->wanted, true)) wanted_.push_back(known->parameter);
  const Tensor converted = std::exchange(known->converted, Tensor());
  if (!converted.defined()) return {};
  converted.relabel(label_of_casts());
  return value.shape() == converted.shape() ? converted : reshape(converted, value.shape());
}

Tensor value_in(const Var& x, Dtype dtype) {
  Tensor ahead;
  if (together != nullptr && &x.tape() == &together->tape_ && dtype == together->dtype_)
    ahead = together->take(x.value());
  return ahead.defined() ? ahead : to_dtype(x.value(), dtype);
}

Var to_f32(const Var& x) {
  return x.tape().precision() && is_16bit(x.dtype()) ? cast(x, Dtype::f32) : x;
}

void check_precision(const char* what, Dtype precision) {
  check(precision == Dtype::f32 || is_16bit(precision),
        "{}: the precision {} is not f32, f16 or bf16", what, name(precision));
}

PrecisionRegion::PrecisionRegion(Tape& tape, Dtype precision)
    : tape_(tape), before_(tape.state_.precision) {
  check_precision("tape", precision);
  if (before_ != Dtype::f64) tape.state_.precision = precision;
}

PrecisionRegion::~PrecisionRegion() { tape_.state_.precision = before_; }

}  // namespace sotto
