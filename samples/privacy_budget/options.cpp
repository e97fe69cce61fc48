#include "samples/privacy_budget/options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/join.h"
#include "samples/cli/cli11_options.h"
#include "samples/cli/program.h"

namespace sotto::budget {

namespace {

constexpr int help_column = 30;
constexpr double usual_delta = 1e-5;

// A subcommand: its description, and the phase options that it searches for or fixes.
struct Verb {
  Command command;
  const char* name;
  const char* text;
  std::vector<std::string> without;
  const char* examples;
};

const std::array<Verb, 6>& verbs() {
  static const std::array<Verb, 6> all = {
      {{Command::spent,
        "spent",
        "the privacy spent by a training: epsilon for given deltas, delta for given epsilons",
        {},
        "  sotto-privacy-budget spent --ledger run.ledger --delta 1e-5\n"
        "  sotto-privacy-budget spent --noise-multiplier 1.1 --dataset-size 60000 --batch-size 256 "
        "--epochs 60 "
        "--delta 1e-5 1e-6\n"
        "  sotto-privacy-budget spent --dataset-size 60000 --batch-size 256 --delta 1e-5 \\\n"
        "      --phase noise-multiplier=1.3,epochs=10 --phase noise-multiplier=0.9,steps=500\n"},
       {Command::noise,
        "noise",
        "the smallest noise multiplier for a target epsilon",
        {"noise-multiplier"},
        "  sotto-privacy-budget noise --epsilon 3 --delta 1e-5 --dataset-size 60000 --batch-size "
        "256 "
        "--epochs "
        "60\n"},
       {Command::steps,
        "steps",
        "the largest number of steps within a target epsilon",
        {"steps", "epochs"},
        "  sotto-privacy-budget steps --epsilon 3 --delta 1e-5 --noise-multiplier 1.1 "
        "--dataset-size "
        "60000 "
        "--batch-size 256\n"},
       {Command::batch,
        "batch",
        "the largest batch, or sampling rate, within a target epsilon",
        {"batch-size", "sampling-rate", "epochs"},
        "  sotto-privacy-budget batch --epsilon 3 --delta 1e-5 --noise-multiplier 1.1 --steps 5000 "
        "--dataset-size 60000\n"},
       {Command::compare,
        "compare",
        "accountants and samplings, side by side",
        {"sampling", "batches-per-epoch", "truncation-probability", "max-batch-size"},
        "  sotto-privacy-budget compare --noise-multiplier 1.1 --dataset-size 60000 --batch-size "
        "256 "
        "--epochs "
        "60 --delta 1e-5\n"},
       {Command::inspect,
        "inspect",
        "which lines of a ledger are right, and what a damaged one cost at least",
        {},
        "  sotto-privacy-budget inspect run.ledger\n\n"
        "The file is not changed. The status is 0 for a whole ledger, 1 for a damaged one.\n"}}};
  return all;
}

const char* summary =
    "Answers questions about the privacy of a training: what it spent, and what a target allows.";

// The options of one subcommand, and the values they set.
class VerbLine {
 public:
  VerbLine(CLI::App& app, const Verb& verb) : verb_(verb) {
    sub_ = app.add_subcommand(verb.name, verb.text);
    sub_->footer(std::string("Examples:\n") + verb.examples);
    sub_->get_formatter()->column_width(help_column);
    add_question();
    add_phase();
    add_output();
  }

  bool chosen() const { return sub_->parsed(); }
  Options options() const;

 private:
  bool is(Command command) const { return verb_.command == command; }
  bool given(const std::string& option) const { return (*sub_)[option]->count() > 0; }
  void add_question();
  void add_phase();
  void add_output();
  void check_ledger() const;

  const Verb& verb_;
  CLI::App* sub_;
  Options options_;
  PhaseOptions phase_;
  std::vector<std::string> phase_texts_;
  std::string relation_, accountant_;
};

void VerbLine::add_question() {
  const bool many = is(Command::spent) || is(Command::inspect);
  if (is(Command::inspect)) options_.deltas = {usual_delta};
  auto* const delta = samples::add_option(
      *sub_, "--delta", options_.deltas,
      many ? fmt::format("the deltas to find epsilon for{}", is(Command::inspect) ? " (1e-5)" : "")
           : "the delta to keep to");
  delta->type_name("D")->group("Question")->delimiter(',');
  if (!many) delta->expected(1)->required();
  if (!is(Command::compare) && !is(Command::inspect)) {
    auto* const epsilon =
        samples::add_option(*sub_, "--epsilon", options_.epsilons,
                            many ? "the epsilons to find delta for" : "the epsilon to stay within");
    epsilon->type_name("E")->group("Question")->delimiter(',');
    if (!many) epsilon->expected(1)->required();
    samples::add_option(*sub_, "--accountant", accountant_,
                        "pld (tight), prv or rdp; if none is given, pld where it has a proof")
        ->type_name("NAME")
        ->group("Question");
  }
  samples::add_option(
      *sub_, "--relation", relation_,
      fmt::format("which data sets are neighbours: {}{}", join(relation_names(), ", "),
                  is(Command::compare) ? "; both, if none is given" : ""))
      ->type_name("NAME")
      ->group("Question");
}

void VerbLine::add_phase() {
  const char* const group = "Training";
  if (is(Command::inspect)) {
    samples::add_option(*sub_, "FILE", options_.ledger, "the ledger")->required();
    return;
  }
  if (is(Command::spent)) {
    samples::add_option(*sub_, "--ledger", options_.ledger,
                        "the ledger of a training, which may be running, instead of the below")
        ->type_name("FILE")
        ->group(group);
  }
  visit_phase_options(
      phase_, [&](const std::string& name, auto& member, const char* type, const char* text) {
        if (std::find(verb_.without.begin(), verb_.without.end(), name) != verb_.without.end())
          return;
        const std::string all =
            name == "sampling" ? fmt::format("{}: {}", text, join(sampling_names(), ", ")) : text;
        samples::add_option(*sub_, "--" + name, member, all)->type_name(type)->group(group);
      });
  if (is(Command::spent)) {
    samples::add_option(*sub_, "--phase", phase_texts_,
                        "one of several phases; the options above hold for what it leaves out")
        ->type_name("NAME=VALUE,...")
        ->group(group)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  if (is(Command::compare)) {
    samples::add_option(*sub_, "--groups", options_.groups,
                        "groups of cyclic_poisson; some, if not given")
        ->type_name("N")
        ->group(group);
  }
}

void VerbLine::add_output() {
  sub_->add_flag("--json", options_.json, "print JSON, with all digits, instead of tables")
      ->group("Output");
  if (is(Command::inspect)) return;
  samples::add_option(*sub_, "--report", options_.html,
                      "write a page with curves that needs nothing else")
      ->type_name("FILE")
      ->group("Output");
}

void VerbLine::check_ledger() const {
  check(phase_texts_.empty(), "--ledger and --phase do not go together");
  visit_phase_options(phase_, [&](const std::string& name, const auto&, const char*, const char*) {
    check(!given("--" + name), "--ledger and --{} do not go together", name);
  });
}

void check_probability(const char* option, double value) {
  check(value > 0 && value < 1, "{}: {} is not between 0 and 1", option, value);
}

std::optional<Method> parse_accountant(const std::string& wanted) {
  if (wanted.empty()) return std::nullopt;
  for (const Method method : {Method::pld, Method::rdp, Method::prv}) {
    if (wanted == name(method)) return method;
  }
  fail(fmt::format("--accountant: {} is not one of pld, rdp, prv", wanted));
}

Options VerbLine::options() const {
  Options options = options_;
  options.command = verb_.command;
  for (const double delta : options.deltas) check_probability("--delta", delta);
  for (const double epsilon : options.epsilons) {
    check(std::isfinite(epsilon) && (epsilon > 0 || (epsilon == 0 && is(Command::spent))),
          "--epsilon: {} is not a positive number", epsilon);
  }
  check(!options.deltas.empty() || !options.epsilons.empty(),
        "--delta: is missing (or give --epsilon)");
  if (!relation_.empty()) options.relation = parse_relation(relation_);
  options.accountant = parse_accountant(accountant_);
  check(!options.groups || *options.groups >= 1, "--groups: {} is not at least 1",
        options.groups.value_or(0));
  if (is(Command::inspect)) return options;
  samples::check_writable("--report", options.html);
  if (!options.ledger.empty()) {
    check_ledger();
    check(options.html.empty() || options.html != options.ledger, "--report: {} is the ledger",
          options.html);
    return options;
  }
  options.phases = {phase_};
  if (!phase_texts_.empty()) options.phases = parse_phases(phase_texts_, phase_);
  return options;
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  CLI::App app{summary};
  app.set_help_flag("-h,--help", "print this help and exit");
  app.footer("privacy_budget COMMAND --help lists the command's options and shows examples.");
  std::vector<std::unique_ptr<VerbLine>> lines;
  for (const Verb& verb : verbs()) lines.push_back(std::make_unique<VerbLine>(app, verb));
  if (!samples::parse_arguments(app, argc, argv)) return std::nullopt;
  for (const auto& line : lines) {
    if (line->chosen()) return line->options();
  }
  fail("a command is missing: spent, noise, steps, batch, compare or inspect (--help)");
}

}  // namespace sotto::budget
