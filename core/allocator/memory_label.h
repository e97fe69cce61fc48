// Memory labels: every block is allocated under a label that names its owner: its kind, and the op,
// module and phase of the step that asked for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sotto {

// The purpose of a block, by which reports group memory.
enum class MemoryKind : std::uint8_t {
  parameter,
  gradient,         // sums over samples, until the update has used them
  optimizer_state,  // state that an optimizer keeps between steps
  activation,       // forward values that backward or later layers need
  saved_factor,     // factors of per-sample gradients, kept until the norms are known
  per_sample_grad,  // materialized per-sample gradients
  workspace,        // scratch of kernels, temporaries, gradients of activations
  data,             // inputs of a tape
  other,
};
inline constexpr int memory_kinds = 9;  // the number of MemoryKinds

// The kind in words: "optimizer state".
const char* name(MemoryKind kind);

// The empty text, at one address in the whole program (a literal has one per translation unit).
inline constexpr char no_text[] = "";

// The owner of a block. Texts are not owned and are compared by address: use literals or
// interned().
struct MemoryLabel {
  MemoryKind kind = MemoryKind::other;  // the purpose
  bool backward = false;                // allocated by the backward of `op`
  const char* op = no_text;             // the operation's name
  const char* module = no_text;         // its path in the model: "block1.conv2"
  const char* phase = no_text;          // of the step: "forward"

  bool operator==(const MemoryLabel&) const = default;
  // The op in words: "conv2d (backward)".
  std::string op_name() const;
};

// A copy of the text that lives as long as the program; equal texts have one address.
const char* interned(std::string_view text);

// The label under which this thread allocates.
const MemoryLabel& memory_label();
// Identifies the thread on whose behalf this one allocates: inside parallel_for the caller, else
// the thread itself.
const void* memory_owner();

// Sets the thread's label, and the owner of its allocations, while it lives:
// `const LabelScope scope = LabelScope::phase("evaluation");`
class LabelScope {
 public:
  explicit LabelScope(const MemoryLabel& label, const void* owner = memory_owner());
  LabelScope(const LabelScope&) = delete;
  LabelScope& operator=(const LabelScope&) = delete;
  ~LabelScope();

  // The current label with one field replaced.
  static LabelScope kind(MemoryKind kind);
  // A scope whose label has another phase, and the rest of the label outside.
  static LabelScope phase(const char* phase);
  // A scope whose label has another module path, and the rest of the label outside.
  static LabelScope module(const char* path);

 private:
  MemoryLabel before_;
  const void* owner_before_;
};

}  // namespace sotto
