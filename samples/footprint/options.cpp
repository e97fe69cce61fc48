#include "samples/footprint/options.h"

#include <filesystem>
#include <vector>

#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "samples/registry.h"
#include "sotto/core/error.h"

namespace sotto::footprint {

namespace {

constexpr int help_column = 30;
constexpr int most_threads = 1024;
constexpr std::int64_t most_samples = std::int64_t{1} << 24;

class CommandLine {
 public:
  explicit CommandLine(Options& options) : options_(options) {
    app_.get_formatter()->column_width(help_column);
    app_.option_defaults()->always_capture_default();
    app_.set_help_flag("-h,--help", "print this help and exit");
    app_.footer(
        "The exit status is 0, 2 for wrong arguments and 1 for other failures, as too low a\n"
        "limit. docs/memory.md says what the kinds of bytes are.");
    add_training();
    add_output();
  }

  // False when the help was asked for, and printed.
  bool parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", app_.help());
      return false;
    } catch (const CLI::ParseError& error) {
      fail(error.what());
    }
    for (const char* name : {"--clip-groups", "--passes"}) {
      check(!options_.no_privacy || app_[name]->count() == 0,
            "--no-privacy and {} do not go together", name);
    }
    if (!limit_.empty()) options_.limit = memory::parse_bytes(limit_);
    return true;
  }

 private:
  template <class T>
  CLI::Option* option(const char* name, T& value, const std::string& text, const char* type) {
    return app_.add_option(name, value, text)->type_name(type)->group(group_);
  }

  void choice(const char* name, std::string& value, const std::string& text,
              const std::vector<std::string>& allowed) {
    option(name, value, text, "NAME")->check(CLI::IsMember(allowed));
  }

  void add_training() {
    Options& o = options_;
    group_ = "Training";
    option("--model", o.model, "one of " + models::model_names(), "NAME");
    option("--batch", o.batch, "samples in a (logical) batch", "N");
    app_.add_flag("--no-privacy", o.no_privacy, "ordinary training")->group(group_);
    choice("--clip-groups", o.clip_groups, "what is clipped together", {"flat", "layers"});
    choice("--passes", o.passes, "backward passes, the second instead of memory", {"one", "two"});
    choice("--optimizer", o.optimizer, "update rule", {"sgd", "momentum", "adam"});
    group_ = "Memory";
    option("--physical-batch", o.memory.physical_batch, "samples computed at once (the batch)",
           "N");
    option("--accumulation", o.memory.accumulation, "parts that a batch is computed in, at least",
           "N");
    choice("--precision", o.precision, "what products and activations are in",
           {"f32", "bf16", "f16"});
    option("--limit", limit_, "bytes that may be held at once, such as 512MB", "SIZE");
  }

  void add_output() {
    group_ = "Output";
    option("--html", options_.html, "write a page with the curve of bytes over the step", "FILE");
    option("--json", options_.json, "write the page's contents as JSON", "FILE");
    option("--threads", options_.threads, "threads to compute with; 0: all", "N");
  }

  Options& options_;
  std::string group_, limit_;
  CLI::App app_{
      "Shows where a training step's memory goes: makes two steps of a model on random data, and "
      "records every allocation of the second."};
};

template <class T>
void require(bool ok, const char* option, const T& value, const char* range) {
  check(ok, "{}: {} is not {}", option, value, range);
}

void check_writable(const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  const fs::path folder = fs::absolute(path).parent_path();
  check(fs::is_directory(folder), "{}: there is no folder {}", option, folder.string());
  check(access(folder.c_str(), W_OK) == 0, "{}: the folder {} is not writable", option,
        folder.string());
  check(!fs::is_directory(path), "{}: {} is a folder", option, path);
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options o;
  if (!CommandLine(o).parse(argc, argv)) return std::nullopt;
  models::entry_called(o.model);
  require(o.batch >= 2 && o.batch <= most_samples, "--batch", o.batch, "a number of samples > 1");
  const std::vector<std::string> problems = o.memory.problems();
  check(problems.empty(), "{}", fmt::join(problems, "; "));
  require(o.threads >= 0 && o.threads <= most_threads, "--threads", o.threads, "from 0 to 1024");
  check_writable("--html", o.html);
  check_writable("--json", o.json);
  check(o.html.empty() || o.html != o.json, "two files have the same name: {}", o.html);
  return o;
}

}  // namespace sotto::footprint
