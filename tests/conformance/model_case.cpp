#include "tests/conformance/model_case.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/sink.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/lora_targets.h"
#include "tests/conformance/dp_case.h"

namespace sotto::conformance {

namespace {

// In evaluation, as all expected numbers are.
TapeOptions evaluation(Dtype dtype, bool private_data) {
  TapeOptions options = tape_options(dtype, private_data);
  options.training = false;
  return options;
}

void add_paths(const std::string& path, nn::Module& module,
               std::map<const nn::Module*, std::string>& paths) {
  paths[&module] = path;
  module.visit(nn::Visitor([](const std::string&, Parameter&) {},
                           [&](const std::string& name, nn::Module& child) {
                             add_paths(path.empty() ? name : path + "." + name, child, paths);
                           }));
}

// Compares the logits, and what enters the first block and leaves each.
void check_forward(ModelCase& model, Comparison& comparison) {
  std::map<const nn::Module*, std::string> paths;
  add_paths("", *model.loaded.model, paths);
  const std::vector<std::string> blocks = model.block_paths();
  const nn::ModuleHook hook([&](const nn::Module& module, const Var& x, const Var& y) {
    const auto path = paths.find(&module);
    for (std::size_t k = 0; k < blocks.size() && path != paths.end(); ++k) {
      if (path->second != blocks[k]) continue;
      if (k == 0) comparison.expect("block.0", x.value());
      comparison.expect(fmt::format("block.{}", k + 1), y.value());
    }
  });
  Tape tape(evaluation(model.dtype, false));
  comparison.expect("logits", model.logits(tape).value());
}

void expect_logits(ModelCase& model, Comparison& comparison, const std::string& name) {
  Tape tape(evaluation(model.dtype, false));
  comparison.expect(name, model.logits(tape).value());
}

// The root of the mean square of all elements of the expected gradients.
double typical_gradient(const Case& c) {
  double squares = 0;
  std::int64_t count = 0;
  for (const std::string& name : c.names_after("expect.grad_sum.")) {
    const Tensor& expected = c.tensor("expect.grad_sum." + name).value;
    for (const double value : expected.to_vector<double>()) squares += value * value;
    count += expected.numel();
  }
  return std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(count, 1)));
}

// The errors of clipped gradients. In 16 bits the largest elements of deep networks are right to an
// eighth, behind ReLUs, whose kinks are passed, to a half; elements that cancel, as those of a
// key's bias do, have the error of their terms. In f32 the norms of convolutions include a bound of
// their rounding.
Tolerance gradient_errors(const ModelCase& model) {
  const bool convolutions = model.c.type.ends_with("ResNet");
  if (model.dtype == Dtype::f64) return {};
  if (model.dtype == Dtype::f32) return {.relative = convolutions ? 0x1p-10 : 0};
  return {.absolute = typical_gradient(model.c) / 16, .relative = convolutions ? 0.5 : 0.125};
}

// Per-sample norms by gradients that are added up, without the clipper.
void check_norms(ModelCase& model, Comparison& comparison) {
  PerSampleGradSink sink;
  Tape tape(evaluation(model.dtype, false));
  tape.backward(model.loss(model.logits(tape)), sink);
  const Tensor squares = sink.squared_norms();
  comparison.expect("norm", unary(unary_index<functors::Sqrt>, squares), "rows added up");
}

void expect_sums(const ModelCase& model, const Gradients& sums, Comparison& comparison,
                 const char* how) {
  for (const auto& [name, parameter] : model.stored) {
    if (comparison.expects("grad_sum." + name))
      comparison.expect("grad_sum." + name, parameter.of(sums), how);
  }
}

void run_method(ModelCase& model, const ClipMethod& method, Comparison& comparison) {
  const Json dp = field<Json>(model.c.body, "dp");
  Clipper clipper(flat_group(model.trained(), field<double>(dp, "max_norm")),
                  {.rule = read_rule(dp), .norm_method = method.norm_method}, method.passes);
  Tape tape(evaluation(model.dtype, true));
  const Var loss = model.loss(model.logits(tape));
  comparison.expect("loss", loss.value(), method.name);
  clipper.add(tape, loss);
  const ClipStatistics& statistics = clipper.statistics();
  comparison.expect("norm", Tensor::from(statistics.norms.at(0), loss.shape()), method.name);
  comparison.expect("clip_factor", Tensor::from(statistics.factors.at(0), loss.shape()),
                    method.name);
  expect_sums(model, clipper.clipped_sums(), comparison, method.name);
}

void check_merged(ModelCase& model, Comparison& comparison) {
  nn::merge_lora(*model.loaded.model);
  expect_logits(model, comparison, "logits_merged");
  std::map<std::string, Parameter*> named;
  for (const auto& [name, parameter] : model.loaded.model->named_parameters())
    named[name] = parameter;
  for (const nn::StoredName& name : model.loaded.names) {
    if (!comparison.expects("merged." + name.file)) continue;
    StoredParameter parameter{.parameters = {}, .transposed = name.transposed};
    for (const std::string& part : name.parameters) parameter.parameters.push_back(named.at(part));
    comparison.expect("merged." + name.file, parameter.value());
  }
}

void run_loaded(ModelCase& model, Comparison& comparison) {
  model.check_lists(comparison);
  model.prepare();
  const bool adapted = model.c.body.contains("adapter");
  if (adapted) {
    expect_logits(model, comparison, "logits_base");
    model.add_adapter(comparison);
  }
  if (model.dtype == Dtype::f16) comparison.allow_at_least({.relative = 0x1p-5});  // of many layers
  check_forward(model, comparison);
  check_norms(model, comparison);
  comparison.allow_at_least(gradient_errors(model));
  for (const ClipMethod& method : clip_methods()) run_method(model, method, comparison);
  comparison.allow_at_least({});
  if (adapted) check_merged(model, comparison);
}

// Whether an error names an option of the checkpoint's config.
bool names_an_option(const Case& c, const std::string& error) {
  const auto folder = c.folder / field<std::string>(c.body, "checkpoint");
  const Json options = read_json(folder / "config.json").flatten();
  for (const auto& [name, value] : options.items()) {
    const std::string option = name.substr(name.rfind('/') + 1);
    if (option.size() > 2 && error.find(option) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void run_model(const Case& c, Dtype dtype, Comparison& comparison) {
  std::optional<ModelCase> model;
  try {
    model.emplace(c, dtype);
  } catch (const std::invalid_argument& error) {
    if (!field<bool>(c.body, "refusal_ok") || !names_an_option(c, error.what())) throw;
    return comparison.refused();
  }
  run_loaded(*model, comparison);
}

}  // namespace sotto::conformance
