#include "nn/module.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "autograd/memory_labels.h"
#include "autograd/precision.h"
#include "autograd/segment.h"
#include "core/allocator/allocator.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/model_summary.h"

namespace sotto::nn {

namespace {

class Collector {
 public:
  NamedParameters collect(Module& module) {
    descend("", module);
    return std::move(found_);
  }

 private:
  void descend(const std::string& path, Module& module) {
    module.visit(Visitor(
        [&](const std::string& name, Parameter& parameter) {
          if (seen_.insert(&parameter).second) found_.emplace_back(path + name, &parameter);
        },
        [&](const std::string& name, Module& child) { descend(path + name + ".", child); }));
  }

  NamedParameters found_;
  std::unordered_set<const Parameter*> seen_;
};

}  // namespace

namespace {

thread_local ModuleHook* watch = nullptr;

// The modules and parameters that visit() shows, with the path of each module.
struct Shown {
  std::unordered_map<const Module*, const char*> paths;
  std::unordered_set<const Parameter*> parameters;

  void add(const std::string& path, Module& module) {
    paths.emplace(&module, interned(path));
    module.visit(Visitor([&](const std::string&, Parameter& p) { parameters.insert(&p); },
                         [&](const std::string& name, Module& child) {
                           add(path.empty() ? name : path + "." + name, child);
                         }));
  }
};
// The tree of the outermost module that is running on this thread.
thread_local const Shown* shown = nullptr;
// The innermost module that is running, if visit() does not show it.
thread_local const Module* hidden = nullptr;

// Labels allocations made during a call with the module's path; the outermost call also begins the
// forward phase. `path` is the module's place in the model: during recomputation in backward a
// submodule is itself the outermost one.
class CallScope {
 public:
  CallScope(Module& module, const Var& x, const char* path = no_text)
      : outermost_(shown == nullptr), hidden_before_(hidden) {
    MemoryLabel label = memory_label();
    if (outermost_) {
      if (x.value().defined()) allocator(x.value().device()).forget_waiting();
      own_.add(path, module);
      shown = &own_;
      if (*label.phase == '\0') label.phase = "forward";
    }
    const auto own = shown->paths.find(&module);
    hidden = own == shown->paths.end() ? &module : nullptr;
    if (!hidden) label.module = own->second;
    inner_.emplace(label);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() {
    if (outermost_) shown = nullptr;
    hidden = hidden_before_;
  }
  bool outermost() const { return outermost_; }

 private:
  bool outermost_;
  const Module* hidden_before_;
  Shown own_;
  std::optional<LabelScope> inner_;
};

}  // namespace

void Visitor::operator()(const std::string& name, std::unique_ptr<Module>& child) const {
  if (!child) return;
  on_owned_ ? on_owned_(name, child) : on_child_(name, *child);
}

ModuleHook::ModuleHook(OnCall on_call) : on_call_(std::move(on_call)), before_(watch) {
  watch = this;
}

ModuleHook::~ModuleHook() { watch = before_; }

Var Module::operator()(const Var& x) {
  return call({&x, 1}, [this](std::span<const Var> inputs) { return forward(inputs[0]); });
}

Var Module::refuse_one_input(std::size_t count) const {
  fail(fmt::format("{}: takes {} inputs, and was called with one", kind_of(*this), count));
}

Var Module::call(std::span<const Var> inputs, const Run& run) {
  const Var& x = inputs[0];
  const CallScope scope(*this, x);
  std::optional<UseWatch> uses;
  if (scope.outermost()) uses.emplace([this](const Parameter& p) { note_use(p); });
  std::optional<PrecisionRegion> region;
  if (precision_) region.emplace(x.tape(), *precision_);
  std::optional<CastsTogether> casts;
  if (scope.outermost() && x.value().defined())
    casts.emplace(x.tape(), x.value().device(), shown->parameters, converted_);
  const auto recomputed = [&] {
    const auto once = [this, run, path = memory_label().module](const std::vector<Var>& in) {
      const CallScope again(*this, in[0], path);
      return std::vector<Var>{run(in)};
    };
    return segment(once, {inputs.begin(), inputs.end()})[0];
  };
  Var y = recompute_ ? recomputed() : run(inputs);
  if (watch && !x.tape().is_recomputing()) watch->on_call_(*this, x, y);
  return y;
}

// Relabels the parameter's memory with the owner found here.
void Module::note_use(const Parameter& parameter) {
  if (!parameter.trainable || shown->parameters.contains(&parameter)) return;
  for (const Unshown& known : unshown_) {
    if (known.parameter == &parameter) return;
  }
  const std::string path = memory_label().module, of = path.empty() ? "the model" : path;
  const std::string owner =
      hidden ? fmt::format("a {} of {}, which visit() does not show", kind_of(*hidden), of)
             : fmt::format("{}, whose visit() does not show it", of);
  unshown_.push_back({&parameter, owner});
  parameter.value.relabel({.kind = MemoryKind::parameter, .module = interned(owner)});
}

NamedParameters Module::named_parameters() { return Collector().collect(*this); }

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all;
  for (const auto& [name, parameter] : named_parameters()) all.push_back(parameter);
  return all;
}

std::int64_t Module::parameter_count() {
  std::int64_t count = 0;
  for (const Parameter* parameter : parameters()) count += parameter->value.numel();
  return count;
}

void Module::to(Dtype dtype) {
  check(is_float(dtype), "module: parameters cannot be {}: not a floating-point type", name(dtype));
  for (Parameter* parameter : parameters()) {
    const MemoryLabel label = parameter->value.memory_label();
    parameter->value = to_dtype(parameter->value, dtype);
    parameter->value.relabel(label);
  }
}

void Module::set_precision(std::optional<Dtype> precision) {
  if (precision) check_precision("module", *precision);
  precision_ = precision;
}

void Module::to(Device device) {
  for (Parameter* parameter : parameters()) {
    const MemoryLabel label = parameter->value.memory_label();
    parameter->value = parameter->value.to(device);
    parameter->value.relabel(label);
  }
}

void Module::set_trainable(bool trainable) {
  for (Parameter* parameter : parameters()) parameter->trainable = trainable;
}

Module& Sequential::operator[](int index) {
  check(index >= 0 && index < size(), "sequential: no module {} among {}", index, size());
  return *modules_[static_cast<std::size_t>(index)];
}

void Sequential::set_segments(std::vector<Segment> segments) {
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& one = segments[i];
    check(one.begin >= 0 && one.begin < one.end && one.end <= size(),
          "sequential: segment {} .. {} is empty or outside the {} modules", one.begin, one.end,
          size());
    for (std::size_t k = 0; k < i; ++k) {
      check(one.begin >= segments[k].end || (one.end <= segments[k].end && one != segments[k]),
            "sequential: segments {} .. {} and {} .. {} overlap", segments[k].begin,
            segments[k].end, one.begin, one.end);
    }
  }
  segments_ = std::move(segments);
}

Var Sequential::forward(const Var& x) { return run({0, size()}, 0, x); }

// Runs modules part.begin .. part.end - 1. segments_[next] is the first segment that may begin
// there.
Var Sequential::run(const Segment& part, std::size_t next, Var x) {
  for (int i = part.begin; i < part.end;) {
    while (next < segments_.size() && segments_[next].begin < i) ++next;
    if (next == segments_.size() || segments_[next].begin != i) {
      x = (*modules_[static_cast<std::size_t>(i++)])(x);
      continue;
    }
    const Segment inner = segments_[next];
    const char* path = memory_label().module;
    const auto again = [=, this](const Var& in) {
      const CallScope scope(*this, in, path);
      return run(inner, next + 1, in);
    };
    x = segment(again, x);
    i = inner.end;
  }
  return x;
}

void Sequential::visit(const Visitor& visitor) {
  for (std::size_t i = 0; i < modules_.size(); ++i) visitor(std::to_string(i), modules_[i]);
}

}  // namespace sotto::nn
