#include "core/allocator/memory_label.h"

#include <mutex>
#include <set>

namespace sotto {

namespace {

constinit thread_local MemoryLabel current;
// nullptr: the thread itself is the owner.
constinit thread_local const void* working_for = nullptr;
// The address of this variable identifies the thread.
constinit thread_local char token = 0;

constexpr const char* kind_names[memory_kinds] = {
    "parameters",  "gradients",     "optimizer state",
    "activations", "saved factors", "per-sample gradients",
    "workspace",   "data",          "other"};

}  // namespace

const char* name(MemoryKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

std::string MemoryLabel::op_name() const {
  return backward && *op != '\0' ? std::string(op) + " (backward)" : op;
}

const char* interned(std::string_view text) {
  // Never destroyed: blocks with static lifetime keep their labels until the program ends.
  static auto* const texts = new std::set<std::string, std::less<>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto found = texts->find(text);
  return found != texts->end() ? found->c_str() : texts->emplace(text).first->c_str();
}

const MemoryLabel& memory_label() { return current; }

const void* memory_owner() { return working_for ? working_for : &token; }

LabelScope::LabelScope(const MemoryLabel& label, const void* owner)
    : before_(current), owner_before_(working_for) {
  current = label;
  working_for = owner;
}

LabelScope::~LabelScope() {
  current = before_;
  working_for = owner_before_;
}

LabelScope LabelScope::kind(MemoryKind kind) {
  MemoryLabel label = current;
  label.kind = kind;
  return LabelScope(label);
}

LabelScope LabelScope::phase(const char* phase) {
  MemoryLabel label = current;
  label.phase = phase;
  return LabelScope(label);
}

LabelScope LabelScope::module(const char* path) {
  MemoryLabel label = current;
  label.module = path;
  return LabelScope(label);
}

}  // namespace sotto
