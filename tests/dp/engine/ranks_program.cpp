// A private training as a program of several processes: ranks_program LEDGER [STATE]. It goes on
// from the checkpoint STATE if that is there, and saves it after every second step. Rank 0 prints
// the steps, the releases in the ledger and a hash of the weights; every rank its process to
// stderr.
#include <cstring>
#include <filesystem>

#include <sys/random.h>
#include <unistd.h>

#include <fmt/core.h>

#include "autograd/ops.h"
#include "core/io/xxh64.h"
#include "core/ranks/launched_ranks.h"
#include "dp/engine/engine.h"
#include "dp/engine/training_checkpoint.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"

// The key of every generator in this program.
extern "C" ssize_t getrandom(void* buffer, size_t size, unsigned /*flags*/) {
  std::memset(buffer, 0x5A, size);
  return static_cast<ssize_t>(size);
}

namespace {

using namespace sotto;

std::uint64_t hash_of(nn::Module& model) {
  std::uint64_t hash = 0;
  for (const Parameter* parameter : model.parameters()) {
    const std::vector<float> values = parameter->value.to_vector<float>();
    hash = xxh64(std::as_bytes(std::span(values)), hash);
  }
  return hash;
}

void train(const std::string& ledger_file, const std::string& state) {
  const std::shared_ptr<Ranks> ranks = launched_ranks();
  fmt::print(stderr, "process {}\n", getpid());
  constexpr std::int64_t population = 120, steps = 20;
  nn::manual_seed(1);
  const Dataset data = make_digits(population, 1);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 12), nn::Tanh(), nn::Linear(12, 10)};
  nn::Adam optimizer(model, {.learning_rate = 0.01});
  bool resumed = false;
  Ledger ledger = Ledger::on_rank_0(ranks, [&] {
    if (!state.empty() && std::filesystem::exists(state))
      return Ledger::resume(ledger_file, checkpoint_mark(state));
    return std::filesystem::exists(ledger_file) ? Ledger::open(ledger_file)
                                                : Ledger::create(ledger_file);
  });
  resumed = ledger.resumed();
  EngineOptions options{
      .noise_multiplier = 1, .steps = steps, .logical_batch = 30, .memory = {.physical_batch = 16}};
  options.ranks = ranks;
  Engine engine(model, optimizer, population, ledger, options);
  if (resumed) load_checkpoint(state, model, optimizer, engine);
  while (engine.can_step()) {
    const StepReport report = engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = data.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    });
    if (!state.empty() && report.step % 2 == 0) save_checkpoint(state, model, optimizer, engine);
  }
  if (ranks->rank() != 0) return;
  ledger.settle();
  fmt::print("{} {} {:016x}\n", engine.steps_made(), ledger.releases(), hash_of(model));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  train(words[1], count > 2 ? words[2] : "");
}
