// Any text in the place of an engine's state is that of an engine that may go on, or is refused
// with std::invalid_argument and changes nothing. LEDGER and RUN stand for the identities of the
// ledger that the engine has.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "core/io/safetensors.h"
#include "dp/engine/engine.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"

namespace {

using namespace sotto;

constexpr const char* key = "sotto.engine";
constexpr std::int64_t population = 12;

void require(bool fact) {
  if (!fact) std::abort();
}

void replace(std::string& text, const std::string& word, const std::string& by) {
  const std::size_t at = text.find(word);
  if (at != std::string::npos) text.replace(at, word.size(), by);
}

// Stands in the middle of a pass.
struct Training {
  nn::Linear model{2, 2};
  nn::Sgd optimizer{model, {.learning_rate = 0.1}};
  Ledger ledger;
  Engine engine{model,
                optimizer,
                population,
                ledger,
                {.noise_multiplier = 1,
                 .allow_large_delta = true,
                 .steps = 9,
                 .accountant = AccountantKind::rdp,
                 .sampling = Sampling::balls_and_bins,
                 .logical_batch = 4}};

  Training() {
    for (int k = 0; k < 2; ++k) {
      engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
        const auto count = static_cast<std::int64_t>(rows.size());
        return sum(
            model(tape.input(Tensor::from(std::vector<float>(2 * rows.size(), 1), {count, 2}))),
            {1});
      });
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Training training;
  static const TensorFile before = training.engine.state();
  TensorFile file = before;
  std::string& text = file.metadata[key];
  text.assign(reinterpret_cast<const char*>(data), size);
  replace(text, "LEDGER", training.ledger.id());
  replace(text, "RUN", training.ledger.run_id());
  try {
    training.engine.load_state(file);
    require(training.engine.steps_made() >= 0 && training.engine.steps_made() <= 2);
    training.engine.load_state(before);
  } catch (const std::invalid_argument&) {
    // The expected answer to most inputs.
  }
  require(training.engine.state().metadata == before.metadata);
  return 0;
}
