// Data parallelism: gradients summed over ranks are those of one process.
#include "nn/optim/rank_sink.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/devices.h"
#include "core/ranks/rank_threads.h"
#include "core/ranks/thread_ranks.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/accumulation.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr std::int64_t batch = 12;

// A model with dropout and a frozen parameter, the same on every rank.
struct Model {
  explicit Model(Dtype dtype) {
    layers.to(dtype);
    layers.parameters()[0]->trainable = false;
  }
  Var losses(Tape& tape, std::span<const std::int64_t> rows) {
    std::vector<double> inputs;
    std::vector<std::int64_t> labels;
    for (const std::int64_t row : rows) {
      for (int k = 0; k < 6; ++k) inputs.push_back(std::sin(static_cast<double>(row * 6 + k)));
      labels.push_back(row % 3);
    }
    const Tensor& weight = layers.parameters()[0]->value;
    const Tensor x = to_dtype(Tensor::from(inputs, {std::ssize(rows), 6}), weight.dtype());
    return cross_entropy(layers(tape.input(x.to(weight.device()))),
                         Tensor::from(labels, {std::ssize(rows)}));
  }
  // By the parameter's place in the model.
  std::map<std::size_t, std::vector<double>> values(const Gradients& gradients) {
    std::map<std::size_t, std::vector<double>> found;
    const auto parameters = layers.parameters();
    for (const auto& [parameter, gradient] : gradients) {
      const auto at = std::find(parameters.begin(), parameters.end(), parameter);
      found[static_cast<std::size_t>(at - parameters.begin())] =
          to_dtype(gradient, Dtype::f64).to_vector<double>();
    }
    return found;
  }
  nn::Sequential layers = (nn::manual_seed(1), nn::Sequential{nn::Linear(6, 40), nn::Tanh(),
                                                              nn::Dropout(0.3), nn::Linear(40, 3)});
};

using Values = std::map<std::size_t, std::vector<double>>;

// The rows of each rank: uneven, and none for rank 1 of more than two.
std::vector<std::int64_t> rows_of(int rank, int ranks) {
  const std::vector<std::vector<std::int64_t>> ends{
      {batch}, {5, batch}, {4, 4, batch}, {1, 1, 7, batch}};
  const auto& own = ends[static_cast<std::size_t>(ranks) - 1];
  const auto k = static_cast<std::size_t>(rank);
  const std::int64_t first = k == 0 ? 0 : own[k - 1];
  std::vector<std::int64_t> rows(static_cast<std::size_t>(own[k] - first));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

// The gradients that `body` gives each rank. Models are made in turn: seeds are the process's.
std::vector<Values> on_ranks(int size, Dtype dtype,
                             const std::function<Gradients(Ranks&, Model&)>& body) {
  std::vector<std::unique_ptr<Model>> models;
  for (int k = 0; k < size; ++k) models.push_back(std::make_unique<Model>(dtype));
  std::vector<Values> found(static_cast<std::size_t>(size));
  on_thread_ranks(size, [&](Ranks& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    found[own] = models[own]->values(body(ranks, *models[own]));
  });
  return found;
}

Values one_process(Dtype dtype) {
  Model model(dtype);
  Tape tape({.seed = 3});
  SumSink sink;
  std::vector<std::int64_t> rows(batch);
  std::iota(rows.begin(), rows.end(), 0);
  tape.backward(model.losses(tape, rows), sink, 1.0 / batch);
  return model.values(sink.gradients());
}

void check_near(const Values& a, const Values& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (const auto& [place, values] : a) {
    const auto& others = b.at(place);
    REQUIRE(values.size() == others.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      CHECK(std::abs(values[i] - others[i]) <= tolerance);
  }
}

// The gradients of the rank's rows.
Gradients gradients_of(Ranks& ranks, Model& model, const nn::BucketSizes& sizes) {
  nn::RankSink sink(ranks, model.layers.parameters(), sizes);
  const auto rows = rows_of(ranks.rank(), ranks.size());
  if (!rows.empty()) {
    Tape tape({.seed = 3, .first_row = rows.front()});
    tape.backward(model.losses(tape, rows), sink, 1.0 / batch);
  }
  return sink.gradients();
}

}  // namespace

TEST_CASE("gradients over any number of ranks are those of one process, the same bits on all") {
  const int size = GENERATE(1, 2, 3, 4);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::f64);
  const nn::BucketSizes sizes = GENERATE(nn::BucketSizes{}, nn::BucketSizes{1, 100});
  const auto found = on_ranks(
      size, dtype, [&](Ranks& ranks, Model& model) { return gradients_of(ranks, model, sizes); });
  const Values one = one_process(dtype);
  CHECK(one.size() == 3);
  for (const Values& each : found) {
    CHECK(each == found[0]);
    check_near(each, one, dtype == Dtype::f64 ? 1e-15 : 1e-7);
  }
}

TEST_CASE("gradients of models on GPUs add up there, the same bits on all", "[gpus]") {
  if (devices().size() < 2) return;
  const int size = GENERATE(1, 2, 3);
  const nn::BucketSizes sizes = GENERATE(nn::BucketSizes{}, nn::BucketSizes{1, 100});
  const auto found = on_ranks(size, Dtype::f32, [&](Ranks& ranks, Model& model) {
    model.layers.to(gpu_of_rank(ranks));
    nn::broadcast_values(ranks, model.layers.parameters());
    return gradients_of(ranks, model, sizes);
  });
  const Values one = one_process(Dtype::f32);
  for (const Values& each : found) {
    CHECK(each == found[0]);
    check_near(each, one, 1e-7);
  }
}

TEST_CASE("accumulation over ranks has the gradient of one process, and the losses of all") {
  const int size = GENERATE(1, 2, 3, 4);
  std::mutex mutex;
  std::vector<double> losses;
  const auto found = on_ranks(size, Dtype::f64, [&](Ranks& ranks, Model& model) {
    nn::Sgd optimizer(model.layers, {.learning_rate = 1});
    memory::Accumulation accumulation({.physical_batch = 2}, model.layers, ranks);
    const auto result = accumulation.mean_gradient(
        [&](Tape& tape, std::span<const std::int64_t> rows) { return model.losses(tape, rows); },
        rows_of(ranks.rank(), size), optimizer, {.seed = 3});
    const std::lock_guard lock(mutex);
    losses.push_back(result.loss_sum);
    return result.gradients;
  });
  for (const Values& each : found) {
    CHECK(each == found[0]);
    check_near(each, one_process(Dtype::f64), 1e-15);
  }
  for (const double loss : losses) CHECK(loss == losses[0]);
}

TEST_CASE("sums are added in the order of ranks, whatever arrives first") {
  const ThreadRanksOptions late{.rank_latency_seconds = {2e-3, 1e-3, 0}};
  std::mutex mutex;
  std::vector<float> sums;
  Parameter parameters[3] = {Parameter(zeros({1})), Parameter(zeros({1})), Parameter(zeros({1}))};
  const auto body = [&](Ranks& ranks) {
    // (1 + 2^-24) + 2^-24 is 1 in f32, and 1 + (2^-24 + 2^-24) is not.
    Parameter& parameter = parameters[ranks.rank()];
    nn::RankSink sink(ranks, {&parameter});
    sink.add(parameter, full({1}, ranks.rank() == 0 ? 1 : 0x1p-24));
    const double sum = sink.gradients()[0].second.item();
    const std::lock_guard lock(mutex);
    sums.push_back(static_cast<float>(sum));
  };
  on_thread_ranks(3, body, late);
  CHECK(sums == std::vector<float>(3, 1));
}

TEST_CASE("a parameter without a gradient on any rank has none, and a second one is refused") {
  Model models[2] = {Model(Dtype::f32), Model(Dtype::f32)};
  on_thread_ranks(2, [&](Ranks& ranks) {
    const auto parameters = models[ranks.rank()].layers.parameters();
    nn::RankSink sink(ranks, parameters);
    if (ranks.rank() == 1) sink.add(*parameters[2], zeros({3, 40}));
    if (ranks.rank() == 1 && sink.gradients().size() != 1)
      throw std::logic_error("other gradients");
    if (ranks.rank() == 0 && sink.gradients().size() != 1) throw std::logic_error("no zeros");
  });
  const auto refuse = [&](int place) {
    on_thread_ranks(1, [&](Ranks& ranks) {
      const auto parameters = models[0].layers.parameters();
      nn::RankSink sink(ranks, parameters);
      sink.add(*parameters[3], zeros({3}));
      sink.add(*parameters[static_cast<std::size_t>(place)], zeros({3}));
    });
  };
  CHECK_THROWS_AS(refuse(3), std::invalid_argument);
  CHECK_THROWS_AS(refuse(0), std::invalid_argument);  // frozen
}

TEST_CASE("rank 0's values are told to all") {
  std::vector<std::unique_ptr<nn::Linear>> layers;
  for (std::uint64_t seed : {1, 2, 3}) {
    nn::manual_seed(seed);
    layers.push_back(std::make_unique<nn::Linear>(3, 2));
  }
  const auto before = layers[0]->parameters()[0]->value.to_vector<float>();
  CHECK(layers[1]->parameters()[0]->value.to_vector<float>() != before);
  on_thread_ranks(3, [&](Ranks& ranks) {
    nn::broadcast_values(ranks, layers[static_cast<std::size_t>(ranks.rank())]->parameters());
  });
  for (const auto& layer : layers)
    CHECK(layer->parameters()[0]->value.to_vector<float>() == before);
}

}  // namespace sotto
