#include "samples/tune/sweep.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "core/random/philox.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/engine/private_selection.h"
#include "dp/engine/validation.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/cli/program.h"
#include "samples/training/trained_model.h"

namespace sotto::tune {

namespace {

using samples::Data;
using samples::Options;
using samples::print;
using samples::Settings;

// Apart from the seeds of data and initial weights.
constexpr std::uint64_t sweep_seed = 0x5eed;

Settings with_setting(Settings settings, const SweepSetting& setting) {
  settings.learning_rate = setting.learning_rate;
  settings.clip_bound = setting.clip_bound;
  return settings;
}

// The result of a training with one setting.
struct Trained {
  SweepSetting setting;
  double score = 0, measure = 0;  // on the public rows, and on the test data
};

Trained trained(TuneTask& task, const Settings& common, const SweepSetting& setting,
                const Data& data, Ledger run) {
  task.fix_settings(setting.weight_decay);
  samples::TrainedModel model(task, with_setting(common, setting), data);
  model.options().tell = [](const std::string&) {};
  model.train(run);
  const auto averaged = model.averaged();
  return {setting, model.measure({.train = data.train, .test = task.clean()}), model.measure(data)};
}

// The result of a training that fails, because its weights became infinite or its clip bound is out
// of range, is the worst.
Trained trained_or_worst(TuneTask& task, const Settings& common, const SweepSetting& setting,
                         const Data& data, const Ledger& run, std::string& failure) {
  try {
    return trained(task, common, setting, data, run);
  } catch (const std::invalid_argument& error) {
    failure = error.what();
    return {setting, std::nan(""), std::nan("")};
  }
}

Ledger ledger_of(const Options& options, const Settings& settings) {
  const std::string& path = options.ledger;
  if (path.empty()) return Ledger(header_of(settings));
  return std::filesystem::exists(path)
             ? Ledger::open(path, options.write_ahead)
             : Ledger::create(path, header_of(settings), options.write_ahead);
}

// A new run knows what all others of the file have released.
double spent(const Ledger& ledger, const Settings& settings) {
  return epsilon(ledger.new_run(), settings.delta,
                 accountant_factory(parse_accountant(settings.accountant), relation_of(settings)));
}

template <class... Args>
void tell(const Options& options, fmt::format_string<const Args&...> format, const Args&... args) {
  if (!options.quiet) print(format, args...);
}

void write_json(const Options& options, const nlohmann::json& facts) {
  samples::write_texts({{options.json, samples::json_text(facts)}});
}

nlohmann::json json_of(const Trained& of) {
  return {{"learning_rate", of.setting.learning_rate},
          {"weight_decay", of.setting.weight_decay},
          {"clip_bound", of.setting.clip_bound},
          {"accuracy", of.measure},
          {"public_accuracy", of.score}};
}

nlohmann::json json_of(const std::vector<Trained>& results) {
  nlohmann::json all = nlohmann::json::array();
  for (const Trained& result : results) all.push_back(json_of(result));
  return all;
}

// Settings of each of several trainings that meet the target epsilon together, and with what the
// ledger holds.
Settings of_each(const Settings& settings, std::int64_t trainings, const Ledger& ledger) {
  if (!settings.epsilon) return settings;
  Settings together = settings, each = settings;
  // An epoch that a training begins is charged whole.
  const auto sampler = make_sampler(settings.train_size, sampler_options(engine_options(settings)));
  const std::int64_t batches = sampler->event().batches, steps = planned_steps(settings);
  together.steps = trainings * ((steps + batches - 1) / batches * batches);
  each.epsilon.reset();
  each.noise_multiplier =
      first_noise_multiplier(settings.train_size, engine_options(together), ledger);
  return each;
}

// NaN is the least.
bool worse(double one, double other) { return std::isnan(one) ? !std::isnan(other) : one < other; }

double median_of(const std::vector<Trained>& results) {
  std::vector<double> measures;
  for (const Trained& result : results) measures.push_back(result.measure);
  std::ranges::sort(measures, worse);
  return (measures[(measures.size() - 1) / 2] + measures[measures.size() / 2]) / 2;
}

// Trains with each setting. An exception that no setting explains ends the trainings, and is
// stored: what was charged before has its results.
std::vector<Trained> results_of(TuneTask& task, const Options& options, const Settings& each,
                                const std::vector<SweepSetting>& all, const Data& data,
                                const Ledger& ledger, std::exception_ptr& ended) {
  std::vector<Trained> results;
  for (const SweepSetting& setting : all) {
    std::string failure;
    try {
      results.push_back(trained_or_worst(task, each, setting, data, ledger.new_run(), failure));
    } catch (const std::exception&) {
      ended = std::current_exception();
      return results;
    }
    if (failure.empty()) {
      tell(options, "{}: test accuracy {:.2f} %, public {:.2f} %\n", setting.text(),
           100 * results.back().measure, 100 * results.back().score);
    } else {
      tell(options, "{}: failed: {}\n", setting.text(), failure);
    }
  }
  return results;
}

int sweep_charging_sum(TuneTask& task, const Options& options, const Data& data) {
  const std::vector<SweepSetting> all =
      sweep_settings(options.settings, task.weight_decay(), task.sweep());
  Ledger ledger = ledger_of(options, options.settings);
  const Settings each = of_each(options.settings, std::ssize(all), ledger);
  tell(options,
       "{} private trainings of {} steps, noise multiplier {}: all are charged, and the sum is "
       "what the best of them costs\n",
       all.size(), planned_steps(each), noise_text(*each.noise_multiplier));
  std::exception_ptr ended;
  const std::vector<Trained> results = results_of(task, options, each, all, data, ledger, ended);
  if (results.empty()) std::rethrow_exception(ended);
  const Trained best = *std::ranges::max_element(results, worse, &Trained::score);
  const double all_spent = spent(ledger, each), median = median_of(results);
  samples::print_result(fmt::format(
      "best on public rows: {}: test accuracy {:.2f} %; median of the settings {:.2f} %; "
      "(epsilon, delta) = ({}, {})\n",
      best.setting.text(), 100 * best.measure, 100 * median, rounded_up(all_spent), each.delta));
  write_json(options, {{"charge", "sum"},
                       {"epsilon", all_spent},
                       {"delta", each.delta},
                       {"noise_multiplier", *each.noise_multiplier},
                       {"median", median},
                       {"best", json_of(best)},
                       {"settings", json_of(results)}});
  if (ended) std::rethrow_exception(ended);
  return 0;
}

int sweep_selecting(TuneTask& task, const Options& options, const Data& data) {
  const Settings& settings = options.settings;
  const std::vector<SweepSetting> all = sweep_settings(settings, task.weight_decay(), task.sweep());
  const auto runs = TruncatedNegativeBinomial::with_mean(static_cast<double>(all.size()));
  const NeighboringRelation relation = relation_of(settings);
  Settings each = settings;
  EngineOptions one = engine_options(settings);
  if (settings.epsilon) {
    one = options_of_run(settings.train_size, one, runs, relation);
    each.epsilon.reset();
    each.noise_multiplier = one.noise_multiplier;
  }
  Ledger ledger = ledger_of(options, each);
  check(ledger.releases() == 0,
        "--ledger: {} counts {} releases, and a private selection must be the first of its ledger",
        options.ledger, ledger.releases());
  tell(
      options,
      "private trainings of {} steps, {} in the mean, noise multiplier {}: nothing is told but the "
      "best\n",
      planned_steps(each), all.size(), noise_text(*each.noise_multiplier));
  const PrivateSelection selection{runs, planned_releases(settings.train_size, one, relation)};
  const Selected selected = select_privately(
      ledger, std::ssize(all), selection, [&](std::int64_t setting, const Ledger& run) {
        const Trained of = trained(task, each, all[static_cast<std::size_t>(setting)], data, run);
        return Candidate{.released = {.metadata = {{"result", json_of(of).dump()}}},
                         .score = of.score};
      });
  const auto best = nlohmann::json::parse(selected.candidate.released.metadata.at("result"));
  const double all_spent = spent(ledger, each);
  samples::print_result(
      fmt::format("selected: {}: test accuracy {:.2f} %; (epsilon, delta) = ({}, {})\n",
                  all[static_cast<std::size_t>(selected.setting)].text(),
                  100 * best["accuracy"].get<double>(), rounded_up(all_spent), each.delta));
  write_json(options, {{"charge", "select"},
                       {"epsilon", all_spent},
                       {"delta", each.delta},
                       {"noise_multiplier", *each.noise_multiplier},
                       {"best", best}});
  return 0;
}

}  // namespace

std::string SweepSetting::text() const {
  return fmt::format("learning rate {:.4g}, weight decay {:.3g}, clip bound {:.4g}", learning_rate,
                     weight_decay, clip_bound);
}

std::vector<SweepSetting> sweep_settings(const Settings& around, double weight_decay,
                                         const Sweep& sweep) {
  PublicRandom random(around.seed, sweep_seed);
  const auto factor = [&] { return std::pow(sweep.range, 2 * random.uniform() - 1); };
  std::vector<SweepSetting> all;
  for (std::int64_t k = 0; k < sweep.settings; ++k) {
    const double rate = around.learning_rate * factor(), decay = weight_decay * factor();
    all.push_back({rate, decay, around.clip_bound * factor()});
  }
  return all;
}

int sweep(TuneTask& task, const Options& options, const Data& data) {
  check(!options.resumed, "--sweep: a sweep cannot be resumed: what it charged stays charged");
  check(options.report.empty(), "--sweep: has no page for --report; --json writes its results");
  check(options.save.empty(), "--sweep: trains for comparison, and saves nothing: not with --save");
  check(!options.compare, "--sweep: not with --compare");
  check(!options.dry_run, "--sweep: not with --dry-run");
  check(options.settings.validation == 0,
        "--validation: {} with --sweep would tell results on private rows that nothing charges",
        options.settings.validation);
  return task.sweep().charge == "sum" ? sweep_charging_sum(task, options, data)
                                      : sweep_selecting(task, options, data);
}

}  // namespace sotto::tune
