#include "samples/text/sentences.h"

#include <array>

#include <fmt/format.h>

#include "core/random/philox.h"

namespace sotto::text {

namespace {

constexpr std::size_t places = 3;
constexpr std::size_t words = 4;
using Words = std::array<std::array<const char*, words>, places>;

constexpr std::array place_names = {"garden", "harbor", "kitchen"};
constexpr Words people = {{{"gardener", "neighbor", "child", "beekeeper"},
                           {"captain", "sailor", "fisher", "diver"},
                           {"cook", "baker", "guest", "waiter"}}};
constexpr Words things = {{{"roses", "apples", "hedge", "bees"},
                           {"anchor", "nets", "boat", "tide"},
                           {"soup", "bread", "knives", "oven"}}};
constexpr std::array verbs = {"watches", "likes", "forgets", "looks after", "talks about"};
constexpr std::array adjectives = {"old", "quiet", "young", "busy", "small", "tired"};
constexpr std::array endings = {"today", "every morning", "in the rain", "with a friend"};

template <class List>
const auto& one_of(const List& list, PublicRandom& random) {
  return list[static_cast<std::size_t>(random.below(std::ssize(list)))];
}

// A word of the place, or, one time in ten, of any.
const char* word(const Words& of, std::size_t place, PublicRandom& random) {
  constexpr double elsewhere = 0.1;
  return one_of(random.uniform() < elsewhere ? one_of(of, random) : of[place], random);
}

}  // namespace

std::vector<std::string> sentence_classes() { return {place_names.begin(), place_names.end()}; }

Sentence sentence(std::uint64_t seed, std::int64_t number) {
  PublicRandom random(seed, static_cast<std::uint64_t>(number));
  const auto place = static_cast<std::size_t>(random.below(std::ssize(place_names)));
  const char* const adjective = one_of(adjectives, random);
  const char* const who = word(people, place, random);
  const char* const verb = one_of(verbs, random);
  const char* const what = word(things, place, random);
  return {
      fmt::format("the {} {} {} the {} {}.", adjective, who, verb, what, one_of(endings, random)),
      static_cast<std::int64_t>(place)};
}

Dataset sentences(std::int64_t count, std::uint64_t seed, std::int64_t first,
                  const TextOptions& options) {
  std::string all;
  std::vector<std::int64_t> of_unit, of_row;
  for (std::int64_t k = first; k < first + count; ++k) {
    const Sentence one = sentence(seed, k);
    all += one.text + "\n";
    of_unit.push_back(one.place);
  }
  Dataset rows = text_dataset(all, "--alphabet: the sentences made up by the program", options);
  for (const std::int64_t unit : rows.units)
    of_row.push_back(of_unit[static_cast<std::size_t>(unit)]);
  rows.targets = Tensor::from(of_row, {rows.size()});
  return rows;
}

}  // namespace sotto::text
