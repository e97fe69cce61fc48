#include "samples/report/provenance.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/devices.h"
#include "core/library_build.h"

namespace sotto {

namespace {

std::string machine_text(Device device) {
  std::string text;
  for (const DeviceInfo& each : devices()) {
    if (each.device != device && each.device != cpu) continue;
    text += (text.empty() ? "" : "; ") + each.name;
    if (each.device == cpu) text += fmt::format(", {} cores", std::thread::hardware_concurrency());
  }
  return text;
}

std::string quoted(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string shell_command(std::string_view words) {
  std::string text;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find('\0'), words.size());
    text += (text.empty() ? "" : " ") + quoted(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return text;
}

Provenance provenance(Device device) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {.time = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now)),
          .sotto = library_build(),
          .machine = machine_text(device),
          .command = shell_command(words)};
}

}  // namespace sotto
