// Times training steps of several ranks beside those of one process with as many threads, in turn,
// and counts what each rank sends, waits and holds. Prints one JSON object for each case. Ranks are
// those of mpirun, or with --ranks threads of this process. --latency and --bandwidth say how slow
// a network to plant: the part of its times that a step hides is computed from what each rank did
// (planted_network.h), and for ranks that are threads also measured, which only a machine shows
// that has a core for each rank and each communication thread, and nothing else to do.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/allocator/allocator.h"
#include "core/ranks/collectives.h"
#include "core/ranks/launched_ranks.h"
#include "core/ranks/rank_threads.h"
#include "core/ranks/thread_ranks.h"
#include "core/threads/parallel.h"
#include "dp/engine/engine.h"
#include "memory/accumulation.h"
#include "nn/init.h"
#include "nn/optim/optimizer.h"
#include "tests/benchmarks/planted_network.h"
#include "tests/benchmarks/sized_models.h"
#include "tests/benchmarks/timing.h"
#include "tests/support/metered_ranks.h"

using namespace sotto;
using nlohmann::json;

namespace {

constexpr std::int64_t population = 50'000;

struct Options {
  std::vector<std::string> models{"mnist"}, modes{"ordinary", "flat", "layers"};
  std::int64_t batch = 512, physical = 0;
  int ranks = 0, threads = 1, rounds = 5, steps = 4;
  double latency = 0, bandwidth = 0, idle = 0;
  std::string optimizer = "sgd";
  bool together_only = false;

  bool planted() const { return latency > 0 || bandwidth > 0; }
  std::int64_t rows_at_once() const { return physical > 0 ? physical : batch; }
};

// One training, on ranks or (null) in this process alone.
class Training {
 public:
  Training(const models::Entry& entry, const std::string& mode, const Options& options,
           std::shared_ptr<Ranks> ranks)
      : entry_(entry), ranks_(std::move(ranks)), rows_(own_rows(options.batch)) {
    {
      static std::mutex one_at_a_time;  // seeds are the process's
      const std::lock_guard lock(one_at_a_time);
      nn::manual_seed(1);
      model_ = entry.make();
    }
    data_ = entry.random_examples(std::min(options.batch, options.rows_at_once()));
    if (options.optimizer == "adam") {
      optimizer_ = std::make_unique<nn::Adam>(*model_, nn::AdamRule<false>{});
    } else {
      optimizer_ = std::make_unique<nn::Sgd>(*model_, nn::SgdRule{.learning_rate = 0.01});
    }
    const memory::Policy policy{.physical_batch = options.rows_at_once(), .precision = Dtype::f32};
    if (mode == "ordinary") {
      if (ranks_) {
        ordinary_.emplace(policy, *model_, *ranks_);
      } else {
        ordinary_.emplace(policy, *model_);
      }
      return;
    }
    EngineOptions settings{.noise_multiplier = 1.1,
                           .sampling = Sampling::fixed_size,
                           .logical_batch = static_cast<double>(options.batch),
                           .memory = policy};
    if (mode == "layers")
      settings.groups = layer_groups(model_->named_parameters(), settings.clip_bound);
    settings.ranks = ranks_;
    private_.emplace(*model_, *optimizer_, population, make_ledger(), settings);
  }
  ~Training() {
    private_.reset();
    if (!ledger_.empty()) std::filesystem::remove(ledger_);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void step() {
    const auto loss = [this](Tape& tape, std::span<const std::int64_t> rows) {
      return entry_.losses((*model_)(tape.input(first(data_.inputs, rows))),
                           first(data_.labels, rows));
    };
    if (private_) {
      private_->step(loss);
      return;
    }
    optimizer_->step(ordinary_->mean_gradient(loss, rows_, *optimizer_).gradients);
  }
  std::size_t parameter_bytes() const {
    std::size_t bytes = 0;
    for (const Parameter* parameter : model_->parameters()) bytes += parameter->value.bytes();
    return bytes;
  }

 private:
  static Tensor first(const Tensor& values, std::span<const std::int64_t> rows) {
    return values.slice(0, 0, std::ssize(rows));
  }
  std::vector<std::int64_t> own_rows(std::int64_t batch) const {
    const std::int64_t ranks = ranks_ ? ranks_->size() : 1, rank = ranks_ ? ranks_->rank() : 0;
    return std::vector<std::int64_t>(
        static_cast<std::size_t>(batch * (rank + 1) / ranks - batch * rank / ranks));
  }
  Ledger make_ledger() {
    static std::atomic<int> ledgers = 0;
    const auto create = [&] {
      ledger_ = std::filesystem::temp_directory_path() /
                fmt::format("rank-steps-{}-{}", ::getpid(), ledgers++);
      return Ledger::create(ledger_, {.relation = NeighboringRelation::replace_one});
    };
    return ranks_ ? Ledger::on_rank_0(ranks_, create) : create();
  }

  const models::Entry& entry_;
  std::shared_ptr<Ranks> ranks_;
  std::vector<std::int64_t> rows_;  // of an ordinary step
  std::unique_ptr<nn::Module> model_;
  models::Examples data_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::string ledger_;
  std::optional<memory::Accumulation> ordinary_;
  std::optional<Engine> private_;
};

// What carries a sum, or a value, of every parameter.
bool bulk(const std::string& place) {
  return place == "clipped sums" || place == "new parameters" || place.starts_with("gradients: ");
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// The trainings of one case that take turns, on one rank.
struct Kind {
  const char* name;
  std::shared_ptr<MeteredRanks> ranks;  // null: rank 0 alone
  std::unique_ptr<Training> training{};
  std::vector<double> times{};
  double cpu = 0;  // seconds
  std::size_t peak = 0;
};

void run_turn(Kind& kind, Ranks& all, const Options& options) {
  all.broadcast("turn", {});
  if (!kind.ranks && all.rank() != 0) return;
  if (!kind.ranks) set_thread_count(options.threads * all.size());
  if (kind.ranks) kind.ranks->resume();
  allocator(cpu).reset_peak();
  const double cpu_before = cpu_seconds();
  for (int k = 0; k < options.steps; ++k)
    kind.times.push_back(seconds_of([&] { kind.training->step(); }));
  if (kind.ranks) kind.ranks->end();
  kind.cpu += cpu_seconds() - cpu_before;
  kind.peak = std::max(kind.peak, allocator(cpu).statistics().peak);
  if (!kind.ranks) set_thread_count(options.threads);
}

// The processor time of the rank's own thread; that of its communication thread is beside it.
double own_seconds(const std::vector<RankEvent>& events) {
  double seconds = 0, before = 0;
  for (const RankEvent& event : events) {
    if (!event.resumes) seconds += event.computed - before;
    before = event.computed;
  }
  return seconds;
}

// Of one rank, by step.
json traffic_of(const Kind& kind) {
  const auto steps = static_cast<double>(kind.times.size());
  json line;
  double bulk_bytes = 0, control_bytes = 0, operations = 0;
  for (const auto& [place, at] : kind.ranks->traffic()) {
    (bulk(place) ? bulk_bytes : control_bytes) += static_cast<double>(at.bytes);
    operations += static_cast<double>(at.operations);
  }
  line["sent_bytes"] = bulk_bytes / steps;
  line["control_bytes"] = control_bytes / steps;
  line["operations"] = operations / steps;
  line["waited_ms"] = kind.ranks->waited() / steps * 1e3;
  line["cpu_ms"] = kind.cpu / steps * 1e3;
  line["own_cpu_ms"] = own_seconds(kind.ranks->events()) / steps * 1e3;
  line["peak_bytes"] = kind.peak;
  return line;
}

// The planted network's time of a step whose operations follow one another.
double serial_ms(const json& traffic, const Options& options) {
  const double bytes = traffic["sent_bytes"], operations = traffic["operations"];
  return operations * options.latency +
         (options.bandwidth > 0 ? bytes / options.bandwidth * 1e-6 : 0);
}

// How much longer the planted network makes a step, and what of it the way of rank 0's order.
struct Exposed {
  double step_ms = 0, order_ms = 0;
};

// On rank 0.
std::optional<Exposed> exposed(const Kind& kind, Ranks& all, const Options& options) {
  const std::span own(kind.ranks->events());
  std::vector<std::vector<RankEvent>> events;
  for (const auto& bytes : all.gather("events", std::as_bytes(own))) {
    events.emplace_back(bytes.size() / sizeof(RankEvent));
    std::memcpy(events.back().data(), bytes.data(), bytes.size());
  }
  if (all.rank() != 0) return std::nullopt;
  PlantedNetwork network{options.latency * 1e-3, options.bandwidth * 1e9};
  const double planted = PlantedRun(network, events).seconds();
  network.orders_at_once = true;
  const double ms = 1e3 / static_cast<double>(kind.times.size());
  return Exposed{(planted - PlantedRun({}, events).seconds()) * ms,
                 (planted - PlantedRun(network, events).seconds()) * ms};
}

void report(std::vector<Kind>& kinds, Ranks& all, json line, const Options& options) {
  for (Kind& kind : kinds) {
    if (kind.ranks) {
      const std::string own = traffic_of(kind).dump();
      for (const auto& bytes : all.gather("traffic", std::as_bytes(std::span(own))))
        line[kind.name].push_back(
            json::parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
      if (options.planted() && kind.name == std::string("together")) {
        if (const auto longer = exposed(kind, all, options)) {
          line["exposed_ms"] = longer->step_ms;
          line["order_ms"] = longer->order_ms;
        }
      }
    }
    if (all.rank() != 0) continue;
    line[std::string(kind.name) + "_cpu_ms"] =
        kind.cpu / static_cast<double>(kind.times.size()) * 1e3;
    line[std::string(kind.name) + "_ms"] = median(kind.times) * 1e3;
    line[std::string(kind.name) + "_least_ms"] = *std::ranges::min_element(kind.times) * 1e3;
  }
  if (all.rank() != 0) return;
  if (line.contains("alone_ms")) {
    const double alone = line["alone_ms"], together = line["together_ms"];
    line["speed"] = alone / together;
  }
  if (line.contains("exposed_ms")) {
    const double serial = serial_ms(line["together"][0], options), exposed = line["exposed_ms"];
    line["serial_ms"] = serial;
    line["hidden"] = 1 - exposed / serial;
  }
  if (line.contains("planted_least_ms")) {
    const double planted = line["planted_least_ms"], together = line["together_least_ms"];
    line["hidden_measured"] = 1 - (planted - together) / line["serial_ms"].get<double>();
  }
  std::cout << line.dump() << std::endl;
}

void measure(const models::Entry& entry, const std::string& mode, const Options& options,
             const std::shared_ptr<Ranks>& ranks, const std::shared_ptr<Ranks>& planted) {
  std::vector<Kind> kinds;
  // One of several processes that were launched together may not train privately by itself.
  const bool may_be_alone = options.ranks > 0 || ranks->size() == 1;
  if (may_be_alone && !options.together_only) kinds.push_back({"alone", nullptr});
  kinds.push_back({"together", std::make_shared<MeteredRanks>(ranks)});
  if (planted) kinds.push_back({"planted", std::make_shared<MeteredRanks>(planted)});
  std::size_t parameter_bytes = 0;
  for (Kind& kind : kinds) {
    ranks->broadcast("begin", {});
    if (!kind.ranks && ranks->rank() != 0) continue;
    kind.training = std::make_unique<Training>(entry, mode, options, kind.ranks);
    kind.training->step();
    parameter_bytes = kind.training->parameter_bytes();
    if (kind.ranks) kind.ranks->clear();
  }
  for (int round = 0; round < options.rounds; ++round)
    for (Kind& kind : kinds) run_turn(kind, *ranks, options);
  report(kinds, *ranks,
         {{"model", entry.name},
          {"mode", mode},
          {"batch", options.batch},
          {"ranks", ranks->size()},
          {"threads", options.threads},
          {"parameter_bytes", parameter_bytes}},
         options);
}

// The part of a core that ranks need while they wait for rank 0.
void measure_idle(Ranks& ranks, const Options& options) {
  ranks.broadcast("begin", {});
  const double before = cpu_seconds();
  if (ranks.rank() == 0) std::this_thread::sleep_for(std::chrono::duration<double>(options.idle));
  ranks.broadcast("end of the wait", {});
  const double part = (cpu_seconds() - before) / options.idle;
  for (const auto& bytes : ranks.gather("idle", std::as_bytes(std::span(&part, 1)))) {
    double theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    std::cout << json{{"what", "processor time while waiting"}, {"part_of_a_core", theirs}}.dump()
              << std::endl;
  }
}

void run(const std::shared_ptr<Ranks>& ranks, const std::shared_ptr<Ranks>& planted,
         const Options& options) {
  if (options.idle > 0) return measure_idle(*ranks, options);
  for (const std::string& model : options.models) {
    const models::Entry entry = models::entry_of_any(model);
    for (const std::string& mode : options.modes) measure(entry, mode, options, ranks, planted);
  }
}

void run_threads(const Options& options) {
  std::vector<std::shared_ptr<Ranks>> planted;
  if (options.planted()) {
    for (auto& rank :
         make_thread_ranks(options.ranks, {.latency_seconds = options.latency * 1e-3,
                                          .bytes_per_second = options.bandwidth * 1e9}))
      planted.push_back(std::move(rank));
  }
  on_thread_ranks(options.ranks, [&](Ranks& own) {
    const std::shared_ptr<Ranks> ranks(std::shared_ptr<void>(), &own);
    run(ranks, planted.empty() ? nullptr : planted[static_cast<std::size_t>(own.rank())], options);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times training steps of several ranks; one JSON object for each case");
  app.add_option("--models", options.models,
                 fmt::format("{}; {}", models::model_names(), models::sized_names))
      ->delimiter(',');
  app.add_option("--modes", options.modes,
                 "ordinary; flat: private, one bound; layers: private, a bound for each layer")
      ->delimiter(',')
      ->check(CLI::IsMember({"ordinary", "flat", "layers"}));
  app.add_option("--batch", options.batch, "Samples in a step of all ranks");
  app.add_option("--physical", options.physical, "Samples at once on a rank; default: all");
  app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"sgd", "adam"}));
  app.add_option("--ranks", options.ranks, "Ranks that are threads; default: those of mpirun");
  app.add_option("--threads", options.threads, "Threads of each rank");
  app.add_option("--rounds", options.rounds, "Turns of each kind");
  app.add_option("--steps", options.steps, "Steps in a turn");
  app.add_option("--latency", options.latency, "Planted milliseconds of each message");
  app.add_option("--bandwidth", options.bandwidth, "Planted GB/s of what a rank sends");
  app.add_option("--idle", options.idle, "Only wait for rank 0, for so many seconds");
  app.add_flag("--together-only", options.together_only, "No steps of one process alone");
  CLI11_PARSE(app, argc, argv);
  try {
    set_thread_count(options.threads);
    if (options.ranks > 0) {
      run_threads(options);
    } else {
      run(launched_ranks(), nullptr, options);
    }
  } catch (const std::exception& error) {
    std::cerr << "rank_steps: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
