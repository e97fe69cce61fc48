#include "memory/planning/policy.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "autograd/precision.h"
#include "core/allocator/allocator.h"
#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto::memory {

namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit units[] = {{"", 1},         {"B", 1},        {"kB", 1e3},    {"KB", 1e3},
                          {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10},
                          {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
constexpr double max_bytes = 0x1p62;

}  // namespace

std::vector<std::string> Policy::problems() const {
  std::vector<std::string> texts;
  if (physical_batch && *physical_batch < 1)
    texts.push_back(fmt::format("a physical batch of {}", *physical_batch));
  try {
    check_precision("memory", precision.value_or(Dtype::f32));
  } catch (const std::invalid_argument& error) {
    texts.emplace_back(error.what());
  }
  if (checkpoint && *checkpoint < 0)
    texts.push_back(fmt::format("activation checkpoints at every {} modules", *checkpoint));
  if (accumulation && *accumulation < 1)
    texts.push_back(fmt::format("accumulation over {} physical batches", *accumulation));
  return texts;
}

std::int64_t Policy::rows() const {
  if (physical_batch) return *physical_batch;
  return accumulation || limit > 0 ? std::numeric_limits<std::int64_t>::max()
                                   : usual_physical_batch;
}

std::size_t parse_bytes(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const char* const name = std::find_if(rest, end, [](char c) { return c != ' '; });
  const auto* const unit = std::find_if(std::begin(units), std::end(units), [&](const Unit& known) {
    return std::string_view(known.name) == std::string_view(name, end);
  });
  check(error == std::errc() && unit != std::end(units),
        "bytes: \"{}\" is not a number of bytes such as 800MB or 2GiB", excerpt(text));
  const double bytes = std::floor(number * unit->bytes);
  check(bytes >= 1 && bytes <= max_bytes, "bytes: {} is not from 1 byte to 2^62", excerpt(text));
  return static_cast<std::size_t>(bytes);
}

std::string bytes_text(std::size_t bytes) {
  const auto amount = static_cast<double>(bytes);
  for (const Unit& unit : {units[10], units[9], units[8], units[7]}) {
    if (amount >= unit.bytes) return fmt::format("{:.2f} {}", amount / unit.bytes, unit.name);
  }
  return fmt::format("{} B", bytes);
}

std::string checkpoint_text(const std::optional<int>& checkpoint) {
  if (!checkpoint) return "auto";
  return *checkpoint == 0 ? "none" : fmt::to_string(*checkpoint);
}

std::optional<int> parse_checkpoint(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "none") return 0;
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  check(error == std::errc() && rest == end && number >= 1,
        "{} is not auto, none or a number of modules", text);
  return number;
}

std::string precision_text(const std::optional<Dtype>& precision) {
  return precision ? name(*precision) : "auto";
}

std::optional<Dtype> parse_precision(const std::string& text) {
  for (const std::optional<Dtype>& known :
       {std::optional<Dtype>{}, std::optional(Dtype::f32), std::optional(Dtype::bf16),
        std::optional(Dtype::f16)}) {
    if (precision_text(known) == text) return known;
  }
  fail(fmt::format("{} is not one of auto, f32, bf16, f16", text));
}

std::size_t limit_within(std::size_t bytes, Device device) {
  const std::size_t outer = allocator(device).limit();
  return outer == 0 || bytes == 0 ? std::max(outer, bytes) : std::min(outer, bytes);
}

LimitScope::LimitScope(std::size_t bytes, Device device)
    : device_(device), before_(allocator(device).limit()) {
  allocator(device).set_limit(limit_within(bytes, device));
}

LimitScope::~LimitScope() { allocator(device_).set_limit(before_); }

}  // namespace sotto::memory
