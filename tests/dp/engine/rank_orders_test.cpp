// Rank 0's order of a step: few bytes, for each rank its own; one that went wrong is an error on
// every rank, before anything is released.
#include <algorithm>
#include <cstring>
#include <functional>

#include <sys/random.h>

#include "dp/sampling/packed_units.h"
#include "dp/sampling/sampler.h"
#include "tests/support/catch.h"
#include "tests/support/metered_ranks.h"
#include "tests/support/rank_training.h"

// The key of every generator in this program.
extern "C" ssize_t getrandom(void* buffer, size_t size, unsigned /*flags*/) {
  std::memset(buffer, 0x5A, size);
  return static_cast<ssize_t>(size);
}

namespace sotto {
namespace {

using Blocks = std::vector<std::vector<std::byte>>;

// The bytes of an order for one clip group, before its packed units.
constexpr std::size_t order_bytes = 97;

// Ranks of which rank 0 changes what it deals.
class SpoiledRanks final : public Ranks {
 public:
  SpoiledRanks(std::shared_ptr<Ranks> ranks, std::function<void(Blocks&)> spoil)
      : ranks_(std::move(ranks)), spoil_(std::move(spoil)) {}
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int ranks_on_host() const override { return ranks_->ranks_on_host(); }
  Pending exchange(std::string_view place, std::vector<Bytes> send,
                   std::vector<Room> receive) override {
    return ranks_->exchange(place, std::move(send), std::move(receive));
  }
  Pending all_gather(std::string_view place, Bytes send, std::vector<Room> receive) override {
    return ranks_->all_gather(place, send, std::move(receive));
  }
  std::vector<std::byte> broadcast(std::string_view place, Bytes bytes) override {
    return ranks_->broadcast(place, bytes);
  }
  std::vector<std::byte> scatter(std::string_view place, const std::vector<Bytes>& send) override {
    Blocks blocks;
    for (const Bytes block : send) blocks.emplace_back(block.begin(), block.end());
    if (rank() == 0) spoil_(blocks);
    return ranks_->scatter(place, {blocks.begin(), blocks.end()});
  }
  std::vector<std::vector<std::byte>> gather(std::string_view place, Bytes bytes) override {
    return ranks_->gather(place, bytes);
  }
  void fail(std::string_view message) noexcept override { ranks_->fail(message); }
  void check_running() override { ranks_->check_running(); }

 private:
  std::shared_ptr<Ranks> ranks_;
  std::function<void(Blocks&)> spoil_;
};

// Makes a step on three ranks, of which rank 0 spoils its order. True if every rank's error has
// this text, no weight changed, and the ledger has no release.
bool refused(const std::function<void(Blocks&)>& spoil, std::string_view part) {
  const Place place;
  std::vector<std::string> texts(3);
  const auto all =
      train_on_ranks(3, [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
        const auto ranks = std::make_shared<SpoiledRanks>(own, spoil);
        // A rank may hear of the others' failure before it has come so far itself.
        try {
          const Ledger ledger =
              Ledger::on_rank_0(ranks, [&] { return Ledger::create(place.path()); });
          Engine engine(training.model, *training.optimizer, population, ledger, noisy(ranks));
          engine.step(loss_of(training.data, training.model));
        } catch (const std::exception& error) {
          texts[static_cast<std::size_t>(own->rank())] = error.what();
        }
      });
  const std::vector<double> untrained = RankTraining().weights();
  bool right = Ledger::open(place.path()).releases() == 0;
  for (const auto& training : all) right &= training->weights() == untrained;
  for (const std::string& text : texts) {
    UNSCOPED_INFO(text);
    right &= text.find(part) != std::string::npos;
  }
  return right;
}

TEST_CASE("an order that goes wrong on its way ends the step on every rank, without a release") {
  CHECK(refused([](Blocks& blocks) { blocks[2].pop_back(); }, "message between ranks: it ends"));
  // The packed units begin with their number.
  CHECK(refused([](Blocks& blocks) { blocks[2][order_bytes + 1] = std::byte{1}; },
                "packed units: 2"));
  CHECK(refused([](Blocks& blocks) { blocks[1] = blocks[2]; }, "clipped by all ranks"));
  CHECK(refused([](Blocks& blocks) { std::swap(blocks[1], blocks[2]); }, "clipped by all ranks"));
}

// The bytes that each rank sends in the second step, but for sums and values; and the units.
struct Control {
  std::map<std::string, std::size_t> bytes;
  std::vector<std::int64_t> rows;
};

std::vector<Control> control_of_step(int size) {
  std::vector<Control> of_ranks(static_cast<std::size_t>(size));
  train_on_ranks(size, [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
    const auto ranks = std::make_shared<MeteredRanks>(own);
    Control& control = of_ranks[static_cast<std::size_t>(own->rank())];
    EngineOptions options = noisy(ranks);
    options.owner_of_unit = [](std::int64_t unit) { return unit * 7 % 5; };
    const Ledger ledger = Ledger::on_rank_0(ranks, [] { return Ledger(); });
    Engine engine(training.model, *training.optimizer, population, ledger, options);
    const Engine::Loss loss = loss_of(training.data, training.model);
    engine.step(loss);
    ranks->clear();
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      for (const std::int64_t row : rows)
        if (std::ranges::find(control.rows, row) == control.rows.end()) control.rows.push_back(row);
      return loss(tape, rows);
    });
    for (const auto& [place, at] : ranks->traffic())
      if (place != "clipped sums" && place != "new parameters") control.bytes[place] = at.bytes;
    std::ranges::sort(control.rows);
  });
  return of_ranks;
}

TEST_CASE(
    "control is the packed units of each other rank, and bytes that the batch does not change") {
  constexpr std::size_t part = 24, counts = 16, permission = 9;
  for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
    CAPTURE(ranks);
    const std::size_t others = ranks - 1;
    const auto control = control_of_step(static_cast<int>(ranks));
    std::size_t units = 0;
    for (std::size_t k = 1; k < ranks; ++k) units += packed_units(control[k].rows).size();
    using Bytes = std::map<std::string, std::size_t>;
    CHECK(control[0].bytes == Bytes{{"Engine::step", order_bytes * others + units},
                                    {"parts of the batch", part * others},
                                    {"clip counts", 0},
                                    {"Ledger::record", permission * others}});
    for (std::size_t k = 1; k < ranks; ++k)
      CHECK(control[k].bytes == Bytes{{"Engine::step", 0},
                                      {"parts of the batch", part * others},
                                      {"clip counts", counts},
                                      {"Ledger::record", 0}});
  }
}

}  // namespace
}  // namespace sotto
