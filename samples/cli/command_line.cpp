#include "samples/cli/command_line.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "core/devices.h"
#include "core/error.h"
#include "core/join.h"
#include "samples/cli/cli11_options.h"
#include "samples/cli/program.h"

namespace sotto::samples {

namespace {

constexpr int help_column = 30;

// All options of `app` and of its subcommands.
std::vector<CLI::Option*> all_options(CLI::App& app) {
  std::vector<CLI::Option*> all = app.get_options();
  for (CLI::App* const sub : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    const std::vector<CLI::Option*> more = all_options(*sub);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// An unset variable in quotes leaves an empty argument in a shell.
void refuse_empty_values(int argc, const char* const* argv) {
  std::string option = "arguments";
  for (int k = 1; k < argc; ++k) {
    const std::string_view text = argv[k];
    const std::size_t equals = text.find('=');
    if (text.starts_with("--")) option = text.substr(0, equals);
    const bool nothing_after = text.starts_with("--") && equals + 1 == text.size();
    check(!text.empty() && !nothing_after, "{}: the value is empty", option);
  }
}

// An unset variable without quotes leaves no argument: the next option would become the value.
std::string option_fault(const std::string& text) {
  return text.starts_with("--") ? fmt::format("the value is missing before {}", text) : "";
}

// A flag that is present is true.
std::string flag_fault(const std::string& text) {
  return text == "true" ? "" : fmt::format("takes no value, such as {}", text);
}

void be_strict(CLI::Option& option) {
  const bool flag = option.get_items_expected_max() == 0;
  option.check(flag ? flag_fault : option_fault);
  if (flag) option.multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void refuse_repeated(const std::vector<CLI::Option*>& options) {
  for (const CLI::Option* const option : options) {
    const int max = std::max(1, option->get_items_expected_max());
    check(static_cast<int>(option->count()) <= max, "{}: is given {} times", option->get_name(),
          option->count());
  }
}

}  // namespace

bool parse_arguments(CLI::App& app, int argc, const char* const* argv) {
  refuse_empty_values(argc, argv);
  const std::vector<CLI::Option*> options = all_options(app);
  for (CLI::Option* const option : options) be_strict(*option);
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    print_text(app.help());
    return false;
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_repeated(options);
    fail(error.what());
  } catch (const CLI::ParseError& error) {
    fail(error.what());
  }
}

CommandLine::CommandLine(const std::string& description, const std::string& footer)
    : app_(std::make_unique<CLI::App>(description)) {
  app_->get_formatter()->column_width(help_column);
  app_->option_defaults()->always_capture_default();
  app_->set_help_flag("-h,--help", "print this help and exit");
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

template <class T>
void CommandLine::option(const char* name, T& value, const std::string& text, const char* type) {
  add_option(*app_, name, value, text)->type_name(type)->group(group_);
}

template void CommandLine::option(const char*, int&, const std::string&, const char*);
template void CommandLine::option(const char*, std::int64_t&, const std::string&, const char*);
template void CommandLine::option(const char*, std::uint64_t&, const std::string&, const char*);
template void CommandLine::option(const char*, double&, const std::string&, const char*);
template void CommandLine::option(const char*, std::string&, const std::string&, const char*);
template void CommandLine::option(const char*, std::vector<std::string>&, const std::string&,
                                  const char*);
template void CommandLine::option(const char*, std::optional<std::int64_t>&, const std::string&,
                                  const char*);
template void CommandLine::option(const char*, std::optional<double>&, const std::string&,
                                  const char*);

void CommandLine::flag(const char* name, bool& value, const std::string& text) {
  app_->add_flag(name, value, text)->group(group_);
}

void CommandLine::choice(const char* name, std::string& value, const std::string& text,
                         const std::vector<std::string>& names) {
  add_option(*app_, name, value, fmt::format("{}: {}", text, join(names, ", ")))
      ->type_name("NAME")
      ->group(group_)
      ->check([names](const std::string& given) {
        if (std::find(names.begin(), names.end(), given) != names.end()) return std::string();
        return fmt::format("{} is not one of {}", given, join(names, ", "));
      });
}

void CommandLine::parsed(const char* name, const std::function<void(const std::string&)>& read,
                         const std::string& shown, const std::string& text, const char* type) {
  app_->add_option_function<std::string>(name, read, text)
      ->default_str(shown)
      ->type_name(type)
      ->group(group_)
      ->check([read](const std::string& given) {
        try {
          read(given);
          return std::string();
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
      });
}

void CommandLine::add_seed(std::uint64_t& seed, const std::string& text) {
  option("--seed", seed, text, "N");
}

void CommandLine::add_threads(int& threads) {
  option("--threads", threads, "threads to compute with; 0: all", "N");
}

void CommandLine::add_device(Device& device, bool* any_gpu) {
  const auto read = [&device, any_gpu](const std::string& text) {
    device = parse_device(text);
    if (any_gpu != nullptr) *any_gpu = text == "cuda";
  };
  const std::string names = "device of the model and its batches: cpu, cuda, cuda:N";
  parsed(
      "--device", read, name(device),
      names + (any_gpu == nullptr ? "" : "; the processes of a host take its GPUs in turn (cuda)"),
      "NAME");
}

void CommandLine::add_memory(memory::Policy& policy) {
  group("Memory");
  option("--physical-batch", policy.physical_batch,
         fmt::format("samples computed at once, at most (found from --memory-limit, else {})",
                     memory::usual_physical_batch),
         "N");
  option("--accumulation-steps", policy.accumulation, "physical batches for each batch, at least",
         "N");
  parsed(
      "--checkpoint-activations",
      [&policy](const std::string& text) { policy.checkpoint = memory::parse_checkpoint(text); },
      memory::checkpoint_text(policy.checkpoint),
      "keep the input of every N-th module and recompute the rest: auto, none, N", "N");
  parsed(
      "--precision",
      [&policy](const std::string& text) { policy.precision = memory::parse_precision(text); },
      memory::precision_text(policy.precision),
      "type of products and activations: auto, f32, bf16, f16", "NAME");
  parsed(
      "--memory-limit",
      [&policy](const std::string& text) { policy.limit = memory::parse_bytes(text); },
      policy.limit > 0 ? memory::bytes_text(policy.limit) : "",
      "maximum bytes of tensors on the device, such as 800MB: auto settings are chosen to keep "
      "it; the program's code, its threads and the text of files come on top",
      "SIZE");
}

bool CommandLine::given(const char* option) const { return (*app_)[option]->count() > 0; }

bool CommandLine::parse(int argc, const char* const* argv) {
  if (!parse_arguments(*app_, argc, argv)) return false;
  for (const auto& [one, other] : conflicts_) {
    check(!given(one.c_str()) || !given(other.c_str()), "{} and {} do not go together", one, other);
  }
  return true;
}

}  // namespace sotto::samples
