#include "nn/models/load_weights.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/config.h"
#include "nn/models/quantize_layers.h"
#include "nn/models/statistics.h"

namespace sotto::nn {

namespace {

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

void add_statistics(Module& module, const std::string& path,
                    std::map<std::string, Tensor*>& values) {
  if (auto* holder = dynamic_cast<HoldsStatistics*>(&module)) {
    holder->visit_statistics(
        [&](const std::string& name, Tensor& value) { values[joined(path, name)] = &value; });
  }
  module.visit(Visitor([](const std::string&, Parameter&) {},
                       [&](const std::string& name, Module& child) {
                         add_statistics(child, joined(path, name), values);
                       }));
}

// The names in a sentence: not more than a line or two.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

class Loading {
 public:
  Loading(const WeightsSource& source, Module& model, LoadReport& report)
      : source_(source), model_(model), report_(report) {}

  void run() {
    for (const auto& [name, tensor] : source_.file.tensors()) sort_out(name);
    if (source_.options.quantized) keep_quantized();
    values_ = stored_values(model_);
    for (const auto& [name, line] : placed_) place(name, line);
    for (const auto& [name, line] : tied_) place_tied(name, line);
    name_absent_ties();
    for (const auto& [name, value] : values_) {
      if (!filled_.contains(name)) draw(name, *value);
    }
    refuse_if_any(missing_, "missing");
    refuse_if_any(left_over_, "left over");
  }

 private:
  void sort_out(const std::string& name) {
    for (const std::string& pattern : source_.options.ignore) {
      if (fits_pattern(pattern, name)) return report_.skipped.push_back(name + " (as asked)");
    }
    const auto line = source_.table.of_file(name, source_.prefix);
    if (!line) return left_over_.push_back(name);
    const std::int64_t blocks = source_.options.blocks;
    if (blocks > 0 && line->block.value_or(0) >= blocks) {
      return report_.skipped.push_back(
          fmt::format("{} (behind the first {} blocks)", name, blocks));
    }
    if (line->parameters.empty()) {
      return report_.skipped.push_back(fmt::format(
          "{} ({}{})", name, line->other_task ? "another task's: " : "", line->comment));
    }
    placed_.emplace_back(name, *line);
  }

  void keep_quantized() {
    std::erase_if(placed_, [&](const auto& entry) {
      const auto& [name, line] = entry;
      if (line.parameters.size() != 1 || line.transposed) return false;
      std::optional<BlockMatrix> blocks = source_.file.blocks(name);
      if (!blocks) return false;
      if (!line.paired.empty()) blocks->bytes = unpaired_rows(blocks->bytes, heads(line));
      if (!replace_by_quantized(model_, line.parameters[0], *blocks)) return false;
      report_.quantized.push_back(name + " (" + sotto::name(blocks->format) + ")");
      return true;
    });
  }

  void place(const std::string& name, const NamesLine& line) {
    const bool known = std::all_of(line.parameters.begin(), line.parameters.end(),
                                   [&](const auto& p) { return values_.contains(p); });
    if (known) return read(name, line, line.parameters);
    if (!line.tied.empty() || line.fresh) return tied_.emplace_back(name, line), void();
    left_over_.push_back(name);
  }

  // A tensor that the model has not: it is that of the parameter that it is tied to, or a head that
  // the model does without.
  void place_tied(const std::string& name, const NamesLine& line) {
    if (line.tied.empty())
      return report_.skipped.push_back(name + " (the model has no " + line.parameters[0] + ")");
    if (values_.contains(line.tied) && !filled_.contains(line.tied)) read(name, line, {line.tied});
    report_.tied.push_back(line.parameters[0] + " (is " + line.tied + ")");
  }

  // Ties of the model for which the file has no tensor.
  void name_absent_ties() {
    for (const NamesLine& line : source_.table.lines()) {
      const std::string name = (line.outside ? "" : source_.prefix) + line.file;
      if (line.tied.empty() || values_.contains(line.parameters[0]) ||
          source_.file.tensors().contains(name))
        continue;
      report_.tied.push_back(line.parameters[0] + " (is " + line.tied + ")");
    }
  }

  void read(const std::string& name, const NamesLine& line,
            const std::vector<std::string>& parameters) {
    Shape wanted = values_.at(parameters[0])->shape();
    for (std::size_t i = 1; i < parameters.size(); ++i)
      wanted[0] += values_.at(parameters[i])->shape()[0];
    if (line.transposed) wanted = {wanted[1], wanted[0]};
    const Shape& shape = source_.file.tensors().at(name).shape;
    if (shape != wanted && line.head && source_.options.classes > 0) {
      return report_.skipped.push_back(fmt::format("{} (of {}, for other classes)", name, shape));
    }
    check(shape == wanted, "weights: {}: {} is {} where the model needs {}", source_.file.path(),
          name, shape, wanted);
    const Tensor all = values_of(name, line);
    std::int64_t first = 0;
    for (const std::string& parameter : parameters) {
      const std::int64_t rows = values_.at(parameter)->shape()[0];
      fill(parameter, name, parameters.size() == 1 ? all : all.slice(0, first, first + rows));
      first += rows;
    }
    report_.loaded.push_back(name);
  }

  // In f32, as the model has it.
  Tensor values_of(const std::string& name, const NamesLine& line) const {
    const std::optional<BlockMatrix> blocks = source_.file.blocks(name);
    Tensor x = blocks ? reshape(dequantize(*blocks), source_.file.tensors().at(name).shape)
                      : source_.file.tensor(name);
    check(is_float(x.dtype()), "weights: {}: {} is {}, not floating-point", source_.file.path(),
          name, sotto::name(x.dtype()));
    x = to_dtype(x, Dtype::f32);
    if (line.transposed) x = contiguous(x.transpose(0, 1));
    return line.paired.empty() ? x : unpaired_rows(x, heads(line));
  }

  std::int64_t heads(const NamesLine& line) const {
    return ConfigFields(source_.config).size(line.paired.c_str());
  }

  void fill(const std::string& parameter, const std::string& from, const Tensor& value) {
    check(filled_.emplace(parameter).second, "weights: {}: {} is a second tensor for {}",
          source_.file.path(), from, parameter);
    value.relabel({.kind = MemoryKind::parameter});
    *values_.at(parameter) = value;
  }

  // The initial value of a head that the file has not.
  void draw(const std::string& parameter, Tensor& value) {
    const auto line = source_.table.of_parameter(parameter);
    if (!line || !line->fresh) return missing_.push_back(parameter);
    // The package's default.
    const double range = ConfigFields(source_.config).positive("initializer_range", 0.02);
    const Shape shape = value.shape();
    value = shape.rank() >= 2 ? random_normal(shape, 0, range)
                              : full(shape, parameter.ends_with("bias") ? 0 : 1);
    report_.drawn_anew.push_back(parameter);
  }

  void refuse_if_any(const std::vector<std::string>& names, const char* fault) const {
    check(names.empty(), "weights: {}: {}: {}", source_.file.path(), fault, listed(names));
  }

  const WeightsSource& source_;
  Module& model_;
  LoadReport& report_;
  std::map<std::string, Tensor*> values_;
  std::vector<std::pair<std::string, NamesLine>> placed_, tied_;
  std::set<std::string> filled_;
  std::vector<std::string> missing_, left_over_;
};

}  // namespace

std::map<std::string, Tensor*> statistics_of(Module& model) {
  std::map<std::string, Tensor*> values;
  add_statistics(model, "", values);
  return values;
}

std::map<std::string, Tensor*> stored_values(Module& model) {
  std::map<std::string, Tensor*> values = statistics_of(model);
  for (const auto& [name, parameter] : model.named_parameters()) values[name] = &parameter->value;
  return values;
}

Tensor unpaired_rows(const Tensor& x, std::int64_t heads) {
  check(x.size(0) % (2 * heads) == 0, "weights: {} rows are no pairs of {} heads", x.size(0),
        heads);
  const std::int64_t width = x.size(0) / heads, half = width / 2;
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  const std::size_t bytes = x.bytes() / static_cast<std::size_t>(x.size(0));
  const auto* from = static_cast<const std::byte*>(x.view().data);
  auto* to = static_cast<std::byte*>(y.view().data);
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const std::int64_t j = row % width, pair = j % half, which = j / half;
    const std::int64_t source = row - j + 2 * pair + which;
    std::memcpy(to + static_cast<std::size_t>(row) * bytes,
                from + static_cast<std::size_t>(source) * bytes, bytes);
  }
  return y;
}

void load_weights(const WeightsSource& source, Module& model, LoadReport& report) {
  Loading(source, model, report).run();
}

}  // namespace sotto::nn
