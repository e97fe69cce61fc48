// Models: a module is a function of one value with named parameters, and may hold other modules.
// Modules of several inputs are in nn/module_of.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/tape.h"

namespace sotto::nn {

class Module;

// Parameters with their names. The modules own the parameters.
using NamedParameters = std::vector<std::pair<std::string, Parameter*>>;

// Receives a module's parameters and children from Module::visit().
class Visitor {
 public:
  // Called for each parameter that is there.
  using OnParameter = std::function<void(const std::string& name, Parameter& parameter)>;
  // Called for each child, with its name in the module.
  using OnChild = std::function<void(const std::string& name, Module& child)>;
  // Called for a child that its owner holds by pointer: the function may put another in its place.
  using OnOwned = std::function<void(const std::string& name, std::unique_ptr<Module>& child)>;
  // Without `on_owned`, children held by pointer are children like the others.
  Visitor(OnParameter on_parameter, OnChild on_child, OnOwned on_owned = {})
      : on_parameter_(std::move(on_parameter)),
        on_child_(std::move(on_child)),
        on_owned_(std::move(on_owned)) {}

  // A null parameter (a layer without bias) is skipped.
  void operator()(const std::string& name, const std::unique_ptr<Parameter>& parameter) const {
    if (parameter) on_parameter_(name, *parameter);
  }
  void operator()(const std::string& name, Module& child) const { on_child_(name, child); }
  // A null child is skipped.
  void operator()(const std::string& name, std::unique_ptr<Module>& child) const;

 private:
  OnParameter on_parameter_;
  OnChild on_child_;
  OnOwned on_owned_;
};

// The base of layers and models. Derive from it for a layer of your own: hold parameters in
// std::unique_ptr and children by value (moving a module then leaves its parameters where they
// are), implement forward(), and name every parameter and child in visit(). A child held in a
// std::unique_ptr<Module> can be replaced later, by an adapted or a quantised layer.
class Module {
 public:
  // A module without parameters, until the derived class adds some.
  Module() = default;
  virtual ~Module() = default;
  // Moving leaves the parameters at their addresses.
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  // Computes the results, on the tape of x. Call the module by operator() and not this. It must not
  // write to trainable parameters: on a GPU they may have been converted to 16 bits before.
  virtual Var forward(const Var& x) = 0;
  // Names every parameter and child, always in the same order: visitor("weight", weight).
  virtual void visit(const Visitor&) {}

  // Calls forward() in the module's precision and reports the call to the ModuleHook.
  Var operator()(const Var& x);
  // An activation checkpoint around each call: the tape saves the input only, and backward
  // recomputes the call (autograd/segment.h). The module must not move before backward has run.
  void set_recomputing(bool recompute) { recompute_ = recompute; }
  bool recompute() const { return recompute_; }

  // All parameters, those of children included, in the order of visit(), named by their path:
  // "conv1.weight", "0.bias". A parameter that visit() shows twice has its first name.
  NamedParameters named_parameters();
  std::vector<Parameter*> parameters();  // those of named_parameters()
  // A trainable parameter that a call used although visit() does not show it. Calls of the
  // outermost module record it.
  struct Unshown {
    const Parameter* parameter;  // owned by its module
    std::string owner;           // "a Linear of encoder, which visit() does not show"
  };
  // The parameters so recorded; empty if visit() is complete.
  const std::vector<Unshown>& unshown() const { return unshown_; }
  // The number of elements of all parameters, frozen ones included.
  std::int64_t parameter_count();

  // Frozen parameters get no gradient; optimizers made afterwards leave them out.
  void freeze() { set_trainable(false); }
  void unfreeze() { set_trainable(true); }  // undoes freeze()
  // Converts the parameters' values. Throws std::invalid_argument for a type that is not
  // floating-point.
  void to(Dtype dtype);
  // The precision of this module's calls (autograd/precision.h). Children without a precision of
  // their own inherit it; nullopt means that of the tape. f32 keeps a module in single precision on
  // a 16-bit tape; the norm before it needs f32, too, if it writes 16 bits (writes_16bit).
  // Throws std::invalid_argument for a type other than f32, f16 and bf16.
  void set_precision(std::optional<Dtype> precision);
  std::optional<Dtype> precision() const { return precision_; }
  // Moves the parameters' values to a device. Make optimizers afterwards: an optimizer keeps its
  // state on the device where it was made. Throws std::invalid_argument, with the reason, when the
  // device cannot be used.
  void to(Device device);

 protected:
  using Run = std::function<Var(std::span<const Var> inputs)>;  // calls forward()
  // Calls a module with any number of inputs: calls `run` in the module's precision and reports the
  // call to the ModuleHook. If the call is recomputed in backward, `run` gets other Vars in place
  // of `inputs`.
  Var call(std::span<const Var> inputs, const Run& run);
  // Throws std::invalid_argument for a module of `count` inputs that was called with one.
  [[noreturn]] Var refuse_one_input(std::size_t count) const;

 private:
  void set_trainable(bool trainable);
  void note_use(const Parameter& parameter);

  std::vector<Unshown> unshown_;
  std::vector<const Parameter*> converted_;  // CastsTogether, by the last call as the outermost one
  std::optional<Dtype> precision_;
  bool recompute_ = false;
};

// Observes module calls: while it lives, on_call is called for every module call on its thread,
// with the call's first input and its result. A hook made later replaces earlier ones until it is
// destroyed. Recomputation in backward is not reported again.
class ModuleHook {
 public:
  // Called after each call of a module; x is the call's first input.
  using OnCall = std::function<void(const Module& module, const Var& x, const Var& result)>;
  // Begins to observe calls on this thread.
  explicit ModuleHook(OnCall on_call);
  ModuleHook(const ModuleHook&) = delete;
  ModuleHook& operator=(const ModuleHook&) = delete;
  ~ModuleHook();

 private:
  friend class Module;
  OnCall on_call_;
  ModuleHook* before_;
};

// Modules applied in order; its children are named "0", "1", ... Construct it with braces,
// Sequential{Linear(2, 3), Tanh()}: braces evaluate their arguments from left to right, so that the
// initial values depend on the seed and not on the compiler.
class Sequential final : public Module {
 public:
  struct Segment {
    int begin = 0, end = 0;  // modules begin .. end - 1
    bool operator==(const Segment&) const = default;
  };

  Sequential() = default;
  // Takes over the modules, in this order.
  template <std::derived_from<Module>... M>
  explicit Sequential(M... modules) {
    (add(std::move(modules)), ...);
  }

  // Appends a module, which takes the results of the one before.
  template <std::derived_from<Module> M>
  M& add(M module) {
    auto made = std::make_unique<M>(std::move(module));
    M& reference = *made;
    modules_.push_back(std::move(made));
    return reference;
  }
  int size() const { return static_cast<int>(modules_.size()); }
  // Throws std::invalid_argument unless 0 <= index < size().
  Module& operator[](int index);
  // Sets activation checkpoints: the tape saves the input of each segment only, and backward
  // recomputes the segment's modules together (autograd/segment.h). Two segments are nested or
  // disjoint. Throws std::invalid_argument otherwise, and for a segment that is empty or out of
  // range.
  void set_segments(std::vector<Segment> segments);
  // Returns the segments, sorted by begin, an enclosing one before those inside it.
  const std::vector<Segment>& segments() const { return segments_; }

  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

 private:
  Var run(const Segment& part, std::size_t next, Var x);

  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<Segment> segments_;  // sorted by begin, an enclosing segment before those inside it
};

}  // namespace sotto::nn
