#include "autograd/op.h"

#include <vector>

namespace sotto {

namespace {

std::vector<const char*>& op_names() {
  static std::vector<const char*> names;
  return names;
}

}  // namespace

Op::Op(const char* name, Captures captures, Batchable batchable, SampleCount rows)
    : name(name), captures(captures), batchable(batchable), rows(rows) {
  op_names().push_back(name);
}

std::span<const char* const> registered_ops() { return op_names(); }

}  // namespace sotto
