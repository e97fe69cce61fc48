// Trains on the rows of a table with differential privacy, and uses the model; see --help.

#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "dp/engine/private_schema.h"
#include "nn/data/tables/schema_guess.h"
#include "nn/data/tables/table_reader.h"
#include "samples/cli/command_line.h"
#include "samples/cli/model_command.h"
#include "samples/cli/program.h"
#include "samples/cli/subcommands.h"
#include "samples/report/charts.h"
#include "samples/report/results.h"
#include "samples/tabular/people.h"
#include "samples/tabular/results.h"
#include "samples/tabular/tabular_task.h"
#include "samples/training/program.h"

namespace sotto::tabular {

namespace {

constexpr std::int64_t rows_at_a_time = 4096;

struct SchemaRequest {
  std::string data, out;
  GuessOptions guess;
  std::string header = "auto";
  bool made_public = false;
  // The draft whose numbers are paid for from a new ledger; empty: everything is guessed.
  std::string draft, ledger;
  std::optional<double> epsilon;
  double delta = 1e-5;
};

void check_request(const SchemaRequest& request) {
  samples::require_given("--data", request.data);
  samples::check_writable("--out", request.out);
  samples::check_writable("--ledger", request.ledger);
  samples::check_distinct({request.out, request.ledger});
  const bool paid = request.epsilon.has_value();
  samples::require(!paid || (std::isfinite(*request.epsilon) && *request.epsilon > 0),
                   "--schema-epsilon", request.epsilon.value_or(0), "a positive number");
  samples::require(request.delta > 0 && request.delta < 1, "--delta", request.delta,
                   "between 0 and 1");
  check(paid == !request.draft.empty() && paid == !request.ledger.empty(),
        "--schema, --schema-epsilon, --ledger: give all three to pay for ranges, or none");
  check(request.out.empty() || paid || request.made_public,
        "--out: a schema is public and this one is read from the rows: look at it without --out, "
        "then give --i-made-this-public, or pay for ranges with --schema-epsilon");
  std::error_code none;
  check(!paid || !std::filesystem::exists(request.ledger, none),
        "--ledger: {} exists already: a schema is paid for first", request.ledger);
}

std::string guessed(const SchemaRequest& request) {
  try {
    return guess_schema(request.data, request.guess).to_json();
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("--label, --user, --header: {}", error.what()));
  }
}

std::string paid_for(const SchemaRequest& request) {
  const TableSchema draft = TableSchema::load_draft(request.draft);
  Ledger ledger = Ledger::create(request.ledger, {.unit = privacy_unit(draft)});
  try {
    return release_schema(request.data, draft, ledger,
                          {.epsilon = *request.epsilon, .delta = request.delta})
        .to_json();
  } catch (...) {
    std::error_code none;
    if (ledger.releases() == 0) std::filesystem::remove(request.ledger, none);
    throw;
  }
}

int evaluate(int argc, const char* const* argv) {
  auto command = samples::ModelCommand::evaluate(
      {.about = "Measures a saved model on the rows of a table that has labels.",
       .train = "sotto-tabular train --save",
       .data = "rows, with the columns of the model's schema",
       .type = "FILE",
       .row = "row"});
  if (!command.parse(argc, argv)) return 0;
  const SavedTableModel saved = load_model(command.model);
  const Dataset rows =
      read_table(command.data, saved.schema, {.category_indices = reads_indices(saved.options)});
  TrainingReport report;
  describe_results(outputs_of_rows(*saved.network, rows), rows.targets, saved.schema, report);
  command.tell_results(report, rows.size());
  return 0;
}

int predict(int argc, const char* const* argv) {
  auto command = samples::ModelCommand::predict(
      {.about = "Predicts the label of each row of a table, in constant memory.",
       .train = "sotto-tabular train --save",
       .data = "rows; the label's column may be absent and is not read",
       .type = "FILE",
       .row = "row"});
  if (!command.parse(argc, argv)) return 0;
  const SavedTableModel saved = load_model(command.model);
  TableReader reader(command.data, saved.schema,
                     {.labels = false, .category_indices = reads_indices(saved.options)});
  std::int64_t count = 0;
  write_file_atomically(command.out, [&](FileWriter& writer) {
    writer.write(prediction_header(saved.schema));
    for (Dataset rows = reader.next(rows_at_a_time); rows.size() > 0;
         rows = reader.next(rows_at_a_time)) {
      writer.write(prediction_lines(outputs_of_rows(*saved.network, rows), saved.schema));
      count += rows.size();
    }
  });
  command.tell_predictions(count);
  return 0;
}

int schema(int argc, const char* const* argv) {
  SchemaRequest request;
  samples::CommandLine line(
      "Proposes a schema for a table and says, column by column, what it read for that. A schema "
      "is public: correct ranges and categories from what is known without the rows, or pay for "
      "ranges, means and deviations with a part of the privacy budget.");
  line.group("Options");
  line.option("--data", request.data, "CSV or TSV file, plain or gzipped", "FILE");
  line.option("--label", request.guess.label, "column to predict; the last one if not given",
              "COLUMN");
  line.option("--user", request.guess.user, "column that says whose row it is: the privacy unit",
              "COLUMN");
  line.choice("--header", request.header,
              "whether the first line has the columns' names; auto: by the rows below it",
              {"auto", "yes", "no"});
  line.option("--out", request.out, "write the schema here, which publishes what it says", "FILE");
  line.flag("--i-made-this-public", request.made_public,
            "I know what the comments name from elsewhere, or make it public (for --out)");
  line.group("Paid for");
  line.option("--schema", request.draft,
              "columns, kinds and categories, public; its numbers may lack min and max", "FILE");
  line.option("--schema-epsilon", request.epsilon,
              "epsilon that range, mean and deviation of these numbers cost together", "X");
  line.option("--delta", request.delta, "the probability that epsilon may fail by", "X");
  line.option("--ledger", request.ledger,
              "count it here; `train --ledger` continues on the same budget", "FILE");
  for (const char* option : {"--label", "--user", "--header", "--i-made-this-public"})
    line.conflict(option, "--schema-epsilon");
  if (!line.parse(argc, argv)) return 0;
  check(request.epsilon || !line.given("--delta"), "--delta: needs --schema-epsilon");
  if (request.header != "auto") request.guess.header = request.header == "yes";
  check_request(request);
  const std::string text = request.epsilon ? paid_for(request) : guessed(request);
  if (request.out.empty()) {
    request.epsilon ? samples::print_result(text) : samples::print_text(text);
  } else {
    samples::write_text({request.out, text});
  }
  return 0;
}

int people(int argc, const char* const* argv) {
  std::string out, schema;
  std::int64_t rows = 1000, first = 0;
  std::uint64_t seed = 0;
  samples::CommandLine line("Writes a table of people made up by the program, and its schema.");
  line.group("Options");
  line.option("--out", out, "write the rows here, as CSV", "FILE");
  line.option("--schema", schema, "write the schema here", "FILE");
  line.option("--rows", rows, "number of people", "N");
  line.option("--first", first, "number of the first one in an endless table", "N");
  line.add_seed(seed, "the table");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--out", out);
  constexpr std::int64_t max_rows = std::int64_t{1} << 24;
  samples::require(rows >= 1 && rows <= max_rows, "--rows", rows, "from 1 to 2^24");
  samples::require(first >= 0 && first <= max_rows, "--first", first, "from 0 to 2^24");
  samples::check_writable("--out", out);
  samples::check_writable("--schema", schema);
  samples::check_distinct({out, schema});
  samples::write_texts(
      {{out, made_up_people(rows, seed, first)}, {schema, people_schema().to_json()}});
  return 0;
}

}  // namespace

}  // namespace sotto::tabular

int main(int argc, char** argv) {
  using namespace sotto::tabular;
  return sotto::samples::run_subcommand(
      {.name = "tabular",
       .about = "Learns from the rows of a table with differential privacy.",
       .examples =
           R"(    sotto-tabular train --data adult.data --schema adult.json --epsilon 1 --save adult.safetensors --report adult.html
    sotto-tabular evaluate --model adult.safetensors --data adult.test
    sotto-tabular predict --model adult.safetensors --data people.csv --out predictions.csv
)"},
      {{"train", "trains a model; without --data, on people made up by the program",
        sotto::samples::train_command<TabularTask>},
       {"evaluate", "measures a model on rows with labels", evaluate},
       {"predict", "predicts the labels of rows", predict},
       {"schema", "proposes a schema: the public description of a table's columns", schema},
       {"people", "writes a table of people made up by the program, to try the others on", people}},
      argc, argv);
}
