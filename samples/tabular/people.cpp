#include "samples/tabular/people.h"

#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "core/random/philox.h"

namespace sotto::tabular {

namespace {

constexpr const char* schema_text = R"({
  "columns": [
    {"name": "age", "kind": "number", "min": 16, "max": 80},
    {"name": "school_years", "kind": "number", "min": 8, "max": 20},
    {"name": "city", "kind": "category", "categories": ["Aachen", "Bergen", "Cork", "Delft", "Evora"]},
    {"name": "work", "kind": "category", "categories": ["office", "shop", "farm", "clinic", "school"], "missing": true},
    {"name": "kilometers", "kind": "number", "min": 0, "max": 60, "log": true},
    {"name": "cycles", "kind": "label", "categories": ["no", "yes"]}
  ]
})";

constexpr std::array cities = {"Aachen", "Bergen", "Cork", "Delft", "Evora"};
constexpr std::array flatness = {0.2, -1.5, -0.6, 2.2, 0.0};
constexpr std::array works = {"office", "shop", "farm", "clinic", "school", "?"};

struct Person {
  int age, school_years;
  std::size_t city, work;  // indices
  double kilometers;
  bool cycles;
};

Person person(std::uint64_t seed, std::int64_t number) {
  PublicRandom random(seed, static_cast<std::uint64_t>(number));
  Person p{};
  p.age = static_cast<int>(16 + random.below(65));
  p.school_years = static_cast<int>(8 + random.below(13));
  p.city = static_cast<std::size_t>(random.below(std::ssize(cities)));
  p.work = static_cast<std::size_t>(random.below(std::ssize(works)));
  const double distance = random.uniform();
  p.kilometers = std::round(300 * distance * distance) / 10;
  const double score = 1.6 - 0.35 * p.kilometers - 0.03 * (p.age - 40) + flatness[p.city] +
                       0.08 * (p.school_years - 14);
  p.cycles = random.uniform() < 1 / (1 + std::exp(-2 * score));
  return p;
}

}  // namespace

TableSchema people_schema() { return TableSchema::from_json(schema_text, "the people's schema"); }

std::string made_up_people(std::int64_t count, std::uint64_t seed, std::int64_t first) {
  std::string csv = "age,school_years,city,work,kilometers,cycles\n";
  for (std::int64_t k = first; k < first + count; ++k) {
    const Person p = person(seed, k);
    csv += fmt::format("{},{},{},{},{:.1f},{}\n", p.age, p.school_years, cities[p.city],
                       works[p.work], p.kilometers, p.cycles ? "yes" : "no");
  }
  return csv;
}

}  // namespace sotto::tabular
