// Whose bytes they are: every block of memory is handed out under a label, which says what it is
// for, and which operation, module and phase of a step asked for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sotto {

enum class MemoryKind : std::uint8_t {
  parameter,
  gradient,         // sums over samples, until the update has used them
  optimizer_state,  // what a rule keeps between steps
  activation,       // values of the forward pass that backward or later layers need
  factors,          // what per-sample gradients are made of, kept until norms are known
  rows,             // per-sample gradients that were written out
  workspace,        // scratch of kernels, temporaries, gradients of activations
  data,             // inputs of a tape
  other,
};
inline constexpr int memory_kinds = 9;

// "optimizer state"
const char* name(MemoryKind kind);

// One address in the whole program, unlike a literal.
inline constexpr char no_text[] = "";

// The texts are not owned, and compared by their addresses: literals, or interned().
struct MemoryLabel {
  MemoryKind kind = MemoryKind::other;
  bool backward = false;  // of the operation's backward
  const char* op = no_text;
  const char* module = no_text;  // the path to it, "block1.conv2"
  const char* phase = no_text;

  bool operator==(const MemoryLabel&) const = default;
  // "conv2d (backward)"
  std::string op_name() const;
};

// The text, kept for as long as the program runs.
const char* interned(std::string_view text);

// What this thread allocates under now.
const MemoryLabel& memory_label();
// Stands for the thread this one works for: itself, but in parallel_for.
const void* memory_owner();

// Sets the thread's label for as long as it lives.
class LabelScope {
 public:
  explicit LabelScope(const MemoryLabel& label, const void* owner = memory_owner());
  LabelScope(const LabelScope&) = delete;
  LabelScope& operator=(const LabelScope&) = delete;
  ~LabelScope();

  // The label as it is, but for one part.
  static LabelScope kind(MemoryKind kind);
  static LabelScope phase(const char* phase);
  static LabelScope module(const char* path);

 private:
  MemoryLabel before_;
  const void* owner_before_;
};

}  // namespace sotto
