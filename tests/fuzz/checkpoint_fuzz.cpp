// Any settings, progress and statistics, a line each, are those of a run of `mnist`, or its files
// are refused with SystemFailure.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <unistd.h>

#include "core/error.h"
#include "samples/training/checkpoint.h"

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
bool write_file(const std::string& path, const std::string& settings, const std::string& progress) {
  TensorFile file;
  file.metadata["sotto.mnist.settings"] = settings;
  file.metadata["sotto.mnist.progress"] = progress;
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
  std::string settings, progress, statistics;
  std::getline(in, settings);
  std::getline(in, progress);
  std::getline(in, statistics);
  if (write_file(place.path(), settings, progress))
    refuse_or_load([&] { samples::load_checkpoint(place.path(), "mnist"); });
  std::remove(place.path().c_str());
  std::ofstream(place.path(), std::ios::binary) << statistics;
  refuse_or_load([&] { samples::load_statistics(place.path(), 10); });
  std::remove(place.path().c_str());  // it may look like a ledger, which no file replaces
  return 0;
}
