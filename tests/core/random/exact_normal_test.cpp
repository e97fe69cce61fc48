// The boxes' acceptance probabilities are the normal density: they are found exactly, by bisection
// of the words that decide, not by sampling.
// File tags: [optimised]
#include "core/random/exact_normal.h"

#include <cmath>
#include <optional>
#include <vector>

#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr std::uint64_t ones = ~std::uint64_t{0};
constexpr std::uint64_t heads = std::uint64_t{1} << 63;

std::uint64_t word_in(int box, std::uint64_t place) {
  return static_cast<std::uint64_t>(box) << 52 | place;
}

// The sample that begins with `word` and continues with these words; {} if it needs more. Words
// left over after a rejection begin another sample.
std::optional<std::uint64_t> decide(const ExactNormalSampler& boxes, std::uint64_t word,
                                    const std::vector<std::uint64_t>& words) {
  struct UsedUp {};
  std::size_t used = 0;
  try {
    return boxes.decide(word, [&] {
      if (used == words.size()) throw UsedUp{};
      return words[used++];
    });
  } catch (UsedUp) {
    return {};
  }
}

// The fraction of values of the word at `place` for which the sample is accepted, with the other
// words fixed.
double accepted(const ExactNormalSampler& boxes, std::uint64_t word,
                std::vector<std::uint64_t> words, std::size_t place) {
  words[place] = 0;
  const auto drawn = decide(boxes, word, words);
  if (drawn.value_or(0) == 0) return 0;  // the result of zero words
  std::uint64_t min = 0;
  for (std::uint64_t bit = heads; bit != 0; bit >>= 1) {
    words[place] = min | bit;
    if (decide(boxes, word, words) == drawn) min |= bit;
  }
  return min == ones ? 1 : std::ldexp(static_cast<double>(min), -64);
}

// The height of the curve over `place` in the strip, in boxes.
double height(const ExactNormalSampler& boxes, int strip, std::uint64_t place) {
  double sum = 0;
  for (int box = 0; box < boxes.first_tail_box(); ++box) {
    const std::uint64_t word = word_in(box, place);
    if (static_cast<int>(boxes.magnitude(word) >> 51) != strip) continue;
    // The third word is for a decision that the first word leaves open.
    sum += boxes.certain(word) ? 1 : accepted(boxes, word, {0, 0, 0}, 0);
  }
  return sum;
}

// exp(-lambda y^2)
double curve(double lambda, double y) {
  return static_cast<double>(std::exp(-static_cast<long double>(lambda) * y * y));
}

const double lambdas[] = {0x1p-9, 0x1p-10, 0.9 * 0x1p-10, 0x1p-11};

ExactNormalSampler boxes_for(double lambda) {
  return ExactNormalSampler(static_cast<std::uint64_t>(std::ldexp(lambda, 72)));
}

}  // namespace

TEST_CASE("accepted heights are in proportion to the normal density, in every strip") {
  for (const double lambda : lambdas) {
    const ExactNormalSampler boxes = boxes_for(lambda);
    const double scale = height(boxes, 0, 1);
    CHECK(scale == Approx(std::round(scale)).epsilon(1e-15));
    for (int strip = 0; strip < boxes.strips(); strip += 1 + strip / 3) {
      for (const double place : {0x1p-51, 0.3, 1 - 0x1p-51}) {
        const double found = height(boxes, strip, static_cast<std::uint64_t>(place * 0x1p51));
        CHECK(found == Approx(scale * curve(lambda, strip + place)).epsilon(1e-13));
      }
    }
  }
}

// The crossing of the curve and one box, from 300-bit arithmetic: the first 64 bits of the height
// within the box and 56 more, for the smallest and the largest position with given 51 bits.
TEST_CASE("decisions open after 64 bits take 56 more, and 64 more of the position") {
  const ExactNormalSampler boxes = boxes_for(0x1p-10);
  REQUIRE(height(boxes, 0, 1) == Approx(140).epsilon(1e-15));
  const int strip = 20, level = 94;
  int box = level;
  while (static_cast<int>(boxes.magnitude(word_in(box - level, 0)) >> 51) != strip) ++box;
  const std::uint64_t word = word_in(box, 12345);
  const auto check_crossing = [&](std::uint64_t rest_of_place, std::uint64_t first,
                                  std::uint64_t second) {
    constexpr std::uint64_t tolerance = std::uint64_t{1} << 28;  // 2^-100 of a box
    CHECK(decide(boxes, word, {first, rest_of_place, second - tolerance}) == boxes.magnitude(word));
    CHECK_FALSE(decide(boxes, word, {first, rest_of_place, second + tolerance}));
    CHECK(decide(boxes, word, {first - 1, rest_of_place, ones}));
    CHECK_FALSE(decide(boxes, word, {first + 1, rest_of_place, 0}));
  };
  check_crossing(0, 0xba8e9a984c3c82fe, 0x91506eb2bc59a200);
  check_crossing(ones, 0xba8e9a984c3c0c95, 0x5f0f302fc07d1400);
}

// The words of a sample from the tail, `blocks` blocks out and accepted, and the indices of those
// that are compared with a threshold.
struct TailWords {
  std::vector<std::uint64_t> words{0, 0};  // the height, the rest of the position
  std::vector<std::size_t> compared;

  TailWords(double lambda, int strips, int blocks, double place) {
    const double curvature = 64 * lambda;
    for (int k = 1; k <= blocks; ++k) {
      words.push_back(heads);
      add_compared();
      compare(curvature * (2 * k - 1 + 2 * place));
    }
    words.push_back(0);
    compare(16 * lambda * strips * place);
    compare(curvature * place * place);
  }

  // Appends the words of an event of probability exp(-x), in steps of a quarter.
  void compare(double x) {
    for (; x > 0; x -= 0.25) add_compared();
    if (x == 0) add_compared();
  }
  void add_compared() {
    compared.push_back(words.size());
    words.push_back(0);
  }
};

// Thresholds are found to 2^-22: closer to them, a comparison needs one more word.
TEST_CASE("the tail has the normal density, to 12 deviations and beyond", "[gate]") {
  for (const double lambda : lambdas) {
    const ExactNormalSampler boxes = boxes_for(lambda);
    const double scale = height(boxes, 0, 1);
    const int strips = boxes.strips(), first = boxes.first_tail_box();
    for (const int blocks : {0, 1, 2, 5, 9, 20, 40}) {
      for (const double place : {0.05, 0.4, 0.83}) {
        const TailWords draw(lambda, strips, blocks, place);
        const auto bits = static_cast<std::uint64_t>(place * 0x1p51);
        double heights = 0;
        for (int box = first; box < first + boxes.tail_boxes(); ++box) {
          heights += accepted(boxes, word_in(box, bits), draw.words, 0);
        }
        double found = heights * std::ldexp(1.0, -(blocks + 1)) / 8;
        for (const std::size_t at : draw.compared) {
          found *= accepted(boxes, word_in(first, bits), draw.words, at);
        }
        const double y = strips + 8 * (blocks + place);
        CHECK(found == Approx(scale * curve(lambda, y)).epsilon(1e-3));
        const auto drawn = decide(boxes, word_in(first, bits), draw.words);
        REQUIRE(drawn);
        CHECK(static_cast<double>(*drawn) * 0x1p-51 == Approx(y).epsilon(1e-14));
      }
    }
  }
}

TEST_CASE("strips wider than a sixteenth or narrower than a 32nd of a deviation are refused") {
  CHECK_THROWS_AS(boxes_for(0x1p-12), std::invalid_argument);
  CHECK_THROWS_AS(boxes_for(0x1.1p-9), std::invalid_argument);
  CHECK_NOTHROW(boxes_for(0x1p-9));
}
