// File tags: [sanitized]
#include "core/io/weights_file.h"

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"
#include "tests/support/weights_files.h"

using namespace sotto;

namespace {

// A file of one tensor "w" of a type, a shape, and so many bytes.
std::string file_of(const std::string& type, const std::string& shape, const std::string& data) {
  return safetensors_file(R"({"w":{"dtype":")" + type + R"(","shape":)" + shape +
                              R"(,"data_offsets":[0,)" + std::to_string(data.size()) + "]}}",
                          data);
}

}  // namespace

TEST_CASE("the tensors of a file are those that were saved, and share its mapping") {
  const TemporaryFolder folder;
  const std::string path = folder.path("model.safetensors");
  save_safetensors(path, {.tensors = {{"w", Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}, Dtype::f32)},
                                      {"n", Tensor::from({7}, {}, Dtype::i64)},
                                      {"h", Tensor::from({0.5, 2}, {2}, Dtype::bf16)},
                                      {"none", Tensor::empty({0, 3}, Dtype::f64)}},
                          .metadata = {{"format", "pt"}}});
  const WeightsFile file = open_weights(path);
  CHECK(file.path() == path);
  CHECK(file.metadata() == nlohmann::json({{"format", "pt"}}));
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors().at("w").shape == Shape{2, 3});
  CHECK(file.tensors().at("w").type == "F32");
  CHECK(file.tensors().at("n").dtype == Dtype::i64);
  const Tensor w = file.tensor("w");
  CHECK(w.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(w.in_block());
  CHECK(file.tensor("n").item() == 7);
  CHECK(file.tensor("h").at({1}) == 2);
  CHECK(file.tensor("none").shape() == Shape{0, 3});
  CHECK_FALSE(file.blocks("w").has_value());
}

TEST_CASE("a tensor outlives its file, and what is written into it does not reach the disk") {
  const TemporaryFolder folder;
  folder.write("w.safetensors", file_of("F32", "[2]", bytes_of(1.f, 2.f)));
  const Tensor w = open_weights(folder.path("w.safetensors")).tensor("w");
  const Tensor again = open_weights(folder.path("w.safetensors")).tensor("w");
  w.data<float>()[0] = 5;
  CHECK(w.at({0}) == 5);
  CHECK(again.at({0}) == 1);
  CHECK(open_weights(folder.path("w.safetensors")).tensor("w").at({0}) == 1);
}

TEST_CASE("elements that are not aligned are copied") {
  std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 4 != 1) header += ' ';
  const Tensor w = weights_in(safetensors_file(header, bytes_of(1.5f, -2.f))).tensor("w");
  CHECK(w.to_vector<float>() == std::vector<float>{1.5f, -2});
  CHECK_FALSE(w.in_block());
}

TEST_CASE("a tensor of a type that is not supported is listed, and refused when it is asked for") {
  for (const char* type : {"I8", "I16", "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F4", "C64"}) {
    const WeightsFile file = weights_in(file_of(type, "[2]", std::string(16, '\1')));
    CHECK(file.tensors().at("w").type == type);
    CHECK_FALSE(file.tensors().at("w").dtype.has_value());
    CHECK(throws([&] { file.tensor("w"); },
                 std::string("weights: FILE: tensor w: the type ") + type + " is not supported"));
  }
}

TEST_CASE("errors name the file and the tensor") {
  const WeightsFile file = weights_in(file_of("BOOL", "[2]", std::string("\0\2", 2)));
  CHECK(throws([&] { file.tensor("w"); }, "weights: FILE: tensor w: a BOOL has the value 2"));
  CHECK(throws([&] { file.tensor("v"); }, "weights: FILE: there is no tensor v"));
  CHECK(throws([&] { file.blocks("v"); }, "weights: FILE: there is no tensor v"));
  CHECK(throws([] { weights_in(file_of("F32", "[2]", "1234")); },
               "safetensors: FILE: tensor w: data_offsets 0 to 4 for the 8 bytes"));
}

TEST_CASE("a file of no known format is refused with its first bytes") {
  CHECK(throws([] { weights_in(""); }, "weights: FILE: the file is empty"));
  CHECK(throws([] { weights_in("\x89HDF\r\n\x1a\n"); }, "begins with \"\\x89HDF\\x0d\\x0a"));
  CHECK(throws([] { weights_in("version https://git-lfs.github.com/spec/v1\n"); }, "Git LFS"));
  CHECK(throws([] { weights_in("w" + std::string(256, '\0') + "ustar"); }, "a tar archive"));
  CHECK(throws<SystemFailure>([] { open_weights("/nowhere/w.safetensors"); }, "/nowhere"));
}

TEST_CASE("a folder stands for its file of weights") {
  const TemporaryFolder folder;
  CHECK(throws([&] { open_weights(folder.path()); }, "holds no model.safetensors"));
  folder.write("config.json", "{}");
  folder.write("a.safetensors", file_of("U8", "[1]", "a"));
  CHECK(open_weights(folder.path()).tensor("w").item() == 'a');
  folder.write("b.gguf", "GGUF");
  CHECK(throws([&] { open_weights(folder.path()); },
               "several files of weights, among them a.safetensors and b.gguf"));
  folder.write("model.safetensors", file_of("U8", "[1]", "m"));
  CHECK(open_weights(folder.path()).tensor("w").item() == 'm');
}

TEST_CASE("a checksum of ours is compared, and is not among the metadata") {
  const TemporaryFolder folder;
  const std::string path = folder.path("w.safetensors");
  save_safetensors(path, {.tensors = {{"w", Tensor::from({1, 2}, {2}, Dtype::f32)}}});
  std::string bytes = read_file(path);
  CHECK(weights_in(bytes).metadata().empty());
  bytes.back() ^= 1;
  CHECK(throws([&] { weights_in(bytes); }, "damaged"));
}
