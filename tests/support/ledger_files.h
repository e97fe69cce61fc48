// Files for the tests of ledgers, and lines to fill them.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "core/error.h"
#include "dp/ledger/ledger_text.h"

namespace sotto {

inline const Event sampled{1.1, Sampling::poisson, 0.01};
inline const Event everybody{4, Sampling::full_batch, 1};

// A path in a temporary folder, which the destructor removes.
class Place {
 public:
  Place() {
    std::string folder = (std::filesystem::temp_directory_path() / "ledger_test_XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw SystemFailure("mkdtemp: " + folder);
    folder_ = folder;
  }
  ~Place() { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "ledger.jsonl") const {
    return (folder_ / name).string();
  }

 private:
  std::filesystem::path folder_;
};

inline std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Lines without checksums.
inline const std::string some_run(32, 'b'), other_run(32, 'c');
inline const std::string header = header_line({std::string(32, 'a'), {}, {}, {}});

inline std::string reserve(std::int64_t count, std::uint64_t first_draw,
                           const Event& event = sampled, const std::string& run = some_run) {
  return reservation_line({run, {}, 0, {}}, {event, count, first_draw});
}

inline std::string settle(std::int64_t used, std::uint64_t next_draw,
                          const std::string& run = some_run) {
  return settlement_line({run, {}, 0, {}}, used, next_draw);
}

// A file of these lines, each with its checksum and line end.
inline std::string file_of(const std::vector<std::string>& lines) {
  LedgerText text;
  std::string all;
  for (const std::string& line : lines) all += add_line(text, line);
  return all;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  return lines;
}

}  // namespace sotto
