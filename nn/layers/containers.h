// Modules held by number or by name, for models with a forward of their own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::nn {

// Children are named "0", "1", ... It has no forward of its own: calling it throws
// std::invalid_argument.
class ModuleList final : public Module {
 public:
  ModuleList() = default;

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

  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

 private:
  std::vector<std::unique_ptr<Module>> modules_;
};

// Children are named by their keys and visited in the order of the keys. Calling it throws
// std::invalid_argument.
class ModuleDict final : public Module {
 public:
  // Throws std::invalid_argument for a key that is already used, is empty or holds a dot.
  template <std::derived_from<Module> M>
  M& add(const std::string& key, M module) {
    check_key(key);
    auto made = std::make_unique<M>(std::move(module));
    M& reference = *made;
    modules_.emplace(key, std::move(made));
    return reference;
  }
  // True if there is a module of this key.
  bool contains(const std::string& key) const { return modules_.count(key) > 0; }
  // Throws std::invalid_argument when no module has the key.
  Module& operator[](const std::string& key);

  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

 private:
  void check_key(const std::string& key) const;
  std::map<std::string, std::unique_ptr<Module>> modules_;
};

// A residual connection (He et al. 2015): x + inner(x).
class Residual final : public Module {
 public:
  // Takes over the inner module, whose results have the shape of its inputs.
  template <std::derived_from<Module> M>
  explicit Residual(M inner) : inner_(std::make_unique<M>(std::move(inner))) {}
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override { visitor("inner", inner_); }

 private:
  std::unique_ptr<Module> inner_;
};

}  // namespace sotto::nn
