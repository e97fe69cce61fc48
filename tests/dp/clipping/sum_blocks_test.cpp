// A unit that is left out moves the clipped sum of a logical batch by at most its sensitivity,
// although it shifts every later unit. Data are random, or crafted so that rounding errors align;
// physical batches have all sizes.
#include <cmath>
#include <numeric>

#include "core/random/philox.h"
#include "dp/clipping/clipper_state.h"
#include "dp/clipping/sum_blocks.h"
#include "dp/sampling/sampler.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"

namespace sotto {
namespace {

std::vector<std::int64_t> numbers(std::int64_t count, std::int64_t step = 1) {
  std::vector<std::int64_t> units(static_cast<std::size_t>(count));
  std::iota(units.begin(), units.end(), std::int64_t{0});
  for (std::int64_t& unit : units) unit *= step;
  return units;
}

// The ends of blocks of one unit each.
std::vector<std::int64_t> singles(std::int64_t count) {
  std::vector<std::int64_t> ends = numbers(count);
  for (std::int64_t& end : ends) ++end;
  return ends;
}

std::vector<std::int64_t> without(std::vector<std::int64_t> units, std::int64_t unit) {
  std::erase(units, unit);
  return units;
}

TEST_CASE(
    "blocks hold a maximum of units, and a unit that is left out changes only its own block") {
  PublicRandom random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> units;
    const auto rate = static_cast<std::uint64_t>(1 + round % 7);
    for (std::int64_t unit = 0; unit < 900; ++unit) {
      if (random.word() % 8 < rate) units.push_back(unit + round);
    }
    const std::int64_t max = 1 + round % 40;
    const auto blocks_of = [&](const std::vector<std::int64_t>& of) {
      std::vector<std::vector<std::int64_t>> blocks;
      const SumBlocks sums(of, {}, {.units = max});
      std::int64_t at = 0;
      for (const std::int64_t end : sums.ends()) {
        blocks.emplace_back(of.begin() + at, of.begin() + end);
        at = end;
      }
      REQUIRE(at == std::ssize(of));
      return blocks;
    };
    const auto all = blocks_of(units);
    for (const auto& block : all) CHECK(std::ssize(block) <= max);
    const std::int64_t left =
        units[static_cast<std::size_t>(random.word() % static_cast<std::uint64_t>(units.size()))];
    const auto rest = blocks_of(without(units, left));
    // Blocks that differ are adjacent, and hold at most max + 1 units with the one left out.
    std::size_t front = 0, back = 0;
    while (front < rest.size() && all[front] == rest[front]) ++front;
    while (back < rest.size() - front && all[all.size() - 1 - back] == rest[rest.size() - 1 - back])
      ++back;
    std::vector<std::int64_t> changed;
    for (std::size_t k = front; k < all.size() - back; ++k)
      changed.insert(changed.end(), all[k].begin(), all[k].end());
    CHECK(std::ssize(changed) <= max + 1);
    CHECK(std::count(changed.begin(), changed.end(), left) == 1);
  }
}

TEST_CASE("blocks for fewer units lie within those for more, and rows count") {
  const std::vector<std::int64_t> units = numbers(500, 3);
  std::vector<std::int64_t> rows(500);
  for (std::size_t k = 0; k < rows.size(); ++k) rows[k] = static_cast<std::int64_t>(k % 5);
  const SumBlocks blocks(units, rows, {.units = 64, .rows = 70});
  const std::vector<std::int64_t> large = blocks.ends(), small = blocks.ends(8);
  CHECK(std::includes(small.begin(), small.end(), large.begin(), large.end()));
  std::int64_t at = 0;
  for (const std::int64_t end : large) {
    CHECK(std::accumulate(rows.begin() + at, rows.begin() + end, std::int64_t{0}) <= 70);
    at = end;
  }
  CHECK(blocks.ends(1) == singles(500));
  CHECK(blocks.ends(8) == small);
  CHECK(blocks.ends(900) == large);
  const SumBlocks many_rows(numbers(3), std::vector<std::int64_t>{9, 9, 9},
                            {.units = 4, .rows = 5});
  CHECK(many_rows.ends() == singles(3));
  const SumBlocks none({}, {}, {});
  CHECK(none.ends().empty());
}

TEST_CASE("units of different owners share no block, and an owner's blocks are its units' alone") {
  const std::vector<std::int64_t> own = numbers(30), others = numbers(41, 1);
  const auto blocks_of = [&](const std::vector<std::int64_t>& second) {
    std::vector<std::int64_t> units = own, owners(own.size(), 3);
    units.insert(units.end(), second.begin(), second.end());
    owners.resize(units.size(), 8);
    const SumBlocks blocks(units, {}, {.units = 12}, owners);
    return blocks.ends();
  };
  const SumBlocks of_own(own, {}, {.units = 12});
  const std::vector<std::int64_t> alone = of_own.ends();
  const std::vector<std::int64_t> both = blocks_of(others), fewer = blocks_of(numbers(5));
  CHECK(std::equal(alone.begin(), alone.end(), both.begin()));
  CHECK(std::equal(alone.begin(), alone.end(), fewer.begin()));
  CHECK(both.size() > alone.size());
}

TEST_CASE("units out of order, and empty blocks, are refused") {
  CHECK_THROWS_AS(SumBlocks(std::vector<std::int64_t>{1, 0}, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(SumBlocks(std::vector<std::int64_t>{1, 1}, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(SumBlocks(numbers(2), {}, {.units = 0}), std::invalid_argument);
  CHECK_THROWS_AS(SumBlocks(numbers(2), {}, {}, std::vector<std::int64_t>{1, 0}),
                  std::invalid_argument);
  CHECK_THROWS_AS(SumBlocks(numbers(2), std::vector<std::int64_t>{1}, {}), std::invalid_argument);
}

// The kind of data; each unit is one row of features [population, width].
enum class Data {
  equal,      // all gradients equal: partial sums grow as far as possible
  offset,     // 1 + 0.1 N, not crafted
  halfway,    // sums whose next term is half a unit in the last place, and later units' terms
  cancelling  // pairs that cancel, so that only rounding remains
};

Tensor features(Data data, std::int64_t population, std::int64_t width) {
  PublicRandom random(9);
  std::vector<float> x(static_cast<std::size_t>(population * width));
  for (std::int64_t n = 0; n < population; ++n) {
    for (std::int64_t k = 0; k < width; ++k) {
      double value = 1;
      if (data == Data::offset) value = 1 + 0.1 * random.normal();
      if (data == Data::halfway) value = 1 + 0x1p-13 * static_cast<double>((n * 7 + k) % 3);
      if (data == Data::cancelling) value = (n % 2 == 0 ? 1 : -1) * (1 + 0.01 * random.normal());
      x[static_cast<std::size_t>(n * width + k)] = static_cast<float>(value);
    }
  }
  return Tensor::from(x, {population, width});
}

struct Case {
  Data data;
  ClipRule::Kind kind = ClipRule::Kind::minimum;
  Dtype precision = Dtype::f32;
  std::int64_t width = 4;
  std::int64_t positions = 1;
  std::int64_t side = 0;  // of images, if the layer is a convolution
  std::optional<std::size_t> per_sample_grad_budget = {};
  // Numbers in a row.
  std::int64_t size() const { return width * positions * std::max<std::int64_t>(1, side * side); }
};

// A linear layer whose gradient by its weight is the sum of its inputs, or a convolution of 3 x 3
// windows with 32 outputs.
class Network {
 public:
  explicit Network(const Case& of)
      : of_(of),
        weight_(zeros(of.side > 0 ? Shape{32, of.width, 3, 3} : Shape{1, of.width})),
        bias_(zeros({of.side > 0 ? 32 : 1})) {}

  // The clipped sum of these units, in physical batches of about `part` units and blocks of at most
  // `block`.
  std::vector<double> sum(const Tensor& x, const std::vector<std::int64_t>& units,
                          std::int64_t part, std::int64_t block) {
    Clipper clipper(flat_group({&weight_, &bias_}, 1),
                    {.rule = {.kind = of_.kind},
                     .per_sample_grad_budget = of_.per_sample_grad_budget,
                     .sum_size = {std::int64_t{1} << 20, SumBlocks::Limits{}.units}});
    const SumBlocks blocks(units, {}, {.units = block});
    const std::vector<std::int64_t> ends = blocks.ends();
    if (block > 1) clipper.state().begin(blocks);
    std::int64_t first = 0;
    for (std::size_t k = 0; k < ends.size(); ++k) {
      const bool full = k + 1 == ends.size() || ends[k + 1] - first > part;
      if (full) add(clipper, x, {units.begin() + first, units.begin() + ends[k]});
      if (full) first = ends[k];
    }
    sensitivity_ = clipper.sensitivity();
    return flat(clipper.clipped_sums());
  }
  double sensitivity() const { return sensitivity_; }

 private:
  void add(Clipper& clipper, const Tensor& x, const std::vector<std::int64_t>& units) {
    Tape tape({.private_data = true, .precision = of_.precision});
    const Tensor ids = Tensor::from(units, {std::ssize(units)});
    const Tensor rows = gather(x, ids, 0);
    clipper.add(tape, sum_per_sample(output(tape, rows)));
  }

  Var output(Tape& tape, const Tensor& rows) {
    const std::int64_t n = rows.size(0);
    if (of_.side > 0) {
      const Var images = tape.input(reshape(rows, {n, of_.width, of_.side, of_.side}));
      return conv(images, tape.use(weight_), tape.use(bias_), {.padding = {1, 1}});
    }
    return linear(tape.input(reshape(rows, {n, of_.positions, of_.width})), tape.use(weight_),
                  tape.use(bias_));
  }

  Case of_;
  Parameter weight_, bias_;
  double sensitivity_ = 0;
};

// The maximum change of a sum, in sensitivities, when one of some units is left out.
double moved(const Case& of, std::int64_t population, std::int64_t part) {
  Network network(of);
  const Tensor x = features(of.data, population, of.size());
  const std::vector<std::int64_t> units = numbers(population);
  const std::int64_t block = std::clamp<std::int64_t>(part, 1, SumBlocks::Limits{}.units);
  const std::vector<double> all = network.sum(x, units, part, block);
  double max = 0;
  for (const std::int64_t left : {std::int64_t{0}, population / 3}) {
    const double by = distance(all, network.sum(x, without(units, left), part, block));
    max = std::max(max, by / network.sensitivity());
  }
  return max;
}

constexpr Data all_data[] = {Data::equal, Data::offset, Data::halfway, Data::cancelling};
constexpr ClipRule::Kind all_kinds[] = {ClipRule::Kind::minimum, ClipRule::Kind::opacus,
                                        ClipRule::Kind::auto_s, ClipRule::Kind::normalize,
                                        ClipRule::Kind::psac};

TEST_CASE(
    "a unit that is left out moves the sum of 2^10 to 2^13 others by at most its sensitivity") {
  for (const Data data : all_data) {
    for (const std::int64_t population : {1 << 10, 1 << 13}) {
      for (const std::int64_t part : {std::int64_t{8}, std::int64_t{512}, std::int64_t{1} << 20}) {
        CAPTURE(data, population, part);
        CHECK(moved({.data = data}, population, part) <= 1);
      }
    }
    CHECK(moved({.data = data}, 1 << 10, 1) <= 1);
  }
}

TEST_CASE(
    "a unit that is left out moves the sum in bounds by every rule, in 16 bits, over positions") {
  for (const Data data : all_data) {
    for (const ClipRule::Kind kind : all_kinds) {
      for (const Dtype precision : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
        CAPTURE(data, kind, name(precision));
        CHECK(moved({data, kind, precision}, 1 << 11, 100) <= 1);
      }
    }
    for (const std::int64_t positions : {2, 5, 16, 40, 100}) {
      CAPTURE(data, positions);
      CHECK(moved({.data = data, .positions = positions}, 1 << 9, 128) <= 1);
    }
  }
}

TEST_CASE(
    "a unit that is left out moves the sum in bounds for convolutions, materialized or by tiles",
    "[gate]") {
  for (const Data data : all_data) {
    for (const auto& [side, width] :
         {std::pair{4, 40}, std::pair{8, 3}, std::pair{8, 40}, std::pair{12, 40}}) {
      for (const std::optional<std::size_t> per_sample_grad_budget :
           {std::optional<std::size_t>(), std::optional<std::size_t>(0)}) {
        CAPTURE(data, side, width, per_sample_grad_budget.has_value());
        CHECK(moved({.data = data,
                     .width = width,
                     .side = side,
                     .per_sample_grad_budget = per_sample_grad_budget},
                    400, 400) <= 1);
      }
    }
  }
}

// About every third unit, so that blocks have all sizes.
std::vector<std::int64_t> some_of(std::int64_t population) {
  PublicRandom random(3);
  std::vector<std::int64_t> units;
  for (std::int64_t unit = 0; unit < population; ++unit) {
    if (random.below(3) == 0) units.push_back(unit);
  }
  return units;
}

TEST_CASE("blocks sum up to the sums of their units alone", "[gate]") {
  std::vector<Case> cases;
  for (const std::int64_t positions : {1, 4, 12, 20})
    cases.push_back({.data = Data::offset, .width = 7, .positions = positions});
  for (const auto& [side, width] :
       {std::pair{4, 40}, std::pair{8, 3}, std::pair{8, 40}, std::pair{20, 40}})
    cases.push_back(
        {.data = Data::offset, .width = width, .side = side, .per_sample_grad_budget = 0});
  const std::vector<std::int64_t> units = some_of(400);
  for (Case of : cases) {
    for (const Dtype precision : {Dtype::f32, Dtype::bf16}) {
      of.precision = precision;
      CAPTURE(of.positions, of.side, of.width, name(precision));
      Network network(of);
      const Tensor x = features(of.data, 400, of.size());
      const std::vector<double> alone = network.sum(x, units, 400, 1);
      const std::vector<double> blocks = network.sum(x, units, 400, SumBlocks::Limits{}.units);
      CHECK(distance(alone, blocks) < 1e-5 * distance(alone, std::vector<double>(alone.size())));
      // Products of blocks; or a term for each sample of many positions, each image of few, and
      // each in bf16 by instructions for pairs of terms.
      const bool pairs = backend(cpu).chain_of_products(precision) == pair_chain;
      const bool image_alone = of.side > 0 && (pairs || of.side <= 8);
      CHECK((alone != blocks) == (of.positions <= 16 && !image_alone));
    }
  }
}

TEST_CASE("the ends of physical batches do not show") {
  constexpr std::int64_t population = 3000, width = 4;
  const std::vector<std::int64_t> units = some_of(population);
  // Products are of 96, 8 and 2 units, and of one.
  for (const std::int64_t positions : {1, 4, 12, 20}) {
    Network network({.data = Data::offset, .width = width, .positions = positions});
    const Tensor x = features(Data::offset, population, width * positions);
    for (const std::int64_t block : {SumBlocks::Limits{}.units, std::int64_t{2}, std::int64_t{1}}) {
      const std::vector<double> expected = network.sum(x, units, population, block);
      for (const std::int64_t part : {1, 7, 200}) {
        CAPTURE(positions, block, part);
        CHECK(network.sum(x, units, part, block) == expected);
      }
    }
  }
}

TEST_CASE("a physical batch that cuts a block, or has other units than announced, is refused") {
  Parameter w(zeros({1, 4}));
  const Tensor x = features(Data::offset, 40, 4);
  const auto add = [&](Clipper& clipper, std::int64_t first, std::int64_t end) {
    Tape tape({.private_data = true});
    clipper.add(tape, sum_per_sample(linear(tape.input(x.slice(0, first, end)), tape.use(w))));
  };
  Clipper clipper(flat_group({&w}, 1), {.sum_size = {.block = SumBlocks::Limits{}.units}});
  clipper.state().begin(SumBlocks(numbers(40), {}, {.units = 16}));
  add(clipper, 0, 16);
  CHECK_THROWS_AS(add(clipper, 16, 20), std::invalid_argument);
  clipper.discard();
  clipper.state().begin(SumBlocks(numbers(40, 2), {}, {}));
  CHECK_THROWS_AS(clipper.state().begin(SumBlocks(numbers(40), {}, {})), std::invalid_argument);
  add(clipper, 0, 40);
  FullBatchSampler sampler(40);
  CHECK_THROWS_AS(clipper.finish(sampler.draw()), std::invalid_argument);
}

TEST_CASE("a batch larger than the clipper's maximum is refused") {
  Parameter w(zeros({1, 4}));
  Clipper clipper(flat_group({&w}, 1), {.sum_size = {.batch = 30}});
  clipper.add_zeros(40);
  FullBatchSampler sampler(40);
  CHECK_THROWS_AS(clipper.finish(sampler.draw()), std::invalid_argument);
}

TEST_CASE("batches and parameters for which the sum would be too coarse are refused") {
  Parameter w(zeros({64, 64}));
  CHECK_NOTHROW(Clipper({{{&w}, 1}}, {.sum_size = {.batch = std::int64_t{1} << 29}}));
  CHECK_THROWS_AS(Clipper({{{&w}, 1}}, {.sum_size = {.batch = std::int64_t{1} << 40}}),
                  std::invalid_argument);
}

// These take a minute, and run in the long suite only (tests/meson.build).
TEST_CASE("a unit that is left out moves the sum of 2^18 units in bounds, too", "[nightly]") {
  CHECK(moved({.data = Data::offset}, 1 << 18, 8) <= 1);
  CHECK(moved({.data = Data::halfway}, 1 << 18, 512) <= 1);
  CHECK(moved({.data = Data::equal}, 1 << 18, 1 << 20) <= 1);
}

TEST_CASE("a unit that is left out moves the sum of 2^20 units in bounds, too", "[nightly]") {
  CHECK(moved({.data = Data::offset}, 1 << 20, 512) <= 1);
}

}  // namespace
}  // namespace sotto
