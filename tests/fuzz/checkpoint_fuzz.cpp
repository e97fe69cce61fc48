// Any section of a program, ledger's mark and statistics, a line each, are those of a run of
// `mnist`, or its files are refused with SystemFailure.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <unistd.h>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "core/ranks/one_rank.h"
#include "dp/engine/training_checkpoint.h"
#include "samples/report/recorder.h"
#include "samples/training/saved_run.h"

namespace {

using namespace sotto;

// A name in a folder in memory, for the life of the process.
class Place {
 public:
  Place() : path_("/dev/shm/sotto_fuzz_" + std::to_string(::getpid())) {}
  ~Place() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <class Load>
void refuse_or_load(Load&& load) {
  try {
    load();
  } catch (const SystemFailure&) {
    // The expected answer to most inputs.
  }
}

// False for what no file can hold.
bool write_file(const std::string& path, const std::string& section, const std::string& mark) {
  TensorFile file;
  file.metadata[program_key] = section;
  file.metadata[secret_key] = "yes";
  if (mark != "null") file.metadata[mark_key] = mark;
  try {
    save_safetensors(path, file);
    return true;
  } catch (const std::invalid_argument&) {
    return false;  // not UTF-8
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Place place;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  std::string section, mark, statistics;
  std::getline(in, section);
  std::getline(in, mark);
  std::getline(in, statistics);
  OneRank alone;
  const std::string state = samples::state_path(place.path());
  if (write_file(state, section, mark))
    refuse_or_load([&] { samples::load_saved(alone, place.path(), "mnist"); });
  std::remove(state.c_str());
  std::ofstream(place.path(), std::ios::binary) << statistics;
  refuse_or_load([&] { samples::load_statistics(place.path(), 10); });
  std::remove(place.path().c_str());  // it may look like a ledger, which no file replaces
  return 0;
}
