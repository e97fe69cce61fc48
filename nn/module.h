// Models: a module is a function of one value with named parameters, and may hold other modules.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"

namespace sotto::nn {

class Module;

using NamedParameters = std::vector<std::pair<std::string, Parameter*>>;

// What a module shows its parts to.
class Visitor {
 public:
  using OnParameter = std::function<void(const std::string& name, Parameter& parameter)>;
  using OnChild = std::function<void(const std::string& name, Module& child)>;
  Visitor(OnParameter on_parameter, OnChild on_child)
      : on_parameter_(std::move(on_parameter)), on_child_(std::move(on_child)) {}

  // A parameter the module does not have (a layer without bias) is passed over.
  void operator()(const std::string& name, const std::unique_ptr<Parameter>& parameter) const {
    if (parameter) on_parameter_(name, *parameter);
  }
  void operator()(const std::string& name, Module& child) const { on_child_(name, child); }

 private:
  OnParameter on_parameter_;
  OnChild on_child_;
};

// A module owns its parameters through std::unique_ptr and its children by value: it can be moved,
// and its parameters stay where they are.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  virtual Var forward(const Var& x) = 0;
  // Shows every parameter and child, always in the same order: visitor("weight", weight).
  virtual void visit(const Visitor&) {}

  // forward(), in the module's precision and seen by a ModuleHook.
  Var operator()(const Var& x);
  // Calls keep their input alone and are run again in backward (autograd/segment.h). The module
  // stays where it is until then.
  void set_recomputing(bool recompute) { recompute_ = recompute; }
  bool recompute() const { return recompute_; }

  // All parameters, children's included, in the order of visit(), called by the path to them:
  // "conv1.weight", "0.bias". A parameter met twice has its first name.
  NamedParameters named_parameters();
  std::vector<Parameter*> parameters();
  // A trainable parameter that a call used and visit() did not show, and what it belongs to: "a
  // Linear of encoder, which visit() does not show". Collected in calls through operator() from
  // outside of modules.
  struct Unshown {
    const Parameter* parameter;
    std::string owner;
  };
  const std::vector<Unshown>& unshown() const { return unshown_; }
  // The number of elements of all parameters, frozen ones included.
  std::int64_t parameter_count();

  // Frozen parameters get no gradient; optimizers made afterwards leave them out.
  void freeze() { set_trainable(false); }
  void unfreeze() { set_trainable(true); }
  // Converts the parameters' values. Throws std::invalid_argument for a type that is not
  // floating-point.
  void to(Dtype dtype);
  // Of calls (autograd/precision.h), children's included where they have none of their own; nothing
  // is the tape's. f32 keeps a module wide on a tape with 16 bits. Throws std::invalid_argument for
  // a type that is not f32, f16 or bf16.
  void set_precision(std::optional<Dtype> precision);
  std::optional<Dtype> precision() const { return precision_; }
  // Moves the parameters' values to a device. An optimizer made before holds its state where the
  // parameters were: make it afterwards. Throws std::invalid_argument, with the reason, when the
  // device cannot be used.
  void to(Device device);

 private:
  void set_trainable(bool trainable);
  void note_use(const Parameter& parameter);

  std::vector<Unshown> unshown_;
  std::optional<Dtype> precision_;
  bool recompute_ = false;
};

// Sees every module that is called, with its input and its result, for as long as it lives and on
// its thread; a later one sees instead of an earlier. What is run again in backward was seen
// before.
class ModuleHook {
 public:
  using OnCall = std::function<void(const Module& module, const Var& x, const Var& result)>;
  explicit ModuleHook(OnCall on_call);
  ModuleHook(const ModuleHook&) = delete;
  ModuleHook& operator=(const ModuleHook&) = delete;
  ~ModuleHook();

 private:
  friend class Module;
  OnCall on_call_;
  ModuleHook* before_;
};

// Modules one after another; children are called "0", "1" and so on. Give them in braces,
// Sequential{Linear(2, 3), Tanh()}: C++ evaluates these from left to right, and so the initial
// values depend on the seed alone and not on the compiler.
class Sequential final : public Module {
 public:
  // Modules begin .. end - 1.
  struct Segment {
    int begin = 0, end = 0;
    bool operator==(const Segment&) const = default;
  };

  Sequential() = default;
  template <std::derived_from<Module>... M>
  explicit Sequential(M... modules) {
    (add(std::move(modules)), ...);
  }

  template <std::derived_from<Module> M>
  void add(M module) {
    modules_.push_back(std::make_unique<M>(std::move(module)));
  }
  int size() const { return static_cast<int>(modules_.size()); }
  // Throws std::invalid_argument unless 0 <= index < size().
  Module& operator[](int index);
  // Which modules keep their input alone and are run again together in backward
  // (autograd/segment.h). Of two segments one lies in the other or they are apart; throws
  // std::invalid_argument otherwise, and for one that is empty or not there.
  void set_segments(std::vector<Segment> segments);
  const std::vector<Segment>& segments() const { return segments_; }

  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

 private:
  Var run(const Segment& part, std::size_t next, Var x);

  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<Segment> segments_;  // by begin, and the larger before those it holds
};

}  // namespace sotto::nn
