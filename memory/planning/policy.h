// How training uses memory: one setting for ordinary and private steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace sotto::memory {

struct Policy {
  // The most rows that are computed at once. Unset: the most that keep the limit, found by dry runs
  // at the first step; without a limit or accumulation, usual_physical_batch.
  std::optional<std::int64_t> physical_batch = {};
  // A batch is computed in so many parts of about the same size, or in more that are smaller.
  std::optional<std::int64_t> accumulation = {};
  // Every n-th module of the model's Sequentials keeps its input and the rest is run again in
  // backward (model_checkpoints.h); 0: nothing is. Unset: as the model is set; where it is set to
  // nothing and nothing cheaper keeps the limit, the segments that run least again.
  std::optional<int> checkpoint = {};
  // What operations compute in where they can (TapeOptions): f32, f16 or bf16. Unset: f32, or bf16
  // where nothing else keeps the limit.
  std::optional<Dtype> precision = {};
  // Bytes that all tensors on the model's device may take at once during a step; 0: no limit.
  std::size_t limit = 0;

  // The most rows at once, before a limit.
  std::int64_t rows() const;
  // What is out of range, in words; empty when nothing is.
  std::vector<std::string> problems() const;
};

inline constexpr std::int64_t usual_physical_batch = 512;

// "2GiB", "1.5 MB", "4096": a number of bytes, with a unit of powers of 1000 (kB, MB, GB, TB) or
// 1024 (KiB, MiB, GiB, TiB), rounded down. Throws std::invalid_argument for other text, and for
// less than one byte or more than 2^62.
std::size_t parse_bytes(const std::string& text);
// "1.50 GiB"
std::string bytes_text(std::size_t bytes);

// A policy's checkpoint as text: "auto" where it is unset, "none" for 0, else the number.
std::string checkpoint_text(const std::optional<int>& checkpoint);
// The checkpoint of such a text. Throws std::invalid_argument for others.
std::optional<int> parse_checkpoint(const std::string& text);
// A policy's precision as text: "auto" where it is unset, else the name of the type.
std::string precision_text(const std::optional<Dtype>& precision);
// The precision of such a text. Throws std::invalid_argument for others, with those there are.
std::optional<Dtype> parse_precision(const std::string& text);

// The smaller of the device's limit (Allocator::set_limit) and this one; 0 is no limit.
std::size_t limit_within(std::size_t bytes, Device device = cpu);

// While it lives, tensors on the device take at most limit_within(bytes, device), those of all
// threads: for one step at a time.
class LimitScope {
 public:
  explicit LimitScope(std::size_t bytes, Device device = cpu);
  LimitScope(const LimitScope&) = delete;
  LimitScope& operator=(const LimitScope&) = delete;
  ~LimitScope();

 private:
  Device device_;
  std::size_t before_;
};

}  // namespace sotto::memory
