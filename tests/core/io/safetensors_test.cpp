// File tags: [sanitized]
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "core/random/philox.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The name of a temporary file, which the destructor removes.
struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("sotto_" + std::to_string(getpid()) + ".safetensors"))
                         .string();
  ~TemporaryFile() { std::filesystem::remove(path); }
};

std::string bytes_of(const TensorFile& file) {
  const TemporaryFile temporary;
  save_safetensors(temporary.path, file);
  return read_file(temporary.path);
}

TensorFile parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "model");
}

// A file with this header and `data_bytes` zero bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

bool refused(const std::string& header, std::size_t data_bytes, const std::string& why) {
  return throws([&] { parse(file_of(header, data_bytes)); }, why);
}

// The raw bytes of the elements, row-major.
std::vector<unsigned char> elements(const Tensor& x) {
  return dispatch(x.dtype(), [&]<class T>(std::type_identity<T>) {
    std::vector<unsigned char> bytes;
    for (const T value : x.to_vector<T>()) {
      const auto* const from = reinterpret_cast<const unsigned char*>(&value);
      bytes.insert(bytes.end(), from, from + sizeof value);
    }
    return bytes;
  });
}

void check_same(const Tensor& a, const Tensor& b) {
  CHECK(a.shape() == b.shape());
  CHECK(a.dtype() == b.dtype());
  CHECK(elements(a) == elements(b));
}

constexpr Dtype all_dtypes[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16,
                                Dtype::i64, Dtype::i32, Dtype::u8,  Dtype::boolean};

// Random bits, NaNs included; only 0 and 1 for booleans.
Tensor random_tensor(const Shape& shape, Dtype dtype, PublicRandom& random) {
  Tensor x = Tensor::empty(shape, dtype);
  auto* const bytes = static_cast<unsigned char*>(x.view().data);
  for (std::size_t i = 0; i < x.bytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(random.below(dtype == Dtype::boolean ? 2 : 256));
  }
  return x;
}

TensorFile example() {
  PublicRandom random(1);
  TensorFile file;
  file.metadata = {{"format", "pt"}, {"ünïcode \"quoted\"\n", std::string("a\0b", 3)}};
  for (const Dtype dtype : all_dtypes) {
    const std::string type = name(dtype);
    int i = 0;
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0}, Shape{2, 0, 3}, Shape{2, 3, 1, 5}}) {
      file.tensors[type + "." + std::to_string(i++)] = random_tensor(shape, dtype, random);
    }
    const Tensor x = random_tensor({3, 4, 5}, dtype, random);
    file.tensors[type + ".permuted"] = x.permute({2, 0, 1});
    file.tensors[type + ".sliced"] = x.slice(1, 1, 4, 2);
    file.tensors[type + ".expanded"] = x.select(0, 0).slice(0, 0, 1).expand({2, 3, 5});
  }
  return file;
}

}  // namespace

TEST_CASE("every dtype, shape and view comes back as it was saved") {
  const TensorFile file = example();
  const TensorFile again = parse(bytes_of(file));
  CHECK(again.metadata == file.metadata);
  CHECK(again.verified);
  REQUIRE(again.tensors.size() == file.tensors.size());
  for (const auto& [key, x] : file.tensors) {
    INFO(key);
    check_same(again.tensors.at(key), x);
    CHECK(again.tensors.at(key).contiguous());
  }
}

TEST_CASE("an empty file of tensors comes back empty") {
  const TensorFile again = parse(bytes_of({}));
  CHECK(again.tensors.empty());
  CHECK(again.metadata.empty());
  CHECK(again.verified);
}

TEST_CASE("a file written by hand has the values it says") {
  const std::string header =
      R"({"__metadata__":{"by":"hand"},"b":{"dtype":"I32","shape":[],"data_offsets":[8,12]},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   )";
  const float a[2] = {1.5f, -2};
  const std::int32_t b = -7;
  std::string bytes = file_of(header, 12);
  std::memcpy(bytes.data() + bytes.size() - 12, a, 8);
  std::memcpy(bytes.data() + bytes.size() - 4, &b, 4);
  const TensorFile file = parse(bytes);
  CHECK(file.metadata.at("by") == "hand");
  CHECK(file.tensors.at("a").to_vector<float>() == std::vector<float>{1.5f, -2});
  CHECK(file.tensors.at("a").shape() == Shape{1, 2});
  CHECK(file.tensors.at("b").item() == -7);
  CHECK_FALSE(file.verified);
}

TEST_CASE("the data begins at a multiple of eight, with the widest elements first") {
  TensorFile file;
  file.tensors["a"] = Tensor::from({1, 2, 3}, {3}, Dtype::u8);
  file.tensors["b"] = Tensor::from({1}, {1}, Dtype::f16);
  file.tensors["c"] = Tensor::from({1.5}, {1}, Dtype::f64);
  const std::string bytes = bytes_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  double first = 0;
  std::memcpy(&first, bytes.data() + 8 + length, 8);
  CHECK(first == 1.5);
  CHECK(bytes.substr(8 + length + 10) == "\1\2\3");
  CHECK(bytes.size() == 8 + length + 13);
}

TEST_CASE("load reads what save wrote, and names a missing file") {
  const TemporaryFile temporary;
  CHECK(throws<SystemFailure>([&] { load_safetensors(temporary.path); }, temporary.path));
  save_safetensors(temporary.path, example());
  CHECK(load_safetensors(temporary.path).tensors.size() == example().tensors.size());
  std::filesystem::remove(temporary.path);
  write_file_atomically(temporary.path, [](FileWriter& writer) { writer.write("{}"); });
  CHECK(throws([&] { load_safetensors(temporary.path); }, temporary.path));
}

TEST_CASE("tensors that cannot be saved are refused before the file is touched") {
  const TemporaryFile temporary;
  const Tensor x = Tensor::from({1}, {1}, Dtype::f32);
  const auto save = [&](const TensorFile& file) { save_safetensors(temporary.path, file); };
  CHECK(throws([&] { save({{{"w", Tensor()}}, {}}); }, "tensor w: not defined"));
  CHECK(throws([&] { save({{{"__metadata__", x}}, {}}); }, "the name is reserved by the format"));
  CHECK(throws([&] { save({{{"\xff", x}}, {}}); }, "not UTF-8"));
  CHECK(throws([&] { save({{}, {{"key", "\xc3("}}}); }, "not UTF-8"));
  CHECK(throws([&] { save({{}, {{"sotto.xxh64", "0"}}}); }, "reserved for the checksum"));
  CHECK_FALSE(std::filesystem::exists(temporary.path));
}

TEST_CASE("a header that is cut off, too long or not JSON is refused") {
  CHECK(throws([] { parse(""); }, "safetensors: model: 0 bytes are too few for a header"));
  CHECK(throws([] { parse("1234567"); }, "7 bytes are too few"));
  CHECK(throws([] { parse(std::string("\x10\0\0\0\0\0\0\0{}", 10)); },
               "the header has 16 bytes and the file 2 after its length"));
  CHECK(throws([] { parse(std::string(16, '\xff')); }, "more than 100000000"));
  CHECK(refused("", 0, "does not begin with a brace"));
  CHECK(refused(" {}", 0, "does not begin with a brace"));
  CHECK(refused("[]", 0, "does not begin with a brace"));
  CHECK(refused("{", 0, "not JSON"));
  CHECK(refused("{}x", 0, "not JSON"));
  CHECK(refused(std::string("{}\0", 3), 0, "not JSON"));
  CHECK(refused("{\"\xff\":1}", 0, "not JSON"));
  CHECK(refused("{\"a\":1e999}", 0, "not JSON"));
  CHECK(refused(R"({"a":{},"a":{}})", 0, "the key a occurs twice"));
  CHECK(refused(R"({"__metadata__":{"k":"1","k":"1"}})", 0, "the key k occurs twice"));
  CHECK(refused("{\"a\":" + std::string(100'000, '['), 0, "nested more than 3 deep"));
}

TEST_CASE("metadata other than strings is refused") {
  CHECK(refused(R"({"__metadata__":[]})", 0, "__metadata__ is not an object: array"));
  CHECK(refused(R"({"__metadata__":{"k":1}})", 0, "__metadata__ k is not a string: number"));
}

TEST_CASE("an entry of the wrong form is refused with the name of its tensor") {
  CHECK(refused(R"({"w":1})", 0, "safetensors: model: tensor w: not an object: number"));
  CHECK(refused(R"({"w":{"shape":[],"data_offsets":[0,4]}})", 4, "dtype is missing"));
  CHECK(refused(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape is missing"));
  CHECK(refused(R"({"w":{"dtype":"F32","shape":[]}})", 4, "data_offsets is missing"));
  CHECK(refused(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":0}})", 4, "4 keys"));
  CHECK(refused(R"({"w":{"dtype":1,"shape":[],"data_offsets":[0,4]}})", 4,
                "dtype is not a string: number"));
  for (const char* type : {"I16", "U16", "U32", "U64", "I8", "F8_E4M3", "F8_E5M2", "f32", "F128"}) {
    CHECK(
        refused(R"({"w":{"dtype":")" + std::string(type) + R"(","shape":[],"data_offsets":[0,4]}})",
                4, "tensor w: dtype " + std::string(type) + " is not supported"));
  }
}

TEST_CASE("a shape that is not a short list of sizes is refused") {
  const auto shaped = [](const std::string& shape, const std::string& why) {
    return refused(R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4]}})", 4,
                   why);
  };
  CHECK(shaped("4", "shape is not a list: number"));
  CHECK(shaped("[-1]", "shape holds -1"));
  CHECK(shaped("[1.0]", "shape holds 1.0"));
  CHECK(shaped("[\"1\"]", "shape holds \"1\""));
  CHECK(shaped("[9223372036854775808]", "shape holds 9223372036854775808"));
  CHECK(shaped("[99999999999999999999]", "shape holds"));
  CHECK(shaped("[1,1,1,1,1,1,1]", "7 axes where at most 6"));
  CHECK(shaped("[4611686018427387904]", "too many elements"));
  CHECK(shaped("[4294967296,4294967296]", "too many elements"));
  CHECK(shaped("[0,4294967296,4294967296]", "too many elements"));
  CHECK(shaped("[2]", "data_offsets 0 to 4 for the 8 bytes of f32 (2)"));
  CHECK(shaped("[0]", "data_offsets 0 to 4 for the 0 bytes of f32 (0)"));
}

TEST_CASE("offsets that are not a range of the data are refused") {
  const auto placed = [](const std::string& offsets, const std::string& why) {
    return refused(R"({"w":{"dtype":"F32","shape":[],"data_offsets":)" + offsets + "}}", 4, why);
  };
  CHECK(placed("0", "data_offsets is not a list"));
  CHECK(placed("[0]", "1 data_offsets where there should be 2"));
  CHECK(placed("[0,4,8]", "3 data_offsets"));
  CHECK(placed("[-4,0]", "data_offsets holds -4"));
  CHECK(placed("[4,0]", "data_offsets 4 to 0"));
  CHECK(placed("[0,5]", "data_offsets 0 to 5 for the 4 bytes"));
  CHECK(placed("[0.0,4.0]", "data_offsets holds 0.0"));
  CHECK(placed("[0,18446744073709551615]", "data_offsets holds 18446744073709551615"));
  CHECK(placed("[4,8]", "tensor w: begins at byte 4 but the tensor before it ends at 0"));
  CHECK(placed("[9223372036854775803,9223372036854775807]", "begins at byte"));
}

TEST_CASE("tensors that overlap, leave gaps or do not end with the data are refused") {
  const auto two = [](const std::string& second, std::size_t data, const std::string& why) {
    return refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"U8","shape":[4],"data_offsets":)" +
                       second + "}}",
                   data, why);
  };
  CHECK(two("[0,4]", 4, "tensor b: begins at byte 0 but the tensor before it ends at 4"));
  CHECK(two("[3,7]", 7, "tensor b: begins at byte 3 but the tensor before it ends at 4"));
  CHECK(two("[5,9]", 9, "tensor b: begins at byte 5 but the tensor before it ends at 4"));
  CHECK(two("[4,8]", 7, "tensor b: ends at byte 8 of 7"));
  CHECK(two("[4,8]", 9, "the tensors end at byte 8 of 9"));
  CHECK(refused("{}", 1, "the tensors end at byte 0 of 1"));
  CHECK_NOTHROW(parse(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("b":{"dtype":"F64","shape":[0],"data_offsets":[4,4]},)"
                              R"("c":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}})",
                              4)));
}

TEST_CASE("a boolean other than zero and one is refused") {
  std::string bytes = file_of(R"({"w":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  bytes.back() = 1;
  CHECK(parse(bytes).tensors.at("w").to_vector<bool>() == std::vector<bool>{false, true});
  bytes.back() = 2;
  CHECK(throws([&] { parse(bytes); }, "tensor w: a BOOL has the value 2"));
}

TEST_CASE("the checksum is the one that the description defines") {
  // XXH64 of {"a":{"data_offsets":[0,2],"dtype":"U8","shape":[2]}}, then of the bytes 1 and 2.
  const std::string bytes =
      file_of(R"({"a": {"shape": [2], "dtype": "U8", "data_offsets": [0, 2]},)"
              R"( "__metadata__": {"sotto.xxh64": "e20b05e98410353d"}})") +
      "\1\2";
  CHECK(parse(bytes).verified);
}

// Tries every bit of a small file, and blocks of a larger one.
TEST_CASE(
    "a file with a bit flipped or a block lost is refused, or is the same, or has no checksum") {
  const std::string good =
      bytes_of({{{"w", Tensor::from({1, 2, 3}, {3}, Dtype::f32)}}, {{"a", "b"}}});
  int unverified = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    try {
      const TensorFile file = parse(bytes);
      unverified += file.verified ? 0 : 1;
      if (file.verified) check_same(file.tensors.at("w"), parse(good).tensors.at("w"));
      CHECK(bit < 8 * (good.size() - 12));
    } catch (const std::invalid_argument&) {
    }
  }
  // A damaged name of the checksum's key means a file without checksum.
  CHECK(unverified <= 8 * 11);
}

TEST_CASE("a block of data that reads as zeros is found, wherever it is") {
  PublicRandom random(3);
  const std::string good = bytes_of({{{"a", random_tensor({3000}, Dtype::f32, random)},
                                      {"b", random_tensor({777}, Dtype::u8, random)}},
                                     {}});
  for (int round = 0; round < 200; ++round) {
    std::string bytes = good;
    const auto size = static_cast<std::size_t>(1 + random.below(512));
    const auto from = bytes.size() - 12'777 + static_cast<std::size_t>(random.below(12'777 - 512));
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(from), size, '\0');
    if (bytes == good) continue;  // the block already was zeros
    CHECK(throws([&] { parse(bytes); }, "safetensors: model: damaged: its checksum is"));
  }
}

// Quadratic work would take far too long for a test.
TEST_CASE("300,000 tensors are loaded", "[nightly]") {
  constexpr int count = 300'000;
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header +=
        fmt::format(R"("w{}":{{"dtype":"U8","shape":[],"data_offsets":[{},{}]}},)", i, i, i + 1);
  header.back() = '}';
  std::string bytes = file_of(header, count);
  bytes.back() = 7;
  const TensorFile file = parse(bytes);
  REQUIRE(file.tensors.size() == count);
  CHECK(file.tensors.at("w299998").item() == 0);
  CHECK(file.tensors.at("w299999").item() == 7);
}

TEST_CASE("a header of more than a million entries is refused by that limit", "[gate]") {
  std::string header = "{";
  for (int i = 0; i <= 1'000'000; ++i) header += "\"" + std::to_string(i) + "\":0,";
  header.back() = '}';
  CHECK(refused(header, 0, "safetensors: model: the header has more than 1000000 entries"));
}

TEST_CASE("20,000 damaged files are parsed or refused, and nothing else", "[gate]") {
  PublicRandom random(2);
  TensorFile file = example();
  std::erase_if(file.tensors, [](const auto& entry) {
    return !entry.first.ends_with("2") && !entry.first.ends_with("sliced");
  });
  std::string good = bytes_of(file);
  // Without the checksum, which would refuse nearly all of them.
  good[good.find("sotto.xxh64")] = 'S';
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  int parsed = 0;
  int refusals = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (std::int64_t changes = 1 + random.below(3); changes > 0; --changes) {
      // Damage of the header is the interesting case.
      const bool inside = random.below(8) > 0;
      const auto at = static_cast<std::size_t>(
          random.below(static_cast<std::int64_t>(inside ? 8 + length : good.size())));
      if (at >= bytes.size()) continue;
      const std::int64_t kind = random.below(12);
      if (kind == 0) bytes.resize(at);
      if (kind == 1) bytes.erase(at, static_cast<std::size_t>(1 + random.below(8)));
      if (kind == 2) bytes.insert(at, 1, bytes[at]);
      if (kind >= 3) bytes[at] = static_cast<char>(random.below(kind < 8 ? 256 : '9' + 1));
    }
    try {
      parse(bytes);
      ++parsed;
    } catch (const std::invalid_argument&) {
      ++refusals;
    }
  }
  CHECK(parsed + refusals == 20'000);
  CHECK(parsed > 100);
  CHECK(refusals > 10'000);
}
