// File tags: [sanitized]
#include <cstdint>
#include <string>
#include <vector>

#include "core/half.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"
#include "tests/support/weights_files.h"

using namespace sotto;

namespace {

constexpr std::uint32_t f32 = 0, q8_0 = 8, q4_1 = 3, q2_k = 10, i64 = 27, bf16_type = 30;

// The error of a file.
bool refused(const GgufFile& file, const std::string& why) {
  return throws([&] { weights_in(file.bytes()); }, why);
}

// A file of one tensor "w".
GgufFile one(std::uint32_t type, std::vector<std::uint64_t> sizes, std::size_t bytes) {
  GgufFile file;
  file.add("w", type, std::move(sizes), std::string(bytes, '\1'));
  return file;
}

}  // namespace

TEST_CASE("the tensors of a GGUF file are row-major in its versions 2 and 3") {
  for (const std::uint32_t version : {2, 3}) {
    GgufFile gguf{.version = version};
    gguf.add("w", f32, {2, 3}, bytes_of(1.f, 2.f, 3.f, 4.f, 5.f, 6.f));
    gguf.add("n", i64, {1}, bytes_of(std::int64_t{-7}));
    gguf.add("h", bf16_type, {2}, bytes_of(bf16(0.5f), bf16(2.f)));
    const WeightsFile file = weights_in(gguf.bytes());
    CHECK(file.tensor("w").shape() == Shape{2, 3});
    CHECK(file.tensor("w").to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
    CHECK(file.tensor("w").in_block());
    CHECK(file.tensor("n").item() == -7);
    CHECK(file.tensor("h").at({0}) == 0.5);
    CHECK(file.tensors().at("h").type == "BF16");
  }
}

TEST_CASE("values of each type come as JSON") {
  GgufFile gguf;
  gguf.key("u8", 0, bytes_of(std::uint8_t{200}));
  gguf.key("i8", 1, bytes_of(std::int8_t{-100}));
  gguf.key("u16", 2, bytes_of(std::uint16_t{60000}));
  gguf.key("i16", 3, bytes_of(std::int16_t{-30000}));
  gguf.key("u32", 4, bytes_of(std::uint32_t{4000000000}));
  gguf.key("i32", 5, bytes_of(std::int32_t{-2000000000}));
  gguf.key("f32", 6, bytes_of(0.5f));
  gguf.key("yes", 7, "\1");
  gguf.text_key("text", "Ġa");
  gguf.key("u64", 10, bytes_of(std::uint64_t{1} << 63));
  gguf.key("i64", 11, bytes_of(INT64_MIN));
  gguf.key("f64", 12, bytes_of(0.1));
  gguf.key("texts", 9,
           bytes_of(std::uint32_t{8}, std::uint64_t{2}) + GgufFile::text_of("a") +
               GgufFile::text_of(""));
  gguf.key("lists", 9,
           bytes_of(std::uint32_t{9}, std::uint64_t{1}) +
               bytes_of(std::uint32_t{0}, std::uint64_t{3}) + "\1\2\3");
  const nlohmann::json expected = {{"u8", 200},          {"i8", -100},
                                   {"u16", 60000},       {"i16", -30000},
                                   {"u32", 4000000000},  {"i32", -2000000000},
                                   {"f32", 0.5},         {"yes", true},
                                   {"text", "Ġa"},       {"u64", std::uint64_t{1} << 63},
                                   {"i64", INT64_MIN},   {"f64", 0.1},
                                   {"texts", {"a", ""}}, {"lists", {{1, 2, 3}}}};
  CHECK(weights_in(gguf.bytes()).metadata() == expected);
}

TEST_CASE("blocks are given as they lie, a row after the other") {
  GgufFile gguf;
  gguf.add("w", q4_1, {2, 64}, std::string(2 * 2 * 20, '\3'));
  gguf.add("experts", q8_0, {2, 3, 32}, std::string(2 * 3 * 34, '\4'));
  const WeightsFile file = weights_in(gguf.bytes());
  const BlockMatrix w = file.blocks("w").value();
  CHECK(w.format == BlockFormat::q4_1);
  CHECK(w.shape == Shape{2, 64});
  CHECK(w.bytes.shape() == Shape{2, 40});
  CHECK(w.bytes.in_block());
  CHECK(file.blocks("experts")->shape == Shape{6, 32});
  CHECK(file.tensors().at("experts").shape == Shape{2, 3, 32});
  CHECK(file.tensors().at("w").format == BlockFormat::q4_1);
  CHECK(throws([&] { file.tensor("w"); }, "tensor w: its numbers are in blocks of Q4_1"));
}

TEST_CASE("a type of GGUF that is not supported is listed, and refused when it is asked for") {
  const WeightsFile file = weights_in(one(q2_k, {256}, 84).bytes());
  CHECK(file.tensors().at("w").type == "Q2_K");
  CHECK_FALSE(file.blocks("w").has_value());
  CHECK(throws([&] { file.tensor("w"); }, "tensor w: the type Q2_K is not supported"));
  CHECK(weights_in(one(99, {3}, 9).bytes()).tensors().at("w").type == "number 99");
}

TEST_CASE(
    "integers of 1 and 2 bytes are listed, their places checked, and refused when asked for") {
  constexpr std::uint32_t i8 = 24, i16 = 25;
  const WeightsFile file = weights_in(one(i8, {3}, 3).bytes());
  CHECK(file.tensors().at("w").shape == Shape{3});
  CHECK(throws([&] { file.tensor("w"); }, "tensor w: the type I8 is not supported"));
  CHECK(weights_in(one(i16, {3}, 6).bytes()).tensors().at("w").type == "I16");
  CHECK(refused(one(i8, {3}, 2), "tensor w: 3 bytes at 0, where the data has 2"));
  CHECK(refused(one(i16, {3}, 5), "tensor w: 6 bytes at 0, where the data has 5"));
}

TEST_CASE("other versions and orders of bytes are refused by name") {
  CHECK(refused({.version = 1}, "GGUF: FILE: version 1 is not supported, only 2 and 3"));
  CHECK(refused({.version = 4}, "version 4 is not supported"));
  CHECK(refused({.version = 0x03000000}, "the file is big-endian"));
}

TEST_CASE("a tensor of GGUF lies in the file, aligned, and apart from others") {
  GgufFile file = one(f32, {4}, 16);
  file.add_at("x", f32, {4}, 8);
  CHECK(refused(file, "tensor x: the offset 8 is no multiple of 32"));
  file.tensors.back() = one(f32, {4}, 16).tensors[0];
  CHECK(refused(file, "tensor w: the name occurs twice"));
  file.tensors.pop_back();
  file.add_at("x", f32, {4}, 0);
  CHECK(refused(file, ", but tensor w ends at byte "));
  file.tensors.pop_back();
  file.add_at("x", f32, {4}, 32);
  CHECK(refused(file, "tensor x: 16 bytes at 32, where the data has 16"));
  file.tensors.pop_back();
  file.add_at("x", f32, {4}, ~std::uint64_t{31});
  CHECK(refused(file, "where the data has 16"));
}

TEST_CASE("shapes that no file could hold are refused") {
  CHECK(
      refused(one(f32, {std::uint64_t{1} << 63}, 0), "the size of axis 0 is 9223372036854775808"));
  CHECK(refused(one(f32, {1u << 31, 1u << 31, 4}, 0), "has too many elements"));
  CHECK(refused(one(f32, {1, 0}, 0), "the size of axis 1 is 0"));
  CHECK(refused(one(f32, {1, 1, 1, 1, 1, 1, 1}, 4), "7 axes where at most 6 are supported"));
  CHECK(refused(one(q8_0, {2, 33}, 0), "rows of 33 values are not whole blocks of 32"));
}

TEST_CASE("counts and lengths are held against the bytes of the file") {
  const auto with = [](std::uint32_t type, const std::string& value) {
    GgufFile file;
    file.key("k", type, value);
    return file;
  };
  CHECK(refused(with(GgufFile::text, bytes_of(~std::uint64_t{0})), "18446744073709551615 bytes"));
  CHECK(refused(with(9, bytes_of(std::uint32_t{0}, std::uint64_t{1} << 40)),
                "an array of 1099511627776 values"));
  CHECK(refused(with(13, "1"), "13 is no type of a value"));
  std::string nested;
  for (int depth = 0; depth < 6; ++depth) nested += bytes_of(std::uint32_t{9}, std::uint64_t{1});
  CHECK(refused(with(9, nested + std::string(64, '\0')), "arrays are nested more than 4 deep"));
  for (const std::uint64_t count : {std::uint64_t{1000}, ~std::uint64_t{0}}) {
    const std::string start = "GGUF" + bytes_of(std::uint32_t{3});
    CHECK(throws([&] { weights_in(start + bytes_of(count, std::uint64_t{0})); }, "tensors, where"));
    CHECK(throws([&] { weights_in(start + bytes_of(std::uint64_t{0}, count)); }, "keys, where"));
  }
}

TEST_CASE("names of GGUF are texts, each once") {
  GgufFile file;
  file.text_key("", "x");
  CHECK(refused(file, "a key is no name: \"\""));
  GgufFile zero;
  zero.add(std::string("a\0b", 3), f32, {1}, bytes_of(1.f));
  CHECK(refused(zero, "a tensor's name is no name: \"a\\x00b\""));
  GgufFile twice;
  twice.text_key("k", "x");
  twice.text_key("k", "y");
  CHECK(refused(twice, "the key k occurs twice"));
}

TEST_CASE("the alignment is a power of two") {
  GgufFile file{.alignment = 64};
  file.key("general.alignment", GgufFile::u32, bytes_of(std::uint32_t{64}));
  file.add("a", f32, {1}, bytes_of(1.f));
  file.add("b", f32, {1}, bytes_of(2.f));
  CHECK(weights_in(file.bytes()).tensor("b").item() == 2);
  for (const std::uint32_t wrong : {0u, 24u, 1u << 21}) {
    GgufFile other;
    other.key("general.alignment", GgufFile::u32, bytes_of(wrong));
    CHECK(refused(other, "not a power of 2"));
  }
  GgufFile part;
  part.key("split.count", GgufFile::u32, bytes_of(std::uint32_t{2}));
  CHECK(refused(part, "one of several files"));
}
