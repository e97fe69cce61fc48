#include "samples/memory_profile/options.h"

#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/models/registry.h"

namespace sotto::memory_profile {

namespace {

constexpr std::int64_t max_samples = std::int64_t{1} << 24;

class ProfileCommandLine {
 public:
  explicit ProfileCommandLine(Options& options) : options_(options) {
    for (const char* name : {"--clip-groups", "--clipping"}) line_.conflict("--no-privacy", name);
    add_training();
    add_memory();
    add_output();
  }

  // Returns false if the help was requested; it has been printed then.
  bool parse(int argc, const char* const* argv) { return line_.parse(argc, argv); }

 private:
  void add_training() {
    Options& o = options_;
    line_.group("Training");
    const auto read = [&o](const std::string& text) { o.model = models::parse_entry(text).name; };
    line_.parsed("--model", read, o.model, "one of " + models::model_names(), "NAME");
    line_.option("--batch-size", o.batch, "samples in a (logical) batch", "N");
    line_.flag("--no-privacy", o.no_privacy, "ordinary training");
    line_.choice("--clip-groups", o.clip_groups, "parameters clipped together: all or by layer",
                 {"flat", "layers"});
    line_.choice("--clipping", o.passes,
                 "book-keeping: one backward pass; ghost: two, in less memory",
                 {"book-keeping", "ghost"});
    line_.choice("--optimizer", o.optimizer, "update rule", {"sgd", "momentum", "adam"});
  }

  void add_memory() {
    line_.add_memory(options_.memory);
    line_.parsed(
        "--hard-limit",
        [this](const std::string& text) { options_.limit = memory::parse_bytes(text); }, "",
        "bytes that may be held at once, such as 512MB: more is an error", "SIZE");
  }

  void add_output() {
    line_.group("Output");
    line_.option("--report", options_.html, "write a page with the curve of bytes over the step",
                 "FILE");
    line_.option("--json", options_.json, "write the page's contents as JSON", "FILE");
    line_.add_device(options_.device);
    line_.add_threads(options_.threads);
  }

  Options& options_;
  samples::CommandLine line_{
      "Shows where a training step's memory goes: makes two steps of a model on random data, and "
      "records every allocation of the second.",
      "The exit status is 0, 2 for wrong arguments and 1 for other failures, as too low a\n"
      "limit. docs/explanation/memory.md says what the kinds of bytes are."};
};

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options o;
  if (!ProfileCommandLine(o).parse(argc, argv)) return std::nullopt;
  const models::Entry& model = models::parse_entry(o.model);
  samples::require(o.batch >= 2 && o.batch <= max_samples, "--batch-size", o.batch,
                   "a number of samples > 1");
  const double element = model.words > 0 ? sizeof(std::int64_t) : sizeof(float);
  samples::check_fits("--batch-size", element * static_cast<double>(model.input.numel()) *
                                          static_cast<double>(o.batch));
  samples::check_memory(o.memory);
  samples::check_threads(o.threads);
  samples::check_writable("--report", o.html);
  samples::check_writable("--json", o.json);
  samples::check_distinct({o.html, o.json});
  return o;
}

}  // namespace sotto::memory_profile
