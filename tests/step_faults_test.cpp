// Memory that runs out at any allocation of a training step: nothing leaks, the model, the
// optimizer and the ledger are as before, and the next step works.
#include <map>
#include <vector>

#include "catch.h"
#include "sotto/autograd/ops.h"
#include "sotto/core/allocator.h"
#include "sotto/dp/engine.h"
#include "sotto/kernels/compute.h"
#include "sotto/nn/init.h"
#include "sotto/nn/layers.h"

namespace sotto {
namespace {

// Refuses one request, the k-th.
class FailingMemory final : public AllocationWatch {
 public:
  explicit FailingMemory(std::int64_t k) : left_(k) { allocator(cpu).add_watch(*this); }
  ~FailingMemory() override { allocator(cpu).remove_watch(*this); }
  bool allows(std::size_t) override { return left_-- != 0; }
  void allocated(const Block&) override {}
  void released(const Block&) override {}
  bool failed() const { return left_ < 0; }

 private:
  std::int64_t left_;
};

constexpr std::int64_t population = 6;

using Values = std::map<std::string, std::vector<double>>;

Values values_of(const std::map<std::string, Tensor>& tensors) {
  Values all;
  for (const auto& [name, x] : tensors) all[name] = to_dtype(x, Dtype::f64).to_vector<double>();
  return all;
}

struct Training {
  Training() { nn::manual_seed(3); }

  nn::Sequential model = (nn::manual_seed(3), nn::Sequential{nn::Conv2d(1, 3, 3), nn::Tanh(),
                                                             nn::Flatten(), nn::Linear(48, 4)});
  nn::Adam optimizer{model};
  Tensor x = nn::random_normal({population, 1, 6, 6}, 0, 1);
  Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 0, 1}, {population});

  Var loss(Tape& tape, std::span<const std::int64_t> rows) {
    const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
    return cross_entropy(model(tape.input(gather(x, ids, 0))), gather(labels, ids, 0));
  }
  std::pair<Values, Values> state() {
    std::map<std::string, Tensor> parameters;
    for (const auto& [name, parameter] : model.named_parameters())
      parameters[name] = parameter->value;
    return {values_of(parameters), values_of(optimizer.state(model.named_parameters()))};
  }
};

// Fails a step at its first allocation, its second and so on, until none is left to fail. Gives how
// often it failed.
template <class Step, class Same>
std::int64_t fail_everywhere(Step&& step, Same&& same) {
  for (std::int64_t k = 0;; ++k) {
    const std::size_t before = allocator(cpu).statistics().current;
    const FailingMemory memory(k);
    try {
      step();
    } catch (const OutOfMemory&) {
      REQUIRE(memory.failed());
      if (allocator(cpu).statistics().current != before || !same())
        FAIL("allocation " << k << " left something behind");
      continue;
    }
    REQUIRE(!memory.failed());
    return k;
  }
}

}  // namespace

TEST_CASE("ordinary training that runs out of memory anywhere is as before the step") {
  Training t;
  const std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5};
  for (int repeat = 0; repeat < 2; ++repeat) {  // the first step makes the optimizer's state
    const auto before = t.state();
    const std::int64_t failures = fail_everywhere(
        [&] {
          Tape tape;
          SumSink sink;
          tape.backward(t.loss(tape, rows), sink);
          t.optimizer.step(sink.gradients());
        },
        [&] { return t.state() == before; });
    CHECK(failures > 20);
    CHECK(t.state() != before);
  }
}

TEST_CASE("private training that runs out of memory anywhere is as before the step") {
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    Training t;
    Ledger ledger;
    Engine engine(t.model, t.optimizer, population, ledger,
                  {.noise_multiplier = 1,
                   .logical_batch = population,
                   .physical_batch = 4,
                   .passes = passes});
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto before = t.state();
      const auto releases = ledger.run_releases();
      const std::int64_t failures = fail_everywhere(
          [&] { engine.step([&](Tape& tape, auto rows) { return t.loss(tape, rows); }); },
          [&] {
            return t.state() == before && ledger.run_releases() == releases &&
                   engine.steps_made() == repeat;
          });
      CHECK(failures > 50);
      CHECK(t.state() != before);
      CHECK(ledger.run_releases() == releases + 1);
      CHECK(engine.steps_made() == repeat + 1);
    }
  }
}

TEST_CASE("a limit between what backward and what the first update need leaves all as it was") {
  Training t;
  const auto before = t.state();
  Tape tape;
  SumSink sink;
  const std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5};
  tape.backward(t.loss(tape, rows), sink);
  const std::size_t current = allocator(cpu).statistics().current;
  allocator(cpu).set_limit(current + 2048);
  CHECK_THROWS_AS(t.optimizer.step(sink.gradients()), OutOfMemory);
  allocator(cpu).set_limit(0);
  CHECK(t.state() == before);
  t.optimizer.step(sink.gradients());
  CHECK(t.state() != before);
}

}  // namespace sotto
