// What ranks send in a step, and when: as many bytes as their parameters need, while other work
// goes on, and nothing that depends on private data before the ledger's line.
#include <algorithm>
#include <string>
#include <vector>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "dp/engine/engine.h"
#include "memory/accumulation.h"
#include "nn/optim/rank_sink.h"
#include "nn/optim/shard_buckets.h"
#include "tests/support/catch.h"
#include "tests/support/metered_ranks.h"
#include "tests/support/rank_training.h"

namespace sotto {
namespace {

constexpr std::size_t control_limit = std::size_t{64} << 10;

// The traffic of each rank in the second step of a private or ordinary training.
std::vector<std::map<std::string, RankTraffic>> traffic_of_step(int size, bool is_private) {
  std::vector<std::map<std::string, RankTraffic>> all(static_cast<std::size_t>(size));
  train_on_ranks(size, [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
    const auto ranks = std::make_shared<MeteredRanks>(own);
    const Engine::Loss loss = loss_of(training.data, training.model);
    std::optional<Engine> engine;
    memory::Accumulation accumulation({.physical_batch = 16}, training.model, *ranks);
    if (is_private) {
      EngineOptions options = options_of(Sampling::poisson);
      options.noise_multiplier = 1;
      options.memory.physical_batch = 16;
      options.ranks = ranks;
      engine.emplace(training.model, *training.optimizer, population,
                     Ledger::on_rank_0(ranks, [] { return Ledger(); }), options);
    }
    const std::vector<std::int64_t> rows{0, 1, 2};
    for (int step = 0; step < 2; ++step) {
      ranks->clear();
      if (engine) {
        engine->step(loss);
      } else {
        accumulation.mean_gradient(loss, rows, *training.optimizer);
      }
    }
    all[static_cast<std::size_t>(ranks->rank())] = ranks->traffic();
  });
  return all;
}

std::size_t parameter_elements() {
  std::size_t elements = 0;
  RankTraining training;
  for (const Parameter* parameter : training.model.parameters())
    elements += static_cast<std::size_t>(parameter->value.numel());
  return elements;
}

TEST_CASE("a private step sends each sum to its owner once, and each value from it once") {
  const std::size_t elements = parameter_elements();
  for (const int ranks : {2, 3, 4, 7}) {
    CAPTURE(ranks);
    const auto others = static_cast<std::size_t>(ranks) - 1;
    std::size_t sums = 0, values = 0;
    for (const auto& traffic : traffic_of_step(ranks, true)) {
      std::size_t all = 0;
      for (const auto& [place, at] : traffic) all += at.bytes;
      const std::size_t of_sums = traffic.at("clipped sums").bytes,
                        of_values = traffic.at("new parameters").bytes;
      sums += of_sums;
      values += of_values;
      CHECK(all - of_sums - of_values <= control_limit);
    }
    CHECK(sums == others * elements * sizeof(double));
    CHECK(values == others * elements * sizeof(float));
  }
}

TEST_CASE("an ordinary step sends two thirds of what a private one does") {
  RankTraining training;
  // Beside each gradient travels whether the rank had one; the last shard is filled up.
  const std::size_t sent = parameter_elements() + training.model.parameters().size();
  for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}, std::size_t{4}}) {
    CAPTURE(ranks);
    const std::size_t shard = (sent + ranks - 1) / ranks;
    for (const auto& traffic : traffic_of_step(static_cast<int>(ranks), false)) {
      CHECK(traffic.at("gradients: buckets").bytes == (ranks - 1) * shard * sizeof(float));
      CHECK(traffic.at("gradients: sums").bytes == (ranks - 1) * shard * sizeof(float));
    }
  }
}

// The steps of a backward through a first and a last layer, each a bucket of its own, as one rank
// sees them.
using Events = std::vector<std::string>;

class NotedRanks final : public Ranks {
 public:
  NotedRanks(std::shared_ptr<Ranks> ranks, Events& events)
      : ranks_(std::move(ranks)), events_(events) {}
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int ranks_on_host() const override { return ranks_->ranks_on_host(); }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override {
    events_.emplace_back(place);
    return ranks_->exchange(place, std::move(send), std::move(receive));
  }
  Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) override {
    events_.emplace_back(place);
    return ranks_->all_gather(place, send, std::move(receive));
  }
  std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) override {
    events_.emplace_back(place);
    return ranks_->broadcast(place, bytes);
  }
  std::vector<std::byte> scatter(std::string_view place, const std::vector<Bytes>& send) override {
    events_.emplace_back(place);
    return ranks_->scatter(place, send);
  }
  std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) override {
    events_.emplace_back(place);
    return ranks_->gather(place, bytes);
  }
  void fail(std::string_view message) noexcept override { ranks_->fail(message); }
  void check_running() override { ranks_->check_running(); }

 private:
  std::shared_ptr<Ranks> ranks_;
  Events& events_;
};

const Op noted_op("noted");

// y = x, whose backward is an event.
Var noted(const Var& x, Events& events) {
  return x.tape().record(noted_op, {x}, x.value(), x.samples(),
                         [&events](const Tensor& dy, Adjoint& adjoint) {
                           events.emplace_back("backward");
                           adjoint.input(0, dy);
                         });
}

constexpr std::int64_t width = 1024;
static_assert(width * width >= nn::bucket_elements);

Events events_of_step(const std::function<void(nn::Module&, const std::shared_ptr<Ranks>&,
                                               const Engine::Loss&, Events&)>& step) {
  std::vector<std::unique_ptr<nn::Sequential>> models;
  for (int rank = 0; rank < 2; ++rank) {
    nn::manual_seed(1);
    models.push_back(std::make_unique<nn::Sequential>(nn::Linear(width, width, {.bias = false}),
                                                      nn::Linear(width, width, {.bias = false})));
  }
  Events of_rank_1;
  on_thread_ranks(2, [&](Ranks& own) {
    Events events;
    nn::Sequential& model = *models[static_cast<std::size_t>(own.rank())];
    const auto ranks =
        std::make_shared<NotedRanks>(std::shared_ptr<Ranks>(std::shared_ptr<void>(), &own), events);
    const auto loss = [&](Tape& tape, std::span<const std::int64_t> rows) {
      const Var x = tape.input(full({std::ssize(rows), width}, 0.1));
      return sum_per_sample(model[1](noted(model[0](x), events)));
    };
    step(model, ranks, loss, events);
    if (own.rank() == 1) of_rank_1 = std::move(events);
  });
  return of_rank_1;
}

Events private_events(bool layers) {
  return events_of_step([&](nn::Module& model, const std::shared_ptr<Ranks>& ranks,
                            const Engine::Loss& loss, Events& events) {
    nn::Sgd optimizer(model, {.learning_rate = 0.1});
    EngineOptions options{.noise_multiplier = 1,
                          .sampling = Sampling::full_batch,
                          .logical_batch = 8,
                          .memory = {.physical_batch = 16}};
    if (layers) options.groups = layer_groups(model.named_parameters(), 1);
    options.ranks = ranks;
    Engine engine(model, optimizer, 8, Ledger::on_rank_0(ranks, [] { return Ledger(); }), options);
    events.clear();
    engine.step(loss);
  });
}

TEST_CASE("sums leave as their clip groups settle, and values follow the ledger's line") {
  CHECK(private_events(true) == Events{"Engine::step", "parts of the batch", "clipped sums",
                                       "backward", "clipped sums", "clip counts", "Ledger::record",
                                       "new parameters", "new parameters"});
  CHECK(private_events(false) == Events{"Engine::step", "parts of the batch", "backward",
                                        "clipped sums", "clipped sums", "clip counts",
                                        "Ledger::record", "new parameters", "new parameters"});
}

TEST_CASE("gradients of an ordinary step leave while backward goes on") {
  const Events events = events_of_step([&](nn::Module& model, const std::shared_ptr<Ranks>& ranks,
                                           const Engine::Loss& loss, Events& noted_events) {
    nn::Sgd optimizer(model, {.learning_rate = 0.1});
    memory::Accumulation accumulation({.physical_batch = 2}, model, *ranks);
    noted_events.clear();
    const std::vector<std::int64_t> rows{0, 1, 2};
    accumulation.mean_gradient(loss, rows, optimizer);
  });
  // Two physical batches: the last layer's gradient leaves in the second.
  CHECK(events == Events{"Accumulation: rows", "backward", "gradients: buckets", "backward",
                         "gradients: buckets", "gradients: sums", "gradients: sums",
                         "Accumulation: losses"});
}

}  // namespace
}  // namespace sotto
