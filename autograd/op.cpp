#include "autograd/op.h"

#include <vector>

namespace sotto {

namespace {

std::vector<const char*>& op_names() {
  static std::vector<const char*> names;
  return names;
}

}  // namespace

Op::Op(const char* name, const OpProperties& properties) : OpProperties(properties), name(name) {
  op_names().push_back(name);
}

std::span<const char* const> registered_ops() { return op_names(); }

}  // namespace sotto
