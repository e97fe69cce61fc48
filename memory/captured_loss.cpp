#include "memory/captured_loss.h"

#include <algorithm>
#include <bit>

#include "autograd/ops/elementwise.h"
#include "autograd/sample_axis_rules.h"
#include "core/cuda/capture.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/planning/planner.h"

namespace sotto::memory {

namespace {

const Op captured_op("captured_loss");

using Uses = std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>>;

// What backward gives, to be read again after each replay: all uses of the parameters, or their
// sums alone. Who gets them afterwards bounds influence, or is refused by the tape that asks.
class Kept final : public GradSink {
 public:
  explicit Kept(bool sums) : sums_(sums) {}
  bool sums_only() const override { return sums_; }
  bool keeps() const override { return true; }
  bool bounds_influence() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    if (!sums_) return void(uses_.emplace_back(&parameter, std::move(uses)));
    Tensor total;
    for (const PerSampleGrad& use : uses)
      total = total.defined() ? add(total, use.sum()) : use.sum();
    uses_.emplace_back(&parameter, std::vector{PerSampleGrad::materialized(total.unsqueeze(0))});
  }
  // In the order of first use.
  Uses take() {
    std::reverse(uses_.begin(), uses_.end());
    return std::move(uses_);
  }

 private:
  bool sums_;
  Uses uses_;
};

// Bit by bit.
std::vector<std::uint64_t> bits_of(const Tensor& losses, const Uses& gradients) {
  std::vector<std::uint64_t> bits;
  const auto add = [&](const Tensor& x) {
    for (const double v : to_dtype(x, Dtype::f64).to_vector<double>())
      bits.push_back(std::bit_cast<std::uint64_t>(v));
  };
  add(losses);
  for (const auto& [parameter, uses] : gradients) {
    for (const PerSampleGrad& use : uses) add(use.sum());
  }
  return bits;
}

void add_view(std::vector<std::int64_t>& numbers, const View& x) {
  numbers.insert(numbers.end(), {static_cast<std::int64_t>(x.dtype), x.rank});
  numbers.insert(numbers.end(), x.size, x.size + x.rank);
  numbers.insert(numbers.end(), x.stride, x.stride + x.rank);
}

// What decides how modules compute.
void add_modes(std::vector<std::int64_t>& numbers, nn::Module& module) {
  const auto precision = module.precision();
  numbers.insert(numbers.end(), {precision ? static_cast<std::int64_t>(*precision) : -1,
                                 static_cast<std::int64_t>(module.recompute())});
  module.visit(
      nn::Visitor([](const std::string&, Parameter&) {},
                  [&](const std::string&, nn::Module& child) { add_modes(numbers, child); }));
}

}  // namespace

// What was captured, and where it reads and writes.
class CapturedLoss::Pass {
 public:
  Pass(const Loss& loss, const TapeOptions& options, Device device)
      : loss_(loss), options_(options), capture_(device) {}

  // Computes, captures and computes again. Throws CannotCapture where the results differ.
  void prepare(const std::vector<Tensor>& batch, std::int64_t rows, Device device);
  // Whether losses and gradients of this batch, too, are those of an ordinary run, bit by bit; not
  // looked at any more after some batches that differ from the one before. Throws what the loss
  // throws.
  bool confirm(const std::vector<Tensor>& batch);
  // Of a batch with the same shapes but for the rows; which call it was.
  std::int64_t forward(const std::vector<Tensor>& batch);
  const Tensor& losses() const { return given_; }
  void backward(std::int64_t call, const Tensor& dy, Adjoint& adjoint);
  const Uses& gradients() const { return gradients_; }

 private:
  enum Piece : std::size_t { forwards, backwards };

  Var weighted(Tape& tape);
  std::vector<std::uint64_t> ordinary_bits();
  std::vector<std::uint64_t> replayed_bits();
  void load(const std::vector<Tensor>& batch) const;
  Kept sink() const { return Kept(!options_.private_data); }

  const Loss& loss_;
  TapeOptions options_;
  std::vector<Tensor> batch_;  // with as many rows as were captured
  Tensor dy_, losses_;         // [rows]
  Uses gradients_;
  std::vector<std::vector<std::shared_ptr<const PerSampleGrad>>> whole_;  // the same
  Capture capture_;
  int confirmations_ = 0;
  std::int64_t calls_ = 0;
  Tensor given_;               // the losses that the last call handed out; undefined if it failed
  bool forward_done_ = false;  // since the last backward, which writes over what it reads
};

// The losses times dy, so that backward from ones begins with dy.
Var CapturedLoss::Pass::weighted(Tape& tape) {
  const Var losses = loss_(tape, batch_);
  check(losses.shape() == Shape{batch_[0].size(0)} && losses.samples().batched(),
        "captured loss: a loss of shape {} for {} rows; return one loss for each row; the engine "
        "averages",
        losses.shape(), batch_[0].size(0));
  losses_ = losses.value();
  if (!dy_.defined()) dy_ = full(losses.shape(), 1, losses.dtype(), losses_.device());
  return mul(losses, untracked(tape, dy_, 0));
}

void CapturedLoss::Pass::load(const std::vector<Tensor>& batch) const {
  for (std::size_t k = 0; k < batch.size(); ++k) {
    const std::int64_t rows = batch[k].size(0), all = batch_[k].size(0);
    copy_into(batch[k], batch_[k].slice(0, 0, rows));
    // Nothing of an earlier batch is computed again.
    if (rows < all) backend(batch_[k].device()).fill(0, batch_[k].slice(0, rows, all).view());
  }
}

void CapturedLoss::Pass::prepare(const std::vector<Tensor>& batch, std::int64_t rows,
                                 Device device) {
  for (const Tensor& x : batch) {
    Shape shape = x.shape();
    shape[0] = rows;
    batch_.push_back(zeros(shape, x.dtype(), device));
  }
  load(batch);
  const std::vector<std::uint64_t> expected = ordinary_bits();
  Tape tape(options_);
  Var total;
  Kept kept = sink();
  capture_.add([&] { total = weighted(tape); });
  capture_.add([&] { tape.backward(total, kept); });
  gradients_ = kept.take();
  for (const auto& [parameter, uses] : gradients_) {
    whole_.emplace_back();
    for (const PerSampleGrad& use : uses)
      whole_.back().push_back(std::make_shared<PerSampleGrad>(use));
  }
  if (replayed_bits() != expected)
    throw CannotCapture("a replay gives other values than the run before it");
}

std::vector<std::uint64_t> CapturedLoss::Pass::ordinary_bits() {
  const Tensor captured = losses_;
  Tape tape(options_);
  Kept kept = sink();
  tape.backward(weighted(tape), kept);
  return bits_of(std::exchange(losses_, captured), kept.take());
}

std::vector<std::uint64_t> CapturedLoss::Pass::replayed_bits() {
  capture_.replay(forwards);
  capture_.replay(backwards);
  return bits_of(losses_, gradients_);
}

// A loss that reads what is neither in the batch nor a parameter, as targets in a variable of its
// own, gives the same for the same batch and, but by chance, something else for others.
bool CapturedLoss::Pass::confirm(const std::vector<Tensor>& batch) {
  constexpr int enough = 4;
  if (confirmations_ == enough) return true;
  given_ = Tensor();
  std::vector<std::vector<double>> before;
  const auto values = [](const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); };
  for (const Tensor& x : batch_) before.push_back(values(x));
  load(batch);
  bool other = false;
  for (std::size_t k = 0; k < batch_.size(); ++k) other = other || values(batch_[k]) != before[k];
  if (!other) return true;
  backend(dy_.device()).fill(1, dy_.view());
  ++confirmations_;
  return ordinary_bits() == replayed_bits();
}

std::int64_t CapturedLoss::Pass::forward(const std::vector<Tensor>& batch) {
  ++calls_;  // tapes of earlier calls are over, whatever happens here
  given_ = Tensor();
  load(batch);
  capture_.replay(forwards);
  forward_done_ = true;
  given_ = clone(losses_.slice(0, 0, batch[0].size(0)));
  return calls_;
}

void CapturedLoss::Pass::backward(std::int64_t call, const Tensor& dy, Adjoint& adjoint) {
  check(options_.private_data || adjoint.sums_only(),
        "captured loss: on an ordinary tape sinks get sums alone");
  check(call == calls_ && given_.defined(),
        "captured loss: another batch was computed before this one's backward");
  const std::int64_t rows = dy.size(0);
  if (!forward_done_) {  // a second backward from one forward
    capture_.replay(forwards);
    check(
        bits_of(losses_.slice(0, 0, rows), {}) == bits_of(given_, {}),
        "captured loss: other losses in the second of two backwards; norms of one function do not "
        "bound sums of another");
  }
  backend(dy_.device()).fill(0, dy_.view());
  copy_into(dy, dy_.slice(0, 0, rows));
  capture_.replay(backwards);
  forward_done_ = false;
  // Copies of the handles in both cases: nobody may take memory of the capture's for his alone.
  for (std::size_t k = 0; k < gradients_.size(); ++k) {
    for (std::size_t u = 0; u < gradients_[k].second.size(); ++u) {
      adjoint.shared(static_cast<int>(k), options_.private_data
                                              ? PerSampleGrad::captured_prefix(whole_[k][u], rows)
                                              : gradients_[k].second[u]);
    }
  }
}

CapturedLoss::CapturedLoss(nn::Module& model, std::int64_t rows, Loss loss)
    : model_(model), rows_(rows), loss_(std::move(loss)) {
  check(rows >= 1, "captured loss: {} rows", rows);
}

CapturedLoss::~CapturedLoss() = default;

void CapturedLoss::forget() {
  pass_ = nullptr;
  setting_.reset();
}

std::string CapturedLoss::obstacle(const Tape& tape, std::int64_t rows) const {
  if (Capture::here()) return "it is part of what is captured";
  if (!tape.is_root()) return "it is part of a segment that is run again";
  if (tape.precision().value_or(Dtype::f32) != tape.options().precision)
    return "it is in a region of another precision";
  if (rows == 0 || rows > rows_) return fmt::format("{} rows where {} were captured", rows, rows_);
  if (!tape.options().private_data && rows < rows_)
    return fmt::format("{} rows where {} were captured, with their sum", rows, rows_);
  return "";
}

CapturedLoss::Setting CapturedLoss::setting_of(const Tape& tape, const std::vector<Tensor>& batch) {
  const TapeOptions& options = tape.options();
  Setting numbers{options.private_data, options.training,
                  static_cast<std::int64_t>(options.precision)};
  for (const Parameter* parameter : model_.parameters()) {
    const View value = parameter->value.view();
    numbers.insert(numbers.end(), {std::bit_cast<std::int64_t>(parameter),
                                   std::bit_cast<std::int64_t>(value.data), parameter->trainable});
    add_view(numbers, value);
  }
  add_modes(numbers, model_);
  for (const Tensor& x : batch) {
    Shape shape = x.shape();
    shape[0] = rows_;
    numbers.insert(numbers.end(), {static_cast<std::int64_t>(x.dtype()), x.rank()});
    numbers.insert(numbers.end(), shape.begin(), shape.end());
  }
  return numbers;
}

void CapturedLoss::capture(const Tape& tape, const std::vector<Tensor>& batch) {
  Setting setting = setting_of(tape, batch);
  if (setting_ == setting) return;
  pass_ = nullptr;  // makes room
  // Known from the start: should memory run out while a reason is written down, nothing is
  // replayed.
  failure_ = "it has not been captured";
  setting_ = std::move(setting);
  try {
    const Device device = device_of(model_.parameters());
    const TapeOptions& given = tape.options();
    auto pass = std::make_shared<Pass>(loss_,
                                       TapeOptions{.private_data = given.private_data,
                                                   .training = given.training,
                                                   .precision = given.precision},
                                       device);
    pass->prepare(batch, rows_, device);
    const auto known = model_.parameters();
    for (const auto& [parameter, uses] : pass->gradients()) {
      if (std::find(known.begin(), known.end(), parameter) == known.end())
        throw CannotCapture("it depends on a parameter that is not the model's");
    }
    pass_ = std::move(pass);
    ++captures_;
    failure_.clear();
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
}

// The pass that was captured is given up where a later batch is not computed as it should be.
void CapturedLoss::confirm(const std::vector<Tensor>& batch) {
  std::shared_ptr<Pass> pass = std::exchange(pass_, nullptr);
  try {
    if (pass->confirm(batch)) return pass_.swap(pass);
    failure_ =
        "a replay with another batch gives other values than the loss does: it reads what is "
        "neither in the batch nor a parameter of the model";
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
}

Var CapturedLoss::operator()(Tape& tape, const std::vector<Tensor>& batch) {
  check(!batch.empty(), "captured loss: an empty list of tensors");
  const std::int64_t rows = batch[0].size(0);
  for (const Tensor& x : batch)
    check(x.size(0) == rows, "captured loss: {} rows beside {}", x.size(0), rows);
  reason_ = obstacle(tape, rows);
  if (reason_.empty()) {
    capture(tape, batch);
    if (pass_) confirm(batch);
    if (!pass_) reason_ = failure_.empty() ? "it was given up" : failure_;
  }
  if (!reason_.empty()) {
    const Device device = device_of(model_.parameters());
    std::vector<Tensor> there;
    for (const Tensor& x : batch) there.push_back(x.to(device));
    return loss_(tape, there);
  }
  ++replays_;
  tape.input(batch[0]);  // tells the tape how many samples there are
  std::vector<Var> inputs;
  for (const auto& [parameter, uses] : pass_->gradients()) inputs.push_back(tape.use(*parameter));
  const std::int64_t call = pass_->forward(batch);
  return tape.record(captured_op, std::move(inputs), pass_->losses(), 0,
                     [pass = pass_, call](const Tensor& dy, Adjoint& adjoint) {
                       pass->backward(call, dy, adjoint);
                     });
}

}  // namespace sotto::memory
