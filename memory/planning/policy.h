// The memory policy of training: one setting for ordinary and private steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace sotto::memory {

// Settings by which a step is computed: pieces, type, and a limit of bytes.
struct Policy {
  // The maximum number of rows computed at once. Unset: as many as keep the limit, found by dry
  // runs at the first step; without a limit or accumulation, usual_physical_batch.
  std::optional<std::int64_t> physical_batch = {};
  // The number of physical batches, of about equal size, that a batch is split into; memory may
  // require more.
  std::optional<std::int64_t> accumulation = {};
  // Activation checkpoints: every n-th module of the model's Sequentials keeps its input, and
  // backward recomputes the rest (model_checkpoints.h); 0: none. Unset: the model's own; if it has
  // none and no cheaper strategy keeps the limit, those with the least recomputation.
  std::optional<int> checkpoint = {};
  // The type in which operations compute where they can (TapeOptions): f32, f16 or bf16. Unset:
  // f32, or bf16 if nothing else keeps the limit.
  std::optional<Dtype> precision = {};
  // The maximum bytes of all tensors on the model's device during a step; 0: no limit.
  std::size_t limit = 0;

  // The maximum number of rows at once, before a limit is considered.
  std::int64_t rows() const;
  // Describes each setting that is out of range; empty when all are valid.
  std::vector<std::string> problems() const;
};

// Rows at once if no option and no limit decides.
inline constexpr std::int64_t usual_physical_batch = 512;

// Parses a number of bytes such as "2GiB", "1.5 MB" or "4096": the units are powers of 1000 (kB,
// MB, GB, TB) or 1024 (KiB, MiB, GiB, TiB), and the result is rounded down. Throws
// std::invalid_argument for other text, and for less than one byte or more than 2^62.
std::size_t parse_bytes(const std::string& text);
// Formats bytes: "1.50 GiB".
std::string bytes_text(std::size_t bytes);

// A policy's checkpoint as text: "auto" if unset, "none" for 0, else the number.
std::string checkpoint_text(const std::optional<int>& checkpoint);
// Parses such a text. Throws std::invalid_argument for any other.
std::optional<int> parse_checkpoint(const std::string& text);
// A policy's precision as text: "auto" if unset, else the type's name.
std::string precision_text(const std::optional<Dtype>& precision);
// Parses such a text. Throws std::invalid_argument, with the valid names, for any other.
std::optional<Dtype> parse_precision(const std::string& text);

// The smaller of the device's limit (Allocator::set_limit) and `bytes`, where 0 means no limit.
std::size_t limit_within(std::size_t bytes, Device device = cpu);

// Limits the device's tensors, those of all threads, to limit_within(bytes, device) while it lives.
// One step at a time may use it.
class LimitScope {
 public:
  // 0 bytes: no limit.
  explicit LimitScope(std::size_t bytes, Device device = cpu);
  LimitScope(const LimitScope&) = delete;
  LimitScope& operator=(const LimitScope&) = delete;
  ~LimitScope();

 private:
  Device device_;
  std::size_t before_;
};

}  // namespace sotto::memory
