// File tags: [sanitized]
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/throws.h"
#include "tests/support/torch_files.h"

using namespace sotto;
using namespace pickled;

namespace {

using Items = std::vector<std::pair<std::string, std::string>>;

std::string floats(int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.f);
  return ::bytes_of(values);
}

// A tensor [3] of the storage "0" of three numbers.
std::string three() { return tensor({.count = 3}, 0, {3}, {1}); }

// The weights of a dictionary on the storage "0", in both forms of files.
std::vector<WeightsFile> both(const std::string& value, const std::string& storage) {
  return {weights_in(torch_zip(value, {{"0", storage}})),
          weights_in(torch_stream(value, {{"0", storage}}))};
}

bool refused(const std::string& value, const std::string& why) {
  const auto in = [&](const std::string& bytes) { return throws([&] { weights_in(bytes); }, why); };
  return in(torch_zip(value, {{"0", floats(3)}})) && in(torch_stream(value, {{"0", floats(3)}}));
}

}  // namespace

TEST_CASE("tensors of PyTorch are views of storages, with offsets and strides") {
  const SavedStorage six{.count = 6};
  const std::string value = ordered({{"w", tensor(six, 0, {2, 3}, {3, 1})},
                                     {"transposed", tensor(six, 0, {3, 2}, {1, 3})},
                                     {"column", tensor(six, 1, {2}, {3})},
                                     {"scalar", tensor(six, 5, {}, {})},
                                     {"repeated", tensor(six, 2, {2, 2}, {0, 1})},
                                     {"none", tensor(six, 0, {0, 4}, {4, 1})}});
  for (const WeightsFile& file : both(value, floats(6))) {
    CHECK(file.tensors().at("w").type == "FloatStorage");
    CHECK(file.tensor("w").to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(file.tensor("transposed").to_vector<float>() == std::vector<float>{0, 3, 1, 4, 2, 5});
    CHECK(file.tensor("column").to_vector<float>() == std::vector<float>{1, 4});
    CHECK(file.tensor("scalar").item() == 5);
    CHECK(file.tensor("repeated").to_vector<float>() == std::vector<float>{2, 3, 2, 3});
    CHECK(file.tensor("none").shape() == Shape{0, 4});
  }
}

TEST_CASE("tensors of one storage of an archive share its bytes") {
  const WeightsFile file =
      weights_in(torch_zip(dictionary({{"a", three()}, {"b", three()}}), {{"0", floats(3)}}, true));
  const Tensor a = file.tensor("a");
  CHECK(a.data<float>() == file.tensor("b").data<float>());
  CHECK(a.to_vector<float>() == std::vector<float>{0, 1, 2});
}

TEST_CASE("each type of storages gives its dtype") {
  const auto check_type = [](const char* type, const std::string& bytes, std::int64_t width,
                             Dtype dtype) {
    const SavedStorage x{.type = type, .count = static_cast<std::int64_t>(bytes.size()) / width};
    const std::string value = dictionary({{"w", tensor(x, 0, {x.count}, {1})}});
    for (const std::string& file :
         {torch_zip(value, {{"0", bytes}}), torch_stream(value, {{"0", bytes}}, width)}) {
      CHECK(weights_in(file).tensor("w").dtype() == dtype);
      CHECK(weights_in(file).tensor("w").at({-1}) == 1);
    }
  };
  check_type("DoubleStorage", ::bytes_of(0., 1.), 8, Dtype::f64);
  check_type("FloatStorage", ::bytes_of(0.f, 1.f), 4, Dtype::f32);
  check_type("HalfStorage", ::bytes_of(f16(0.f), f16(1.f)), 2, Dtype::f16);
  check_type("BFloat16Storage", ::bytes_of(bf16(0.f), bf16(1.f)), 2, Dtype::bf16);
  check_type("LongStorage", ::bytes_of(std::int64_t{0}, std::int64_t{1}), 8, Dtype::i64);
  check_type("IntStorage", ::bytes_of(0, 1), 4, Dtype::i32);
  check_type("ByteStorage", "\2\1", 1, Dtype::u8);
  check_type("BoolStorage", std::string("\0\1", 2), 1, Dtype::boolean);
}

TEST_CASE("tensors of types that are not supported are listed, and refused when asked for") {
  const std::string value =
      dictionary({{"w", tensor({.type = "CharStorage", .count = 3}, 0, {3}, {1})}});
  const WeightsFile file = weights_in(torch_zip(value, {{"0", "abc"}}));
  CHECK(file.tensors().at("w").type == "CharStorage");
  CHECK(throws([&] { file.tensor("w"); }, "tensor w: the type CharStorage is not supported"));
}

TEST_CASE("the model of a training's dictionary is taken, and the rest is left out by name") {
  const std::string model = ordered({{"w", three()}});
  const std::string optimizer = dictionary({{"state", dictionary({{"w", three()}})}});
  for (const char* key : {"state_dict", "model", "model_state_dict"}) {
    const Items items = {{"epoch", number(3)}, {"optimizer", optimizer}, {key, model}};
    for (const WeightsFile& file : both(dictionary(items), floats(3))) {
      CHECK(file.tensors().size() == 1);
      CHECK(file.tensors().contains("w"));
      CHECK(file.left_out() == std::vector<std::string>{"epoch", "optimizer"});
    }
  }
  CHECK(refused(dictionary({{"model", model}, {"state_dict", model}}),
                "the dictionary holds two models, model and state_dict"));
}

TEST_CASE("names of dictionaries within each other are joined") {
  const std::string value = dictionary({{"encoder", dictionary({{"w", three()}})},
                                        {"list", list({three(), none()})},
                                        {"numbers", list({number(1), real(0.5)})},
                                        {"bias", three()}});
  for (const WeightsFile& file : both(value, floats(3))) {
    std::vector<std::string> names;
    for (const auto& [name, stored] : file.tensors()) names.push_back(name);
    CHECK(names == std::vector<std::string>{"bias", "encoder.w", "list.0"});
    CHECK(file.left_out() == std::vector<std::string>{"list.1", "numbers"});
  }
}

TEST_CASE("parameters, sizes and states of dictionaries are read for what they hold") {
  const std::string parameter =
      call(global("torch._utils", "_rebuild_parameter"), {three(), "\x88", none()});
  const std::string size = call(global("torch", "Size"), {numbers({2, 3})});
  const std::string first = global("torch.nn.parameter", "Parameter") + tuple({three()}) + "\x81" +
                            tuple({"\x88", "\x89", none()}) + "b";
  const std::string value = ordered({{"w", parameter}, {"size", size}, {"first", first}}) +
                            dictionary({{"_metadata", ordered({})}}) + "b";
  for (const WeightsFile& file : both(value, floats(3))) {
    CHECK(file.tensor("w").to_vector<float>() == std::vector<float>{0, 1, 2});
    CHECK(file.tensor("first").to_vector<float>() == std::vector<float>{0, 1, 2});
    CHECK(file.left_out() == std::vector<std::string>{"size"});
  }
}

TEST_CASE("a pickle that asks for anything but tensors is refused by its name") {
  const auto asks_for = [](const std::string& part) {
    return dictionary({{"w", three()}, {"x", part}});
  };
  CHECK(refused(asks_for(call(global("posix", "system"), {text("true")})),
                "the pickle asks for posix.system, which is not run"));
  CHECK(refused(asks_for(global("builtins", "eval")), "asks for builtins.eval"));
  CHECK(refused(asks_for(text("os") + text("system") + "\x93"), "asks for os.system"));
  CHECK(refused(asks_for("(ios\nsystem\n"), "asks for os.system"));
  CHECK(refused(asks_for("(icollections\nOrderedDict\n"), "asks for collections.OrderedDict"));
  CHECK(refused(asks_for(global("torch.nn.modules.linear", "Linear") + ")\x81"),
                "asks for torch.nn.modules.linear.Linear"));
  CHECK(refused(asks_for("\x82\1"), "the opcode 0x82"));
  CHECK(refused(asks_for(number(1) + number(2) + "R"), "a call of what is no global"));
  CHECK(
      refused(asks_for(three() + number(2) + "b"), "a state for torch._utils._rebuild_tensor_v2"));
}

TEST_CASE("a tensor lies within its storage") {
  const auto with = [](std::int64_t offset, const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& strides) {
    return dictionary({{"w", tensor({.count = 3}, offset, sizes, strides)}});
  };
  const std::string beyond = "tensor w: sizes";
  CHECK(refused(with(1, {3}, {1}), beyond));
  CHECK(refused(with(0, {2}, {3}), beyond));
  CHECK(refused(with(INT64_MAX, {2}, {1}), beyond));
  CHECK(refused(with(0, {INT64_MAX}, {INT64_MAX}), beyond));
  CHECK(refused(with(0, {INT64_MAX}, {0}), beyond));
  CHECK(refused(with(0, {1 << 30}, {0}), "4294967296 bytes by elements that repeat"));
  CHECK(refused(with(-1, {1}, {1}), "its offset is no integer from 0"));
  CHECK(refused(with(0, {-1}, {1}), "one of its sizes is no integer from 0"));
  CHECK(refused(with(0, {1, 2}, {1}), "2 sizes and 1 strides"));
  CHECK(refused(with(0, {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}), "7 axes where at most 6"));
}

TEST_CASE("storages have the bytes that the pickle says") {
  const auto with = [](const SavedStorage& x) {
    return dictionary({{"w", tensor(x, 0, {1}, {1})}});
  };
  CHECK(throws(
      [&] {
        weights_in(torch_zip(with({.count = 4}), {{"0", floats(3)}}));
      },
      "the entry archive/data/0 has 12 bytes where its storage has 16"));
  CHECK(throws(
      [&] {
        weights_in(torch_stream(with({.count = 4}), {{"0", floats(3)}}));
      },
      "the storage 0 has 3 elements where its tensors say 4"));
  CHECK(throws([&] { weights_in(torch_zip(with({.count = 3}), {})); },
               "there is no entry archive/data/0"));
  CHECK(throws([&] { weights_in(torch_stream(with({.count = 3}), {})); },
               "the storage 0 is not in the file"));
  CHECK(throws(
      [&] {
        weights_in(torch_stream(with({.count = 3}), {{"1", floats(3)}}));
      },
      "the storage 1 is in no tensor, or twice"));
  CHECK(refused(with({.count = INT64_MAX}), "the storage 0 has 9223372036854775807 elements"));
  CHECK(refused(with({.type = "NoStorage"}), "asks for torch.NoStorage"));
  CHECK(refused(dictionary({{"w", tensor({.count = 3}, 0, {1}, {1}, {tuple({})})}}),
                "the storage 0 is a view of another"));
  CHECK(refused(dictionary({{"v", three()}, {"w", tensor({.count = 4}, 0, {1}, {1})}}),
                "the storage 0 has 3 elements in FloatStorage, and 4 in FloatStorage"));
}

TEST_CASE("compressed bytes that no tensor has are not unpacked") {
  const std::string value = dictionary({{"w", tensor({.count = 1 << 20}, 0, {1}, {1})}});
  const std::string bomb = torch_zip(value, {{"0", std::string(1 << 22, '\0')}}, true);
  CHECK(bomb.size() < 10'000);
  CHECK(throws([&] { weights_in(bomb); },
               "the compressed entry archive/data/0 has 4194304 bytes where the tensors have 4"));
  constexpr std::int64_t many = 1 << 23;
  const std::string zeros = dictionary({{"w", tensor({.count = many}, 0, {many}, {1})}});
  CHECK(throws(
      [&] {
        weights_in(torch_zip(zeros, {{"0", std::string(4 * many, '\0')}}, true));
      },
      "the entries have more than 64 times the bytes of the file"));
}

TEST_CASE("damage within an archive shows when its bytes are read") {
  const auto refuses = [](const ZipFile& zip, const char* why) {
    return throws([&] { weights_in(zip.bytes()).tensor("w"); }, why);
  };
  const std::string value = whole(dictionary({{"w", three()}}));
  ZipFile longer;
  longer.add("a/data.pkl", value);
  longer.add_as("a/data/0", floats(2), 12, true);
  CHECK(refuses(longer, "the entry a/data/0 is damaged"));
  ZipFile twice;
  twice.add("a/data.pkl", value);
  twice.add("a/data.pkl", value);
  CHECK(refuses(twice, "the entry a/data.pkl occurs twice"));
  const std::string entry = "archive/data/0";
  std::string changed = torch_zip(dictionary({{"w", three()}}), {{"0", floats(3)}}, true);
  changed[changed.find(entry) + entry.size() + 3] ^= 1;
  CHECK(throws([&] { weights_in(changed).tensor("w"); }, "the entry archive/data/0 is damaged"));
  std::string renamed = torch_zip(dictionary({{"w", three()}}), {{"0", floats(3)}});
  renamed[renamed.find(entry)] = 'b';
  CHECK(throws([&] { weights_in(renamed); },
               "the entry archive/data/0 has another name in its header"));
  std::string moved = torch_zip(dictionary({{"w", three()}}), {{"0", floats(3)}});
  moved[moved.rfind("PK\3\4")] = 'Q';
  CHECK(throws([&] { weights_in(moved); }, "no record of an archive at byte"));
}

TEST_CASE("archives of other contents are refused by name") {
  ZipFile empty, big, program;
  CHECK(throws([&] { weights_in(empty.bytes()); }, "0 entries data.pkl"));
  big.add("a/data.pkl", whole(dictionary({{"w", three()}})));
  big.add("a/byteorder", "big");
  CHECK(throws([&] { weights_in(big.bytes()); }, "the file is not little-endian"));
  program.add("a/data.pkl", whole(none()));
  program.add("a/constants.pkl", whole(none()));
  CHECK(throws([&] { weights_in(program.bytes()); }, "a program of TorchScript"));
  CHECK(throws([] { weights_in("PK\3\4"); }, "PyTorch: FILE: no zip archive that can be read"));
  CHECK(throws(
      [] {
        weights_in(torch_stream(dictionary({{"w", three()}}), {}, 4, false));
      },
      "the file is big-endian"));
  CHECK(throws([] { weights_in(whole(number(1))); }, "a pickle, but none that PyTorch's"));
  CHECK(throws([] { weights_in("\x80\x01."); }, "the protocol 1 of a pickle is not supported"));
}

TEST_CASE("a dictionary of other things than tensors is refused") {
  CHECK(refused(three(), "the file holds no dictionary"));
  CHECK(refused(dictionary({{"a", number(1)}}), "the dictionary holds no tensor"));
  CHECK(refused(dictionary({{"a", dictionary({{"b", three()}})}, {"a.b", three()}}),
                "tensor a.b: the name occurs twice"));
  CHECK(refused("}(" + none() + three() + "u", "a key of a dictionary is neither a text"));
  CHECK(refused("}(" + text(std::string("w\0", 2)) + three() + "u", "\"w\\x00\""));
}

TEST_CASE("a pickle that refers to itself, or has no end, is refused") {
  // A list that is its own item; a list of itself twice, of itself twice, and so on.
  CHECK(refused(dictionary({{"w", three()}, {"x", "]q\1h\1a"}}), "nested more than 16 deep"));
  std::string doubled = "]q\1";
  for (char k = 2; k < 14; ++k) {
    const std::string before{'h', static_cast<char>(k - 1)};
    doubled += "](" + before + before + before + before + "eq" + k;
  }
  CHECK(refused(dictionary({{"w", three()}, {"x", "(" + doubled + "t"}}), "values"));
  CHECK(refused("}q\1(" + text("model") + "h\1u", "dictionaries are nested more than 16 deep"));
  CHECK(refused("h\7", "the memo has no value 7"));
  CHECK(refused("t", "the stack holds no mark"));
  CHECK(refused("R", "the stack ends too early"));
  CHECK(refused("c" + std::string(2000, 'a'), "the name of a global has more than 1000 bytes"));
  CHECK(refused("X\xff\xff\xff\xff", "4294967295 bytes from byte"));
}
