// File tags: [sanitized]
#include <string>

#include "core/io/weights_file.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"
#include "tests/support/torch_files.h"
#include "tests/support/weights_files.h"

using namespace sotto;

namespace {

std::string shard(const std::string& name, char value) {
  return safetensors_file("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          std::string(1, value));
}

// A folder of two shards with the tensors "a" and "b", and an index of this weight_map.
struct Sharded {
  explicit Sharded(const std::string& map) {
    folder.write("1.safetensors", shard("a", 1));
    folder.write("2.safetensors", shard("b", 2));
    index("{\"weight_map\":" + map + "}");
  }
  void index(const std::string& text) const { folder.write("model.safetensors.index.json", text); }
  bool refused(const std::string& why) const {
    return throws([&] { open_weights(folder.path()); }, why);
  }
  TemporaryFolder folder;
};

constexpr const char* right_map = R"({"a":"1.safetensors","b":"2.safetensors"})";

}  // namespace

TEST_CASE("an index stands for the tensors of all its shards") {
  const Sharded files(right_map);
  for (const std::string& path :
       {files.folder.path(), files.folder.path("model.safetensors.index.json")}) {
    const WeightsFile weights = open_weights(path);
    CHECK(weights.tensors().size() == 2);
    CHECK(weights.tensor("a").item() == 1);
    CHECK(weights.tensor("b").item() == 2);
  }
  files.index(R"({"metadata":{"total_size":2,"more":[{}]},"weight_map":)" + std::string(right_map) +
              "}");
  CHECK(open_weights(files.folder.path()).tensors().size() == 2);
}

TEST_CASE("shards may be PyTorch's, with an index of theirs") {
  using namespace pickled;
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    folder.write(std::string(name) + ".bin",
                 torch_zip(dictionary({{name, tensor({.count = 1}, 0, {1}, {1})}}),
                           {{"0", ::bytes_of(1.5f)}}));
  }
  folder.write("pytorch_model.bin.index.json", R"({"weight_map":{"a":"a.bin","b":"b.bin"}})");
  const WeightsFile weights = open_weights(folder.path());
  CHECK(weights.tensors().size() == 2);
  CHECK(weights.tensor("b").item() == 1.5);
}

TEST_CASE("an index that disagrees with its files is refused") {
  const auto refused = [](const std::string& map, const std::string& why) {
    return Sharded(map).refused(why);
  };
  CHECK(refused(R"({"a":"1.safetensors","b":"1.safetensors"})",
                "tensor b: not in the file 1.safetensors"));
  CHECK(refused(R"({"a":"1.safetensors","c":"2.safetensors"})",
                "tensor b: in the file 2.safetensors, but not in weight_map"));
  CHECK(refused(R"({"a":"2.safetensors","b":"1.safetensors"})",
                "tensor a: in the file 1.safetensors, but weight_map says 2.safetensors"));
  CHECK(refused(R"({"a":"1.safetensors","a":"2.safetensors"})", "the key a occurs twice"));
  CHECK(refused(R"({"a":3})", "tensor a: its file is not a string: number"));
  CHECK(refused("[]", "there is no object weight_map"));
}

TEST_CASE("the files of an index are in its folder, and are no indices") {
  const auto refused = [](const std::string& map, const std::string& why) {
    return Sharded(map).refused(why);
  };
  for (const char* place : {"../1.safetensors", "/etc/passwd", "x/../../1.safetensors", ""}) {
    CHECK(refused(std::string(R"({"a":")") + place + "\"}", "is not in the folder of the index"));
  }
  CHECK(refused(R"({"a":"1.safetensors\u0000"})", "is not in the folder of the index"));
  CHECK(refused(R"({"a":"model.safetensors.index.json"})", "an index of files"));
  CHECK(throws<SystemFailure>(
      [] { open_weights(Sharded(R"({"a":"3.safetensors"})").folder.path()); }, "3.safetensors"));
}

TEST_CASE("an index is JSON with a weight_map") {
  const Sharded files(right_map);
  files.index("{}");
  CHECK(files.refused("there is no object weight_map"));
  files.index(R"({"weight_map":{)");
  CHECK(files.refused("is not JSON"));
}
