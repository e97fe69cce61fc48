#include "dp/sampling/packed_units.h"

#include <cmath>
#include <numeric>

#include "core/random/secret_random.h"
#include "dp/sampling/poisson_samplers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

using Units = std::vector<std::int64_t>;
constexpr std::size_t head_bytes = 9;  // the number of units, and the order of the code

// Each number from 0 to population - 1 with this probability.
Units drawn(std::int64_t population, double rate) {
  PoissonSampler sampler(population, rate, SecretRandom::insecure_seeded(7));
  const SampledBatch batch = sampler.draw();
  return {batch.units().begin(), batch.units().end()};
}

void check_kept(const Units& units, std::int64_t population) {
  CAPTURE(units.size(), population);
  const bool kept = unpacked_units(packed_units(units), population) == units;
  CHECK(kept);
}

TEST_CASE("packed units are unpacked as they were") {
  constexpr std::int64_t largest = (std::int64_t{1} << 62) - 1;
  check_kept({}, 1);
  check_kept({0}, 1);
  check_kept({largest}, largest + 1);
  check_kept({0, 1, 2, largest - 1, largest}, largest + 1);
  for (std::int64_t bit = 0; bit < 62; ++bit) check_kept({0, std::int64_t{1} << bit}, largest);
  for (const double rate : {1e-4, 0.01, 0.3, 0.5, 0.99})
    for (const std::int64_t population : {1, 2, 7, 64, 1000, 100'000})
      check_kept(drawn(population, rate), population);
}

TEST_CASE("a unit of a Poisson batch takes two bits more than the logarithm of the rate") {
  for (const double rate : {1e-4, 1e-3, 0.01, 0.1, 0.5}) {
    CAPTURE(rate);
    const auto population = static_cast<std::int64_t>(1e4 / rate);
    const Units units = drawn(population, rate);
    const auto bits = 8 * static_cast<double>(packed_units(units).size() - head_bytes);
    CHECK(bits / static_cast<double>(units.size()) < 2 - std::log2(rate));
    // Those of one rank of 64, which computes whole pieces of the population.
    const auto piece = static_cast<std::int64_t>(32 / rate);
    Units own;
    for (const std::int64_t unit : units)
      if (unit / piece % 64 == 1) own.push_back(unit);
    const auto own_bits = 8 * static_cast<double>(packed_units(own).size() - head_bytes);
    CHECK(own_bits / static_cast<double>(own.size()) < 3 - std::log2(rate));
  }
}

TEST_CASE("all units of a population take a bit each") {
  Units all(80'000);
  std::iota(all.begin(), all.end(), 0);
  CHECK(packed_units(all).size() == head_bytes + 10'000);
}

TEST_CASE("units that do not rise, or are negative, are refused") {
  CHECK(throws([] { packed_units(Units{3, 3}); }, "unit 3 where 4 or more would follow"));
  CHECK(throws([] { packed_units(Units{3, 2}); }, "unit 2 where 4 or more would follow"));
  CHECK(throws([] { packed_units(Units{-1}); }, "unit -1 where 0 or more would follow"));
}

TEST_CASE("bytes that are no packed units are refused") {
  const auto refused = [](const std::vector<std::byte>& bytes, std::string_view part) {
    return throws([&] { unpacked_units(bytes, 1000); }, part);
  };
  const std::vector<std::byte> good = packed_units(drawn(1000, 0.1));
  for (std::size_t size = 0; size < good.size(); ++size)
    CHECK(refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}, "end early"));
  std::vector<std::byte> bytes = good;
  bytes.push_back(std::byte{0});
  CHECK(refused(bytes, "more follows the last unit"));
  CHECK(refused(packed_units(Units{1000}), "a gap of 1000 after unit -1 of 1000"));
  CHECK(refused(packed_units(Units{990, 1005}), "a gap of 14 after unit 990 of 1000"));
  bytes = good;
  bytes[4] = std::byte{1};
  CHECK(refused(bytes, "of 1000"));  // 2^32 units and more
  bytes = packed_units(Units{1});
  bytes[8] = std::byte{62};
  CHECK(refused(bytes, "end early"));
  bytes[8] = std::byte{63};
  bytes.resize(30, std::byte{0xFF});
  CHECK(refused(bytes, "a gap of"));
}

}  // namespace
}  // namespace sotto
