#include "dp/engine/private_schema.h"

#include <array>
#include <cmath>

#include "core/random/secret_random.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "nn/data/tables/table_reader.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr const char* draft_text = R"({"columns": [
  {"name": "age", "kind": "number"},
  {"name": "color", "kind": "category", "categories": ["red", "blue"]},
  {"name": "known", "kind": "number", "min": 0, "max": 1},
  {"name": "debt", "kind": "number", "log": true},
  {"name": "who", "kind": "user"},
  {"name": "price", "kind": "label"}
]})";

// Ages from 20 to 59, of which every fifth is missing; debts of 0 and 1000; prices around -3; and
// one row far outside. Each user has `rows` rows, of which the later ones are outliers.
std::string table(int users, int rows = 1) {
  std::string text = "age,color,known,debt,who,price\n";
  for (int k = 0; k < users; ++k) {
    const std::string age = k % 5 == 0 ? "?" : std::to_string(20 + k % 40);
    text += fmt::format("{},red,0.5,{},u{},{}\n", k == 77 ? "1e9" : age, k % 2 * 1000, k,
                        -3 + 0.5 * (k % 3 - 1));
    for (int row = 1; row < rows; ++row) text += fmt::format("-5000,blue,0.5,-7,u{},1e6\n", k);
  }
  return text;
}

class Files {
 public:
  explicit Files(const std::string& rows, const std::string& draft = draft_text) {
    folder_.write("rows.csv", rows);
    folder_.write("draft.json", draft);
  }
  SchemaGuess release(Ledger& ledger, const SchemaBudget& budget) const {
    return release_schema(folder_.path() + "/rows.csv", draft(), ledger, budget);
  }
  TableSchema draft() const { return TableSchema::load_draft(folder_.path() + "/draft.json"); }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("ranges, means and deviations of numbers without a range are found") {
  for (const int rows : {1, 3}) {
    CAPTURE(rows);  // later rows of a user do not count
    const Files files(table(4000, rows));
    Ledger ledger({.unit = "one user"});
    const SchemaGuess found = files.release(ledger, {.epsilon = 5, .delta = 1e-5});
    const std::vector<TableColumn>& columns = found.schema.columns;
    CHECK(columns[0].range->min == 16);
    CHECK(columns[0].range->max == 64);
    CHECK(columns[0].standardization->mean == Approx(40).margin(1));
    CHECK(columns[0].standardization->deviation == Approx(11.6).margin(1));
    CHECK(*columns[0].missing_value == columns[0].standardization->mean);
    CHECK(columns[2].range->max == 1);
    CHECK_FALSE(columns[2].standardization);
    CHECK(columns[3].range->min == 0);
    CHECK(columns[3].range->max == 1024);
    CHECK(columns[3].logarithmic);
    CHECK_FALSE(columns[3].standardization);
    CHECK(columns[5].range->min == -4);
    CHECK(columns[5].range->max == -2);
    CHECK(columns[5].standardization->mean == Approx(-3).margin(0.05));
    CHECK_FALSE(columns[5].missing_value);
    CHECK(found.notes[1] == "as in the draft");
    CHECK(found.notes[0].find("epsilon 5 and delta 1e-05") != std::string::npos);
    CHECK(TableSchema::from_json(found.to_json()).to_json() == found.schema.to_json());
  }
}

TEST_CASE("two planned releases over all units cost the budget, and no more") {
  const Files files(table(4000));
  Ledger ledger({.unit = "one user"});
  files.release(ledger, {.epsilon = 0.5, .delta = 1e-6});
  CHECK(ledger.releases() == 2);
  CHECK(ledger.population() == 4000);
  REQUIRE(ledger.events().size() == 1);
  CHECK(ledger.events()[0].first.sampling == Sampling::full_batch);
  CHECK_FALSE(ledger.history().adaptive);
  CHECK(epsilon(ledger, 1e-6) <= 0.5);
  CHECK(epsilon(ledger, 1e-6) > 0.499);
  CHECK(throws([&] { files.release(ledger, {}); }, "the ledger holds 2 releases"));
}

TEST_CASE("values that few units have widen no range, whatever the budget") {
  const Files files(table(4000));
  Ledger ledger({.unit = "one user"});
  const SchemaGuess found = files.release(ledger, {.epsilon = 20, .delta = 1e-5});
  CHECK(found.schema.columns[0].range->max == 64);
}

TEST_CASE("a column without frequent values is ignored") {
  std::string rows = "x,z,y\n";
  for (int k = 0; k < 3000; ++k) rows += fmt::format("?,{},a\n", k % 7);
  const Files files(rows, R"({"columns": [{"name": "x", "kind": "number"},
      {"name": "z", "kind": "number"}, {"name": "y", "kind": "label", "categories": ["a", "b"]}]})");
  Ledger ledger;
  const SchemaGuess found = files.release(ledger, {.epsilon = 3, .delta = 1e-5});
  CHECK(found.schema.columns[0].kind == ColumnKind::ignore);
  CHECK(found.notes[0].starts_with("ignored: no value is frequent"));
  CHECK(found.schema.columns[1].range->min == 0);
  CHECK(found.schema.columns[1].range->max == 8);
}

namespace {

constexpr const char* texts_draft = R"({"missing": "NA", "columns": [
  {"name": "color", "kind": "category", "missing": true},
  {"name": "size", "kind": "category", "categories": ["S", "M"]},
  {"name": "town", "kind": "category"},
  {"name": "who", "kind": "user"},
  {"name": "y", "kind": "label", "categories": ["a", "b"]}
]})";

// Colors of which a tenth of the users has one alone, and others too many bytes or none; later rows
// of a user, where a third color and a third town are frequent, do not count.
std::string texts(int users) {
  const std::array<std::string, 5> colors{"red", "gr\u00fcn", "NA", "\"light, blue\"",
                                          std::string(40, 'x')};
  std::string text = "who,town,size,color,y\n";
  for (int k = 0; k < users; ++k) {
    const std::string color = k % 10 == 9 ? fmt::format("secret{}", k) : colors[k % 5];
    text += fmt::format("u{},{},M,{},a\n", k, k % 3 == 0 ? "Ulm" : "B", color);
    text += fmt::format("u{},Rome,S,pink,b\n", k);
  }
  return text;
}

std::vector<std::string> names(const TableColumn& column) {
  std::vector<std::string> all;
  for (const Category& category : column.categories) all.push_back(category.name);
  return all;
}

}  // namespace

TEST_CASE("categories that many units share are found without a list, and others are not") {
  for (const double budget : {5.0, 30.0}) {
    const Files files(texts(4000), texts_draft);
    Ledger ledger({.unit = "one user"});
    const SchemaGuess found = files.release(ledger, {.epsilon = budget, .delta = 1e-5});
    const std::vector<TableColumn>& columns = found.schema.columns;
    CHECK(names(columns[0]) == std::vector<std::string>{"gr\u00fcn", "light, blue", "red"});
    CHECK(names(columns[2]) == std::vector<std::string>{"B", "Ulm"});
    CHECK(columns[0].other);
    CHECK(columns[0].missing);
    CHECK_FALSE(columns[2].missing);
    CHECK(found.notes[1] == "as in the draft");
    CHECK(found.notes[2].find("delta 1e-05") != std::string::npos);
    CHECK(ledger.releases() == 2);
    CHECK(epsilon(ledger, 1e-5) <= budget);
    CHECK(epsilon(ledger, 1e-5) > 0.99 * budget);
    CHECK(TableSchema::from_json(found.to_json()).to_json() == found.schema.to_json());
  }
}

TEST_CASE("numbers and categories share one budget") {
  std::string rows = "x,z,y\n";
  for (int k = 0; k < 4000; ++k) rows += fmt::format("{},t{},a\n", k % 7, k % 4);
  const Files files(rows, R"({"columns": [{"name": "x", "kind": "number"},
      {"name": "z", "kind": "category"}, {"name": "y", "kind": "label", "categories": ["a", "b"]}]})");
  Ledger ledger;
  const SchemaGuess found = files.release(ledger, {.epsilon = 3, .delta = 1e-5});
  CHECK(found.schema.columns[0].range->max == 8);
  CHECK(names(found.schema.columns[1]) == std::vector<std::string>{"t0", "t1", "t2", "t3"});
  CHECK(ledger.releases() == 4);
  CHECK_FALSE(ledger.history().adaptive);
  CHECK(epsilon(ledger, 1e-5) <= 3);
}

TEST_CASE("a column whose texts all differ is ignored") {
  std::string rows = "x,z,y\n";
  for (int k = 0; k < 3000; ++k) rows += fmt::format("0.5,id{},a\n", k);
  const Files files(rows, R"({"columns": [{"name": "x", "kind": "number", "min": 0, "max": 1},
      {"name": "z", "kind": "category"}, {"name": "y", "kind": "label", "categories": ["a", "b"]}]})");
  Ledger ledger;
  const SchemaGuess found = files.release(ledger, {.epsilon = 3, .delta = 1e-5});
  CHECK(found.schema.columns[1].kind == ColumnKind::ignore);
  CHECK(found.notes[1].starts_with("ignored: no value is frequent"));
}

TEST_CASE("what cannot be paid for is refused, and nothing is spent") {
  Ledger ledger({.unit = "one user"});
  const Files few(table(100));
  CHECK(throws([&] { few.release(ledger, {.epsilon = 0.1}); }, "schema: the budget is too small"));
  CHECK(throws([&] { few.release(ledger, {.epsilon = 1, .delta = 0.01}); },
               "schema: delta 0.01 is not below 1 / 100 units"));
  const Files wrong(table(4000) + "30,green,0,0,u1,1\n");
  CHECK(throws<SystemFailure>([&] { wrong.release(ledger, {.epsilon = 5}); },
                              "line 4002, column color: unknown category 'green'"));
  const Files none("known,y\n1,a\n", R"({"columns": [
      {"name": "known", "kind": "number", "min": 0, "max": 1},
      {"name": "y", "kind": "label", "categories": ["a", "b"]}]})");
  CHECK(throws([&] { none.release(ledger, {}); }, "no number lacks a range"));
  CHECK(throws<SystemFailure>(
      [&] { Files("age,color,known,debt,who,price\n").release(ledger, {}); }, "no rows"));
  CHECK(ledger.releases() == 0);
}

TEST_CASE("a draft's numbers may lack a range and its categories their list, and nothing else") {
  const TableSchema draft = Files("").draft();
  CHECK(draft.columns[0].lacks_range());
  CHECK_FALSE(draft.columns[1].lacks_range());
  CHECK_FALSE(draft.columns[1].lacks_categories());
  const TableSchema unlisted = Files("", texts_draft).draft();
  CHECK(unlisted.columns[0].lacks_categories());
  CHECK(throws([&] { unlisted.validate(); }, "color: 0 categories"));
  CHECK_FALSE(draft.columns[2].lacks_range());
  CHECK(draft.columns[5].lacks_range());
  CHECK(throws([&] { draft.validate(); }, "age: a number without min and max"));
  CHECK(throws([] { Files("", R"({"columns": [{"name": "x", "kind": "number"}]})").draft(); },
               "0 columns of kind label"));
}

TEST_CASE("histograms count each unit once in each of them") {
  constexpr std::int64_t units = 400, histograms = 3, bins = 5;
  Ledger ledger;
  GaussianMechanism mechanism(2, SecretRandom::insecure_seeded(5));
  FullBatchSampler sampler(units);
  HistogramSum sum(histograms, bins);
  double square = 0;
  constexpr int releases = 300;
  for (int i = 0; i < releases; ++i) {
    for (std::int64_t unit = 0; unit < units; ++unit)
      sum.add(std::vector<std::int64_t>{unit % 2, 4, unit < 100 ? 3 : -1});
    const std::vector<double> found = mechanism.release(sum.finish(sampler.draw()), ledger);
    std::vector<double> want(histograms * bins, 0);
    want[0] = want[1] = 0.5;
    want[bins + 4] = 1;
    want[2 * bins + 3] = 0.25;
    for (std::size_t k = 0; k < want.size(); ++k)
      square += (found[k] - want[k]) * (found[k] - want[k]) / (releases * histograms * bins);
  }
  // A unit moves one count of each histogram by 1.
  const double stddev = 2 * std::sqrt(static_cast<double>(histograms)) / units;
  CHECK(square / (stddev * stddev) == Approx(1).margin(0.15));
  CHECK(throws([&] { sum.add(std::vector<std::int64_t>{0, 5, 0}); }, "HistogramSum: bin 5 of 5"));
  CHECK(throws([&] { sum.add(std::vector<std::int64_t>{0}); }, "HistogramSum: 1 bins of 3"));
  CHECK(throws([&] { sum.finish(sampler.draw()); }, "HistogramSum: 400 units were drawn and 0"));
}

TEST_CASE("a unit more or less moves histograms by no more than their sensitivity") {
  // Without noise worth mentioning: the counts of all units, and of all but one.
  const auto counts = [](std::int64_t left_out) {
    Ledger ledger;
    GaussianMechanism mechanism(1e-6);
    const std::int64_t units = left_out < 0 ? 30 : 29;
    FullBatchSampler sampler(units);
    HistogramSum sum(4, 9);
    for (std::int64_t unit = 0; unit < 30; ++unit) {
      if (unit == left_out) continue;
      sum.add(std::vector<std::int64_t>{unit % 9, unit * unit % 9, unit % 3 - 1, unit % 2});
    }
    std::vector<double> y = mechanism.release(sum.finish(sampler.draw()), ledger);
    for (double& fraction : y) fraction *= static_cast<double>(units);
    return y;
  };
  const std::vector<double> all = counts(-1);
  for (std::int64_t unit = 0; unit < 30; ++unit) {
    const std::vector<double> rest = counts(unit);
    double square = 0;
    for (std::size_t k = 0; k < all.size(); ++k) square += (all[k] - rest[k]) * (all[k] - rest[k]);
    CHECK(std::sqrt(square) == Approx(unit % 3 == 0 ? std::sqrt(3.0) : 2).epsilon(1e-3));
  }
}

}  // namespace sotto
