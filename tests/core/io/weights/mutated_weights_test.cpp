// File tags: [sanitized]

// Every reader of weights, on files that are cut or changed anywhere: they load, or are refused
// with an error of ours.
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/torch_files.h"

using namespace sotto;

namespace {

// Reads all that the file has. False for an error that is none of ours.
bool harmless(const std::string& bytes) {
  try {
    const WeightsFile file = weights_in(bytes);
    for (const auto& [name, stored] : file.tensors()) {
      try {
        file.blocks(name);
        file.tensor(name);
      } catch (const std::invalid_argument&) {
      }
    }
  } catch (const std::invalid_argument&) {
  } catch (const SystemFailure&) {  // the files of an index
  } catch (const std::exception& error) {
    UNSCOPED_INFO(error.what());
    return false;
  }
  return true;
}

void check_mutations(const std::string& bytes) {
  REQUIRE_FALSE(weights_in(bytes).tensors().empty());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    REQUIRE(harmless(bytes.substr(0, size)));
  }
  for (std::size_t place = 0; place < bytes.size(); ++place) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[place] = static_cast<char>(changed[place] ^ change);
      REQUIRE(harmless(changed));
    }
  }
}

std::string example_gguf() {
  GgufFile file;
  file.text_key("general.architecture", "llama");
  file.key("general.alignment", GgufFile::u32, bytes_of(std::uint32_t{32}));
  file.key(
      "tokens", GgufFile::array,
      bytes_of(GgufFile::text, std::uint64_t{2}) + GgufFile::text_of("a") + GgufFile::text_of("b"));
  file.add("w", 0, {2, 2}, bytes_of(1.f, 2.f, 3.f, 4.f));
  file.add("q", 8, {2, 32}, std::string(68, '\1'));
  file.add("other", 10, {256}, std::string(84, '\1'));
  return file.bytes();
}

std::string example_dictionary() {
  using namespace pickled;
  const SavedStorage x{.count = 4};
  return dictionary({{"epoch", number(3)},
                     {"state_dict", ordered({{"w", tensor(x, 0, {2, 2}, {1, 2})},
                                             {"b", tensor(x, 1, {3}, {1})}})}});
}

}  // namespace

TEST_CASE("a safetensors file that is cut or changed anywhere loads or is refused") {
  check_mutations(safetensors_file(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BOOL","shape":[1,2],"data_offsets":[8,10]}})",
      bytes_of(1.f, 2.f) + "\1\1"));
}

TEST_CASE("a GGUF file that is cut or changed anywhere loads or is refused") {
  check_mutations(example_gguf());
}

TEST_CASE("an archive of PyTorch that is cut or changed anywhere loads or is refused") {
  const StorageBytes storages = {{"0", bytes_of(1.f, 2.f, 3.f, 4.f)}};
  check_mutations(torch_zip(example_dictionary(), storages));
  check_mutations(torch_zip(example_dictionary(), storages, true));
}

TEST_CASE("a file of PyTorch's older form that is cut or changed anywhere loads or is refused") {
  check_mutations(torch_stream(example_dictionary(), {{"0", bytes_of(1.f, 2.f, 3.f, 4.f)}}));
}
