// Writes ledgers for privacy_budget_test.py: write_ledgers FOLDER. The last one stays open, with a
// reservation that is not settled, until standard input ends.
#include <cstdint>
#include <cstdio>
#include <string>

#include "dp/ledger/ledger.h"

using namespace sotto;

namespace {

constexpr std::int64_t block = 64;
const Event poisson{.noise_multiplier = 1.1, .sampling = Sampling::poisson, .sampling_rate = 0.01};

void release(Ledger& ledger, const Event& event, int count) {
  for (int k = 0; k < count; ++k) ledger.record(event, ledger.next_draw());
}

// Two epochs of four batches, and half of a third.
void release_passes(Ledger& ledger) {
  Event event{.noise_multiplier = 3, .sampling = Sampling::balls_and_bins, .batches = 4};
  for (int k = 0; k < 10; ++k) {
    event.paid = k % 4 != 0;
    release(ledger, event, 1);
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = std::string(argv[1]) + "/";
  Ledger::create(folder + "empty.ledger");
  {
    Ledger ledger = Ledger::create(folder + "plain.ledger", {}, block);
    release(ledger, poisson, 1000);
  }
  {
    Ledger ledger = Ledger::create(folder + "phases.ledger", {}, block);
    ledger.set_population(100000);
    ledger.plan({{poisson, 150}, {{.noise_multiplier = 4}, 2}});
    release(ledger, poisson, 150);
    release(ledger, {.noise_multiplier = 4}, 2);
  }
  {
    Ledger ledger = Ledger::create(folder + "chosen.ledger", {}, block);
    ledger.plan({{poisson, 150}, {{.noise_multiplier = 4}, 2}});
    release(ledger, {.noise_multiplier = 4}, 1);
  }
  {
    Ledger ledger = Ledger::create(folder + "adaptive.ledger", {}, block);
    release(ledger, poisson, 150);
    release(ledger, {.noise_multiplier = 4}, 2);
  }
  {
    Ledger ledger = Ledger::create(folder + "passes.ledger", {}, block);
    release_passes(ledger);
  }
  {
    Ledger ledger = Ledger::create(folder + "seeded.ledger", {}, block);
    release(ledger, poisson, 10);
    ledger.mark_not_private("seeded <noise>");
  }
  {
    Ledger ledger = Ledger::create(folder + "noiseless.ledger", {}, block);
    release(ledger, {.noise_multiplier = 0}, 3);
  }
  for (const char* const name : {"selection.ledger", "selection_and_more.ledger"}) {
    Ledger ledger = Ledger::create(folder + name, {}, block);
    ledger.select({.runs = {.eta = 1, .gamma = 0.1}, .run = {{poisson, 1000}}});
    if (std::string(name) == "selection_and_more.ledger")
      release(ledger, {.noise_multiplier = 4}, 1);
  }
  Ledger held = Ledger::create(folder + "held.ledger", {}, block);
  release(held, poisson, 5);
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
}
