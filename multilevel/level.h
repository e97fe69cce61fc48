// A problem while it is being solved: its batch, gradients, updates and state.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "memory/accumulation.h"
#include "multilevel/gradient_vectors.h"
#include "multilevel/lower_problem.h"
#include "multilevel/problem.h"

namespace sotto::multilevel {

class RowFactors;

// Throws std::invalid_argument, naming the response, unless the losses are one number of each row.
void check_row_losses(const char* response, const Var& losses, const Pass& pass);

// A problem in training. Levels makes one for each problem; responses get the one below.
class Level final : public LowerProblem {
 public:
  // `everything` are the parameters of all problems. Each rank computes its part of every batch;
  // the ranks must outlive the level.
  Level(const Problem& problem, const std::vector<Parameter*>& everything, Ranks& ranks);

  const Problem& problem() const override { return problem_; }
  const std::vector<Parameter*>& parameters() const override { return parameters_; }
  Gradients gradient(const std::vector<Parameter*>& by) override;
  Var loss(Pass& pass) const override;
  Gradients sum_over_batch(const std::vector<Parameter*>& trainable,
                           const std::vector<Parameter*>& by, const AddRows& add) override;
  std::int64_t rows() const override { return std::ssize(rows_); }
  double loss_scale() const override { return accumulation_.loss_scale().value(); }
  const Gradients& last_gradient() const override;
  NamedTensors optimizer_state() const override { return problem_.optimizer.state(named_); }
  const std::string& name_of(const Parameter* parameter) const override;

  // For the responses of this folder. sum_over_batch() for a sum over this rank's rows that is
  // known already; nullopt: it overflowed.
  Gradients sum_over_ranks(const std::vector<Parameter*>& by, const std::optional<Gradients>& own);
  // The rows of the last batch that this rank computes.
  std::span<const std::int64_t> own_rows() const;
  // The place of own_rows()[0] in the batch.
  std::int64_t first_row() const { return own_rows().data() - rows_.data(); }
  // The losses of a physical batch, [rows], and the factors of their gradients.
  struct KeptRows {
    Tensor losses;                              // before their weights
    std::shared_ptr<const RowFactors> factors;  // of the gradients of these losses
  };
  // This rank's rows in the last step of the present cycle, at the parameters before its update, in
  // order: for a response that keeps them.
  const std::vector<KeptRows>& kept_rows() const { return kept_rows_; }
  // True at the first call with these parameters.
  bool is_new(const std::vector<Parameter*>& u) { return met_.insert(u).second; }

  // While it lives, Pass::detach() returns the values at the parameters of its construction.
  // Without effect if `hold` is false.
  class DetachedHeld {
   public:
    // Keeps the values of `level` from now on.
    explicit DetachedHeld(Level& level, bool hold = true);
    DetachedHeld(const DetachedHeld&) = delete;
    DetachedHeld& operator=(const DetachedHeld&) = delete;
    ~DetachedHeld();

   private:
    Level& level_;
  };

  // While it lives, everything is computed in f64: parameters have copies of their values in that
  // type, and so do the tapes of passes.
  class InF64 {
   public:
    // The parameters are those of all problems.
    explicit InF64(Level& level);
    InF64(const InF64&) = delete;
    InF64& operator=(const InF64&) = delete;
    ~InF64();

   private:
    Level& level_;
    Dtype before_;
    Replaced values_;
  };

  // For Levels. Begins a step on the next batch.
  void next_batch();
  // gradient() of a step whose rows are kept, and its loss.
  Gradients gradient_keeping_rows(const std::vector<Parameter*>& by);
  void drop_kept_rows() { kept_rows_.clear(); }  // frees kept_rows()
  // Adds a step's gradient, in the order of parameters(); nullopt: it overflowed. Updates after
  // steps_per_update steps.
  void add(std::optional<Gradients> gradient);
  // Roll-back: keeps parameters and optimizer as they are, and takes them back.
  void keep();
  void restore();  // the state that keep() saved
  std::int64_t steps() const { return steps_; }
  // The mean loss of the last step.
  double mean_loss() const { return mean_loss_; }
  // The names are those of state() of one problem.
  NamedTensors state() const;
  void load_state(const NamedTensors& state);  // throws as Levels::load_state() does

 private:
  struct Snapshot {
    std::vector<Tensor> values;
    NamedTensors optimizer;
    std::int64_t updates = 0;
  };
  TapeOptions tape_options() const;
  // Calls run for each physical batch of this rank, with `by` alone trainable.
  void over_batch(const std::vector<Parameter*>& by, const std::function<void(Pass&)>& run);
  void update();
  void clip(Gradients& gradients) const;
  Gradients named_gradients(const NamedTensors& state, const std::string& prefix) const;

  Problem problem_;
  nn::NamedParameters named_;           // with frozen ones
  std::vector<Parameter*> parameters_;  // that the optimizer holds
  std::vector<Parameter*> everything_;
  Ranks& ranks_;
  memory::Accumulation accumulation_;
  Dtype precision_ = Dtype::f32;  // f64: of all passes; else the policy's
  DetachedValues detached_;
  std::vector<std::int64_t> rows_;
  std::int64_t steps_ = 0, updates_ = 0;
  std::int64_t pending_ = 0;  // steps since the last update
  bool overflowed_ = false;   // one of them
  Gradients sum_;             // of the pending steps
  Gradients last_gradient_;
  std::optional<Snapshot> kept_;
  std::vector<KeptRows> kept_rows_;
  std::set<std::vector<Parameter*>> met_;  // by is_new()
  double pass_loss_ = 0;                   // mean loss of the last pass
  double mean_loss_ = 0;                   // that of the last step
};

// The level of a problem that a response gets. Throws std::invalid_argument for another class.
inline Level& level_of(LowerProblem& lower) {
  auto* const level = dynamic_cast<Level*>(&lower);
  check(level != nullptr, "a response of the library to a problem that is not Levels' own");
  return *level;
}

}  // namespace sotto::multilevel
