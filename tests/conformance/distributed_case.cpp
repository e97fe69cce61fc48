#include "autograd/per_sample/grouping.h"
#include "core/ranks/thread_ranks.h"
#include "dp/clipping/clipper_state.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/shards.h"
#include "tests/conformance/dp_case.h"

namespace sotto::conformance {

namespace {

using Rows = std::vector<std::int64_t>;
using Parts = std::vector<Rows>;  // of one rank's share of a step

// Draws the units 0 .. n - 1 of a step, which are numbered in the order of ranks.
class GivenUnits final : public Sampler {
 public:
  GivenUnits(std::int64_t population, double divisor)
      : Sampler(population, {.sampling = Sampling::full_batch}), divisor_(divisor) {}
  std::int64_t units = 0;
  double expected_batch_size() const override { return divisor_; }

 protected:
  std::vector<std::int64_t> sample(std::int64_t /*index_in_epoch*/) override {
    std::vector<std::int64_t> all;
    for (std::int64_t unit = 0; unit < units; ++unit) all.push_back(unit);
    return all;
  }
  bool secure() const override { return true; }

 private:
  double divisor_;
};

// The units of a part, in the order of their first rows.
Grouping grouping_of(const Rows& part, const Rows& unit_ids, bool mean) {
  Grouping grouping{.unit_of_row = {}, .units = 0, .mean = mean};
  std::map<std::int64_t, std::int64_t> places;
  for (const std::int64_t row : part) {
    const std::int64_t unit = unit_ids.empty() ? row : unit_ids.at(static_cast<std::size_t>(row));
    grouping.unit_of_row.push_back(places.try_emplace(unit, std::ssize(places)).first->second);
  }
  grouping.units = std::ssize(places);
  return grouping;
}

std::unique_ptr<nn::Optimizer> optimizer_of(const Case& c, Parameters& parameters) {
  std::vector<Parameter*> all;
  for (auto& [name, parameter] : parameters) all.push_back(&parameter);
  Json options = field<Json>(c.body, "optimizer");
  // Cases of this kind leave out these.
  const Json left_out = {{"momentum", 0.0},     {"dampening", 0.0}, {"nesterov", false},
                         {"weight_decay", 0.0}, {"amsgrad", false}, {"maximize", false}};
  for (const auto& [name, value] : left_out.items()) options.emplace(name, value);
  return make_optimizer(field<std::string>(options, "type"), {{options, all}});
}

// A rank after a step.
struct RankStep {
  std::vector<std::vector<double>> norms, factors;  // [group][unit]
  std::map<std::string, Tensor> sums, grads, values;
};

// One rank with its own model.
class Player {
 public:
  Player(const Case& c, Dtype dtype, Ranks& ranks)
      : model_(c, dtype),
        optimizer_(optimizer_of(c, model_.parameters)),
        ranks_(std::shared_ptr<void>(), &ranks),
        shards_(std::make_shared<nn::Shards>(ranks_, optimizer_->parameters())),
        ledger_(Ledger::on_rank_0(ranks_, [] { return Ledger(); })),
        clipper_(model_.groups, {.rule = model_.rule}),
        sampler_(field<std::int64_t>(c.body, "rows"), field<double>(model_.dp, "divisor")) {
    optimizer_->divide(shards_);
    if (field<bool>(model_.dp, "user_level"))
      unit_ids_ = c.tensor("in.unit_ids").value.to_vector<std::int64_t>();
  }

  // Makes a step on the parts of all ranks.
  RankStep step(const std::vector<Parts>& share) {
    const bool mean = field<std::string>(model_.dp, "unit_reduce") == "mean";
    std::size_t first = 0, end = 0;
    sampler_.units = 0;
    for (const Parts& parts : share) {
      const bool own = &parts == &share[static_cast<std::size_t>(ranks_->rank())];
      if (own) first = static_cast<std::size_t>(sampler_.units);
      for (const Rows& part : parts) sampler_.units += grouping_of(part, unit_ids_, mean).units;
      if (own) end = static_cast<std::size_t>(sampler_.units);
    }
    SampledBatch draw = sampler_.draw();
    clipper_.state().begin(SumBlocks(draw.units().subspan(first, end - first), {}, {.units = 1}));
    for (const Rows& part : share[static_cast<std::size_t>(ranks_->rank())]) {
      if (!part.empty()) add(part, grouping_of(part, unit_ids_, mean));
    }
    RankStep step;
    for (const auto& [owner, sum] : clipper_.clipped_sums()) step.sums[name_of(owner)] = clone(sum);
    release(std::move(draw), step);
    return step;
  }

  double sensitivity() const { return clipper_.sensitivity(); }

 private:
  void add(const Rows& part, const Grouping& grouping) {
    Tape tape(tape_options(model_.dtype, true));
    const Tensor ids = Tensor::from(part, {std::ssize(part)});
    const Var loss = model_.loss(
        tape, [&](const Tensor& all, int axis) { return sotto::gather(all, ids, axis); });
    clipper_.add(tape, loss, unit_ids_.empty() ? nullptr : &grouping);
  }

  void release(SampledBatch draw, RankStep& step) {
    clipper_.state().share(shards_);  // now that the rank's own sums were read
    const NoisyGradient released =
        mechanism_.update(clipper_.finish(std::move(draw)), ledger_, *optimizer_);
    step.norms = clipper_.statistics().norms;
    step.factors = clipper_.statistics().factors;
    for (const auto& [owner, own] : released.gradients())
      step.grads[name_of(owner)] = shards_->whole(*owner, own);
    for (const auto& [name, parameter] : model_.parameters)
      step.values[name] = clone(parameter.value);
  }

  std::string name_of(const Parameter* owner) const {
    for (const auto& [name, parameter] : model_.parameters)
      if (&parameter == owner) return name;
    throw Malformed("a parameter without a name");
  }

  DpModel model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::shared_ptr<Ranks> ranks_;
  std::shared_ptr<nn::Shards> shards_;
  Ledger ledger_;
  Clipper clipper_;
  GivenUnits sampler_;
  GaussianMechanism mechanism_{0};
  Rows unit_ids_;
};

// All ranks' statistics of a step, [units, groups] in the order of ranks.
Tensor by_unit(const std::vector<std::vector<RankStep>>& ranks, std::size_t step,
               std::vector<std::vector<double>> RankStep::*values) {
  std::vector<double> table;
  const std::size_t groups = (ranks[0][step].*values).size();
  for (const auto& steps : ranks) {
    const auto& of_groups = steps[step].*values;
    for (std::size_t unit = 0; unit < of_groups[0].size(); ++unit)
      for (const std::vector<double>& of_units : of_groups) table.push_back(of_units[unit]);
  }
  const auto units = static_cast<std::int64_t>(table.size() / groups);
  return Tensor::from(table, {units, static_cast<std::int64_t>(groups)});
}

Tensor stacked(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> rows;
  for (const Tensor& tensor : tensors) rows.push_back(tensor.unsqueeze(0));
  return concat(rows, 0);
}

void compare(const Case& c, const std::vector<std::vector<RankStep>>& ranks,
             Comparison& comparison) {
  const auto divisor = field<double>(field<Json>(c.body, "dp"), "divisor");
  const std::size_t steps = ranks[0].size();
  for (std::size_t step = 0; step < steps; ++step) {
    comparison.expect(fmt::format("norm.{}", step), by_unit(ranks, step, &RankStep::norms));
    comparison.expect(fmt::format("clip_factor.{}", step),
                      by_unit(ranks, step, &RankStep::factors));
  }
  for (const auto& [name, value] : ranks[0][0].values) {
    std::vector<Tensor> rank_sums, sums, grads, values;
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<Tensor> of_ranks;
      for (const auto& rank : ranks) of_ranks.push_back(rank[step].sums.at(name));
      rank_sums.push_back(stacked(of_ranks));
      grads.push_back(ranks[0][step].grads.at(name));
      sums.push_back(scale(to_dtype(grads.back(), Dtype::f64), divisor));
      values.push_back(ranks[0][step].values.at(name));
    }
    comparison.expect("rank_sum." + name, stacked(rank_sums));
    comparison.expect("grad_sum." + name, stacked(sums));
    comparison.expect("grad." + name, stacked(grads));
    comparison.expect("param." + name, stacked(values));
  }
  for (const auto& rank : ranks) {
    for (const auto& [name, value] : rank.back().values) {
      if (to_dtype(value, Dtype::f64).to_vector<double>() !=
          to_dtype(ranks[0].back().values.at(name), Dtype::f64).to_vector<double>())
        comparison.fail("ranks end with different values of " + name);
    }
  }
}

}  // namespace

void run_distributed(const Case& c, Dtype dtype, Comparison& comparison) {
  if (c.type != "dp_train") throw Malformed("type is " + c.type);
  const auto world = field<int>(c.body, "world");
  const auto batches = field<std::vector<std::vector<Parts>>>(c.body, "batches");
  for (const auto& [name, described] : c.tensors) {
    if (described.value.device() != cpu) throw Skip("several ranks compute on the CPU");
  }
  std::vector<std::vector<RankStep>> ranks(static_cast<std::size_t>(world));
  double sensitivity = 0;
  on_thread_ranks(world, [&](Ranks& own) {
    Player player(c, dtype, own);
    for (const std::vector<Parts>& share : batches) {
      if (static_cast<int>(share.size()) != world) throw Malformed("batches of other ranks");
      ranks[static_cast<std::size_t>(own.rank())].push_back(player.step(share));
    }
    if (own.rank() == 0) sensitivity = player.sensitivity();
  });
  compare(c, ranks, comparison);
  const auto exact = field<double>(field<Json>(c.body, "dp"), "sensitivity");
  if (!(sensitivity >= exact * (1 - 1e-12) && sensitivity <= exact * (1 + 0x1p-7)))
    comparison.fail(fmt::format("sensitivity: got {}, expected {}", sensitivity, exact));
}

}  // namespace sotto::conformance
