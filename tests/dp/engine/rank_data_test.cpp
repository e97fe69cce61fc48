// Ranks whose hosts have other data or other files than rank 0's: an error on every rank, before
// anything is released.
#include "core/ranks/rank_failure.h"
#include "dp/engine/train.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/rank_errors.h"

namespace sotto {
namespace {

// The errors of making an engine when rank 1 has other data.
std::vector<std::string> errors_with(const std::function<void(Dataset&)>& change,
                                     const std::function<void(EngineOptions&)>& set = {}) {
  return rank_errors(3,
                     [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
                       EngineOptions options = noisy(ranks);
                       if (set) set(options);
                       if (ranks->rank() == 1) change(training.data);
                       const Ledger ledger =
                           Ledger::on_rank_0(ranks, [&] { return Ledger({.unit = options.unit}); });
                       Engine(training.model, *training.optimizer, training.data, ledger, options);
                     })
      .texts;
}

}  // namespace

TEST_CASE("a data set that differs on one rank is an error on every rank") {
  const char* what = "hash of the data set is ";
  CHECK(all_ranks_say(errors_with([](Dataset& data) { data.inputs.data<float>()[7] += 1; }), what));
  CHECK(all_ranks_say(errors_with([](Dataset& data) { data.targets.data<std::int64_t>()[3] ^= 1; }),
                      what));
  CHECK(all_ranks_say(errors_with([](Dataset& data) { data = data.shuffle(1); }), what));
  const auto nothing = errors_with([](Dataset&) {});
  CHECK(std::ranges::all_of(nothing, [](const std::string& text) { return text.empty(); }));
}

TEST_CASE("a memory limit is refused where each unit has an owner") {
  const auto owned = [](EngineOptions& options) {
    options.owner_of_unit = [](std::int64_t unit) { return static_cast<int>(unit % 3); };
    options.memory = {.limit = std::size_t{1} << 30};
  };
  CHECK(all_ranks_say(errors_with([](Dataset&) {}, owned),
                      "a memory limit where each unit has an owner"));
}

TEST_CASE("files of an earlier run that another rank sees alone are no reason to begin anew") {
  for (const bool checkpoint : {false, true}) {
    const Place place;
    write(place.path("old"), "of an earlier run");
    const RankErrors all =
        rank_errors(2, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
          const std::string own = place.path(ranks->rank() == 1 ? "old" : "new"),
                            none = place.path("no");
          const TrainOptions options{.engine = noisy(ranks), .save = checkpoint ? own : none};
          train(training.model, *training.optimizer, training.data, checkpoint ? none : own,
                options, nn::CrossEntropyLoss{});
        });
    CHECK(all_ranks_say(all.texts, "is there for rank 1, and not for rank 0"));
    CHECK_FALSE(std::filesystem::exists(place.path("new")));
    CHECK_FALSE(std::filesystem::exists(place.path("no")));
  }
}

}  // namespace sotto
