#include "dp/sampling/subset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random/secret_random.h"
#include "core/random/uniform_int.h"

namespace sotto {

namespace {

constexpr double two_to_64 = 0x1p64;
// sample_sparse is faster from this many leading zeros of the threshold on, sample_dense before.
constexpr int zeros_for_darts = 5;

// The threshold of a rate, at least 1; 0 for a rate of 1.
std::uint64_t threshold_for(const char* op, double rate) {
  check(rate > 0 && rate <= 1, "{}: rate {} outside (0, 1]", op, rate);
  const double scaled = rate * two_to_64;
  if (scaled >= two_to_64) return 0;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(scaled));
}

// The number of leading bits that are certainly 0 in a random number below the threshold.
int zeros_of(std::uint64_t threshold) { return threshold == 0 ? 0 : std::countl_zero(threshold); }

// Compares a 64-bit random number with the threshold, most significant 16 bits first; the other 48
// are drawn only if those are equal, which does not change the number's distribution.
bool accept(std::uint16_t first_bits, std::uint64_t threshold, SecretRandom& random) {
  const auto threshold_bits = static_cast<std::uint16_t>(threshold >> 48);
  if (first_bits != threshold_bits) return first_bits < threshold_bits;
  constexpr std::uint64_t low_48 = (std::uint64_t{1} << 48) - 1;
  return (random.word() & low_48) < (threshold & low_48);
}

// Returns c with probability e^-1 / c!: a c drawn with probability 2^-(c+1) is accepted with 2^c /
// (2 c!).
int poisson_of_mean_1(SecretRandom& random) {
  for (;;) {
    std::uint64_t word = random.word();
    int count = std::countr_zero(word);
    while (word == 0) count += std::countr_zero(word = random.word());
    bool kept = count > 0 || (word & 2) == 0;
    for (int i = 3; kept && i <= count; ++i) kept = random.below(i) < 2;
    if (kept) return count;
  }
}

struct Dart {
  std::int64_t place;
  bool taken;
};

// Throws a Poisson number of darts, of mean 1, each at one of 2^zeros - 1 places, and repeats until
// no two hit one place: a subset of m places then has a probability proportional to (2^zeros -
// 1)^-m, which is that of places hit independently with probability 2^-zeros. The rest of a dart's
// word supplies the random number's other bits.
void throw_darts(std::vector<Dart>& darts, std::uint64_t threshold, SecretRandom& random) {
  const int zeros = zeros_of(threshold);
  const std::uint64_t places = (std::uint64_t{1} << zeros) - 1;
  const auto less = [](const Dart& a, const Dart& b) { return a.place < b.place; };
  const auto same = [](const Dart& a, const Dart& b) { return a.place == b.place; };
  do {
    darts.resize(static_cast<std::size_t>(poisson_of_mean_1(random)));
    for (Dart& dart : darts) {
      std::uint64_t word = random.word();
      while ((word & places) == places) word = random.word();
      dart = {static_cast<std::int64_t>(word & places), word >> zeros < threshold};
    }
    std::sort(darts.begin(), darts.end(), less);
  } while (std::adjacent_find(darts.begin(), darts.end(), same) != darts.end());
}

// A set of non-negative numbers, in a hash table with open addressing that is at most half full.
class NumberSet {
 public:
  explicit NumberSet(std::int64_t max)
      : slots_(std::bit_ceil(2 * static_cast<std::uint64_t>(max) + 2), none) {}
  // Returns whether the number is new.
  bool insert(std::int64_t number) {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15u;  // Knuth's multiplicative hashing
    std::size_t at =
        (static_cast<std::uint64_t>(number) * golden) >> (64 - std::countr_zero(slots_.size()));
    while (slots_[at] != none && slots_[at] != number) at = (at + 1) & (slots_.size() - 1);
    return std::exchange(slots_[at], number) == none;
  }
  // The members in increasing order.
  std::vector<std::int64_t> members() && {
    std::erase(slots_, none);
    std::sort(slots_.begin(), slots_.end());
    return std::move(slots_);
  }

 private:
  static constexpr std::int64_t none = -1;
  std::vector<std::int64_t> slots_;
};

// A set of numbers below n, as bits, with a second level of one bit for each 64 of them to find the
// few that are set.
class BitSet {
 public:
  BitSet(std::int64_t n, std::int64_t max)
      : words_(static_cast<std::size_t>(n / 64 + 1)),
        some_(words_.size() / 64 + 1),
        most_(static_cast<std::size_t>(max)) {}
  bool insert(std::int64_t number) {
    const auto at = static_cast<std::uint64_t>(number);
    set(some_, at / 64);
    return set(words_, at);
  }
  std::vector<std::int64_t> members() && {
    // A second number is written for each word whether it has one or not, without a branch: the
    // next write overwrites it.
    constexpr std::size_t unasked = 1;
    constexpr std::uint64_t guard = std::uint64_t{1} << 63;  // no special case for no bits
    std::vector<std::int64_t> numbers(most_ + unasked);
    std::int64_t* next = numbers.data();
    const auto from_word = [&](std::size_t at) {
      std::uint64_t rest = words_[at];
      const auto write_lowest = [&] {
        *next = static_cast<std::int64_t>(at * 64) + std::countr_zero(rest | guard);
        next += rest != 0 ? 1 : 0;
        rest &= rest - 1;
      };
      for (std::size_t k = 0; k <= unasked; ++k) write_lowest();
      while (rest != 0) write_lowest();
    };
    for (std::size_t k = 0; k < some_.size(); ++k) {
      for (std::uint64_t left = some_[k]; left != 0; left &= left - 1)
        from_word(k * 64 + static_cast<std::size_t>(std::countr_zero(left)));
    }
    numbers.resize(static_cast<std::size_t>(next - numbers.data()));
    return numbers;
  }

 private:
  // Returns whether the bit was clear.
  static bool set(std::vector<std::uint64_t>& words, std::uint64_t at) {
    const std::uint64_t bit = std::uint64_t{1} << (at % 64);
    std::uint64_t& word = words[at / 64];
    return (std::exchange(word, word | bit) & bit) == 0;
  }

  std::vector<std::uint64_t> words_, some_;
  std::size_t most_;
};

template <class Set>
std::vector<std::int64_t> floyd(std::int64_t n, std::int64_t size, Set taken,
                                SecretRandom& random) {
  const auto word = [&] { return random.word(); };
  for (std::int64_t last = n - size; last < n; ++last) {
    if (!taken.insert(uniform_int(last + 1, word))) taken.insert(last);
  }
  return std::move(taken).members();
}

}  // namespace

IndependentSubset::IndependentSubset(const char* op, double rate)
    : threshold_(threshold_for(op, rate)) {}

double IndependentSubset::rate() const {
  if (threshold_ == 0) return 1;
  double rounded = static_cast<double>(threshold_);
  // Thresholds from a double have at most 53 significant bits, so this is only a guard.
  if (rounded < two_to_64 && static_cast<std::uint64_t>(rounded) < threshold_)
    rounded = std::nextafter(rounded, two_to_64);
  return rounded / two_to_64;
}

std::vector<std::int64_t> IndependentSubset::draw(std::int64_t n, SecretRandom& random) {
  return zeros_of(threshold_) >= zeros_for_darts ? sample_sparse(n, random)
                                                 : sample_dense(n, random);
}

std::vector<std::int64_t> IndependentSubset::sample_dense(std::int64_t n, SecretRandom& random) {
  std::vector<std::int64_t> taken;
  if (threshold_ == 0) {
    taken.resize(static_cast<std::size_t>(n));
    std::iota(taken.begin(), taken.end(), 0);
    return taken;
  }
  constexpr std::int64_t coins_in_word = 4;
  words_.resize(static_cast<std::size_t>((n + coins_in_word - 1) / coins_in_word));
  random.fill(std::span<std::uint64_t>(words_));
  for (std::int64_t unit = 0; unit < n; ++unit) {
    const std::uint64_t word = words_[static_cast<std::size_t>(unit / coins_in_word)];
    if (accept(static_cast<std::uint16_t>(word >> (16 * (unit % coins_in_word))), threshold_,
               random))
      taken.push_back(unit);
  }
  return taken;
}

std::vector<std::int64_t> IndependentSubset::sample_sparse(std::int64_t n, SecretRandom& random) {
  const int zeros = zeros_of(threshold_);
  check(zeros >= 1, "sample_sparse: a rate of {}, not below 1/2", rate());
  const auto places = static_cast<std::int64_t>((std::uint64_t{1} << zeros) - 1);
  std::vector<std::int64_t> taken;
  std::vector<Dart> darts;
  // The last block may extend beyond n: hits there belong to no unit.
  for (std::int64_t left = n; left > 0; left -= places) {
    throw_darts(darts, threshold_, random);
    for (const Dart& dart : darts) {
      if (dart.taken && dart.place < left) taken.push_back(n - left + dart.place);
    }
  }
  return taken;
}

std::vector<std::int64_t> uniform_subset(std::int64_t n, std::int64_t size, SecretRandom& random) {
  check(size >= 0 && size <= n, "uniform_subset: {} of {} units", size, n);
  // Clearing words of 64 units is cheaper than sorting one unit, up to 16 words (128 bytes) for
  // each unit drawn.
  constexpr std::int64_t words_for_one = 16;
  if (n / 64 <= words_for_one * size) return floyd(n, size, BitSet(n, size), random);
  return floyd(n, size, NumberSet(size), random);
}

}  // namespace sotto
