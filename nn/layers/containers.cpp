#include "nn/layers/containers.h"

#include "autograd/ops/elementwise.h"

namespace sotto::nn {

Module& ModuleList::operator[](int index) {
  check(index >= 0 && index < size(), "ModuleList: module {} of {}", index, size());
  return *modules_[static_cast<std::size_t>(index)];
}

Var ModuleList::forward(const Var&) { fail("ModuleList: has no forward; call its modules"); }

void ModuleList::visit(const Visitor& visitor) {
  for (std::size_t i = 0; i < modules_.size(); ++i) visitor(std::to_string(i), modules_[i]);
}

Module& ModuleDict::operator[](const std::string& key) {
  const auto found = modules_.find(key);
  check(found != modules_.end(), "ModuleDict: no module \"{}\"", key);
  return *found->second;
}

Var ModuleDict::forward(const Var&) { fail("ModuleDict: has no forward; call its modules"); }

void ModuleDict::visit(const Visitor& visitor) {
  for (auto& [key, module] : modules_) visitor(key, module);
}

void ModuleDict::check_key(const std::string& key) const {
  check(!key.empty() && key.find('.') == std::string::npos,
        "ModuleDict: the key \"{}\" is empty or holds a dot", key);
  check(!contains(key), "ModuleDict: the key \"{}\" is already used", key);
}

Var Residual::forward(const Var& x) { return x + inner_->forward(x); }

}  // namespace sotto::nn
