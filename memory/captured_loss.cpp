#include "memory/captured_loss.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/sink.h"
#include "core/cuda/capture.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/planning/planner.h"

namespace sotto::memory {

namespace {

const Op captured_op("captured_loss");

using Uses = std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>>;
// All numbers that a capture depends on.
using Setting = std::vector<std::int64_t>;

// Stores the gradients that backward delivers, to be read again after each replay: all uses of the
// parameters, or their sums only. bounds_influence() may be true here because the tape that gets
// the gradients checks its own sink.
class StoredGradients final : public GradSink {
 public:
  explicit StoredGradients(bool sums) : sums_(sums) {}
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
  // Returns the gradients in the order of the parameters' first use.
  Uses take() {
    std::reverse(uses_.begin(), uses_.end());
    return std::move(uses_);
  }

 private:
  bool sums_;
  Uses uses_;
};

// Returns the bits of the losses and of the sums of all gradients.
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

// Appends the module settings that decide how it computes.
void add_modes(std::vector<std::int64_t>& numbers, nn::Module& module) {
  const auto precision = module.precision();
  numbers.insert(numbers.end(), {precision ? static_cast<std::int64_t>(*precision) : -1,
                                 static_cast<std::int64_t>(module.recompute())});
  module.visit(
      nn::Visitor([](const std::string&, Parameter&) {},
                  [&](const std::string&, nn::Module& child) { add_modes(numbers, child); }));
}

// The captured graphs, and the tensors they read and write.
class CapturedPass {
 public:
  using Loss = CapturedLoss::Loss;
  CapturedPass(const Loss& loss, const TapeOptions& options, Device device)
      : loss_(loss), options_(options), capture_(device) {}

  // Computes, captures and replays. Throws CannotCapture if the results differ.
  void prepare(const std::vector<Tensor>& batch, std::int64_t rows, Device device);
  // Returns whether a replay gives this batch's losses and gradients bit by bit as an ordinary run
  // does. After some batches that differ from the one before, it returns true without comparing.
  // Throws the errors of the loss.
  bool confirm(const std::vector<Tensor>& batch);
  // Replays forward for a batch whose shapes differ in the number of rows only; returns the call's
  // number.
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
  void give_sums(Adjoint& adjoint) const;
  StoredGradients sink() const { return StoredGradients(!options_.private_data); }

  const Loss& loss_;
  TapeOptions options_;
  std::vector<Tensor> batch_;  // padded to the captured number of rows
  Tensor dy_, losses_;         // [rows]
  Uses gradients_;
  std::vector<std::vector<std::shared_ptr<const PerSampleGrad>>> whole_;  // gradients_, shared
  Capture capture_;
  int confirmations_ = 0;
  std::int64_t calls_ = 0;
  Tensor given_;               // the losses returned by the last call; undefined if it failed
  bool forward_done_ = false;  // since the last backward, which overwrites its inputs
};

// Returns the losses times dy_, so that backward from ones starts with the cotangent dy_.
Var CapturedPass::weighted(Tape& tape) {
  const Var losses = loss_(tape, batch_);
  check(losses.shape() == Shape{batch_[0].size(0)} && losses.samples().batched(),
        "captured loss: a loss of shape {} for {} rows; return one loss for each row; the engine "
        "averages",
        losses.shape(), batch_[0].size(0));
  losses_ = losses.value();
  if (!dy_.defined()) dy_ = full(losses.shape(), 1, losses.dtype(), losses_.device());
  return mul(losses, untracked(tape, dy_, 0));
}

void CapturedPass::load(const std::vector<Tensor>& batch) const {
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (std::size_t k = 0; k < batch.size(); ++k) {
    const std::int64_t rows = batch[k].size(0), all = batch_[k].size(0);
    copies.emplace_back(batch[k].to(batch_[k].device()), batch_[k].slice(0, 0, rows));
    // Padding rows are zero, so that no sample of an earlier batch is computed once more.
    if (rows < all) backend(batch_[k].device()).fill(0, batch_[k].slice(0, rows, all).view());
  }
  copy_all(copies);
}

void CapturedPass::prepare(const std::vector<Tensor>& batch, std::int64_t rows, Device device) {
  for (const Tensor& x : batch) {
    Shape shape = x.shape();
    shape[0] = rows;
    batch_.push_back(zeros(shape, x.dtype(), device));
  }
  load(batch);
  const std::vector<std::uint64_t> expected = ordinary_bits();
  Tape tape(options_);
  Var total;
  StoredGradients kept = sink();
  capture_.add([&] { total = weighted(tape); });
  capture_.add([&] { tape.backward(total, kept); });
  gradients_ = kept.take();
  for (const auto& [parameter, uses] : gradients_) {
    whole_.emplace_back();
    for (const PerSampleGrad& use : uses)
      whole_.back().push_back(std::make_shared<PerSampleGrad>(use));
  }
  if (replayed_bits() != expected) throw CannotCapture("a replay differs from the run before it");
}

std::vector<std::uint64_t> CapturedPass::ordinary_bits() {
  const Tensor captured = losses_;
  Tape tape(options_);
  StoredGradients kept = sink();
  tape.backward(weighted(tape), kept);
  return bits_of(std::exchange(losses_, captured), kept.take());
}

std::vector<std::uint64_t> CapturedPass::replayed_bits() {
  capture_.replay(forwards);
  capture_.replay(backwards);
  return bits_of(losses_, gradients_);
}

// A loss may read data outside the batch and the parameters, such as targets in a variable. It then
// agrees on the captured batch but, except by chance, on no other batch.
bool CapturedPass::confirm(const std::vector<Tensor>& batch) {
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

std::int64_t CapturedPass::forward(const std::vector<Tensor>& batch) {
  ++calls_;  // tapes of earlier calls are invalid from here on, even if this call fails
  given_ = Tensor();
  load(batch);
  capture_.replay(forwards);
  forward_done_ = true;
  given_ = clone(losses_.slice(0, 0, batch[0].size(0)));
  return calls_;
}

void CapturedPass::backward(std::int64_t call, const Tensor& dy, Adjoint& adjoint) {
  check(options_.private_data || adjoint.sums_only(),
        "captured loss: on an ordinary tape, sinks receive sums only");
  check(call == calls_ && given_.defined(),
        "captured loss: another batch was computed before this one's backward");
  const std::int64_t rows = dy.size(0);
  if (!forward_done_) {  // a second backward from one forward
    capture_.replay(forwards);
    check(
        bits_of(losses_.slice(0, 0, rows), {}) == bits_of(given_, {}),
        "captured loss: the second backward recomputed other losses; norms of one function do not "
        "bound sums of another");
  }
  copy_into(dy, dy_.slice(0, 0, rows));
  if (rows < dy_.size(0)) backend(dy_.device()).fill(0, dy_.slice(0, rows, dy_.size(0)).view());
  capture_.replay(backwards);
  forward_done_ = false;
  if (!options_.private_data) return give_sums(adjoint);
  for (std::size_t k = 0; k < whole_.size(); ++k) {
    for (const auto& use : whole_[k])
      adjoint.shared(static_cast<int>(k), PerSampleGrad::captured_prefix(use, rows));
  }
}

// Hands out copies: an op may overwrite a tensor to which it has the only reference, and this
// memory belongs to the graph.
void CapturedPass::give_sums(Adjoint& adjoint) const {
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [parameter, uses] : gradients_) {
    const Tensor sum = uses[0].materialize();
    copies.emplace_back(sum, empty_like(sum));
  }
  copy_all(copies);
  for (std::size_t k = 0; k < copies.size(); ++k) {
    const PerSampleGrad sum = PerSampleGrad::materialized(copies[k].second);
    copies[k].second = Tensor();  // drops this reference, so that the sum need not copy
    adjoint.shared(static_cast<int>(k), sum);
  }
}

// Returns why a batch of n rows cannot be replayed by graphs of `rows` rows; empty if it can.
std::string obstacle(const Tape& tape, std::int64_t n, std::int64_t rows) {
  if (Capture::here()) return "it is called inside another capture";
  if (!tape.is_root()) return "it is called inside an activation checkpoint";
  if (tape.precision() == Dtype::f64) return "its tape is in f64";
  if (tape.precision().value_or(Dtype::f32) != tape.options().precision)
    return "it is called in a region of another precision";
  if (n == 0 || n > rows) return fmt::format("{} rows where {} were captured", n, rows);
  if (!tape.options().private_data && n < rows)
    return fmt::format("{} rows where {} were captured, with their sum", n, rows);
  return "";
}

// Returns the numbers of a capture's setting.
Setting setting_of(const Tape& tape, const std::vector<Tensor>& batch, nn::Module& model,
                   std::int64_t rows) {
  const TapeOptions& options = tape.options();
  Setting numbers{options.private_data, options.training,
                  static_cast<std::int64_t>(options.precision)};
  for (const Parameter* parameter : model.parameters()) {
    const View value = parameter->value.view();
    numbers.insert(numbers.end(), {std::bit_cast<std::int64_t>(parameter),
                                   std::bit_cast<std::int64_t>(value.data), parameter->trainable});
    add_view(numbers, value);
  }
  add_modes(numbers, model);
  for (const Tensor& x : batch) {
    Shape shape = x.shape();
    shape[0] = rows;
    numbers.insert(numbers.end(), {static_cast<std::int64_t>(x.dtype()), x.rank()});
    numbers.insert(numbers.end(), shape.begin(), shape.end());
  }
  return numbers;
}

}  // namespace

// The last attempt to capture.
struct CapturedLoss::Attempt {
  void capture(CapturedLoss& loss, const Tape& tape, const std::vector<Tensor>& batch);
  void confirm(const std::vector<Tensor>& batch);

  std::optional<Setting> setting;
  std::string failure;                 // why it failed
  std::shared_ptr<CapturedPass> pass;  // the captured graphs, null after a failure
};

void CapturedLoss::Attempt::capture(CapturedLoss& loss, const Tape& tape,
                                    const std::vector<Tensor>& batch) {
  Setting now = setting_of(tape, batch, loss.model_, loss.rows_);
  if (setting == now) return;
  pass = nullptr;  // frees the graphs' memory first
  // Set in advance: if formatting a reason runs out of memory, no graph is replayed.
  failure = "it has not been captured";
  setting = std::move(now);
  try {
    const Device device = device_of(loss.model_.parameters());
    const TapeOptions& given = tape.options();
    auto made = std::make_shared<CapturedPass>(loss.loss_,
                                               TapeOptions{.private_data = given.private_data,
                                                           .training = given.training,
                                                           .precision = given.precision},
                                               device);
    made->prepare(batch, loss.rows_, device);
    const auto known = loss.model_.parameters();
    for (const auto& [parameter, uses] : made->gradients()) {
      if (std::find(known.begin(), known.end(), parameter) == known.end())
        throw CannotCapture("it depends on a parameter that is not the model's");
    }
    pass = std::move(made);
    ++loss.captures_;
    failure.clear();
  } catch (const std::exception& error) {
    failure = error.what();
  }
}

// Compares a later batch, and gives the captured graphs up if the replay differs.
void CapturedLoss::Attempt::confirm(const std::vector<Tensor>& batch) {
  std::shared_ptr<CapturedPass> checked = std::exchange(pass, nullptr);
  try {
    if (checked->confirm(batch)) return pass.swap(checked);
    failure =
        "a replay with another batch differs from the loss: the loss reads a value that is "
        "neither in the batch nor a parameter of the model";
  } catch (const std::exception& error) {
    failure = error.what();
  }
}

CapturedLoss::CapturedLoss(nn::Module& model, std::int64_t rows, Loss loss)
    : model_(model), rows_(rows), loss_(std::move(loss)), attempt_(std::make_unique<Attempt>()) {
  check(rows >= 1, "captured loss: {} rows", rows);
}

CapturedLoss::~CapturedLoss() = default;

void CapturedLoss::forget() {
  attempt_->pass = nullptr;
  attempt_->setting.reset();
}

Var CapturedLoss::operator()(Tape& tape, const std::vector<Tensor>& batch) {
  check(!batch.empty(), "captured loss: an empty list of tensors");
  const std::int64_t rows = batch[0].size(0);
  for (const Tensor& x : batch)
    check(x.size(0) == rows, "captured loss: tensors of {} and {} rows", x.size(0), rows);
  reason_ = obstacle(tape, rows, rows_);
  if (reason_.empty()) {
    attempt_->capture(*this, tape, batch);
    if (attempt_->pass) attempt_->confirm(batch);
    const std::string& failure = attempt_->failure;
    if (!attempt_->pass) reason_ = failure.empty() ? "the capture was given up" : failure;
  }
  if (!reason_.empty()) {
    const Device device = device_of(model_.parameters());
    std::vector<Tensor> there;
    for (const Tensor& x : batch) there.push_back(x.to(device));
    return loss_(tape, there);
  }
  const std::shared_ptr<CapturedPass> pass = attempt_->pass;
  ++replays_;
  tape.input(batch[0]);  // gives the tape the number of samples
  std::vector<Var> inputs;
  for (const auto& [parameter, uses] : pass->gradients()) inputs.push_back(tape.use(*parameter));
  const std::int64_t call = pass->forward(batch);
  return tape.record(
      captured_op, std::move(inputs), pass->losses(), 0,
      [pass, call](const Tensor& dy, Adjoint& adjoint) { pass->backward(call, dy, adjoint); });
}

}  // namespace sotto::memory
