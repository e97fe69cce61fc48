// Tables of tensor names: lines, patterns, prefixes, both directions.
#include "nn/models/names.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

const char* const table_text = R"(
known   wte.weight
prefix  transformer.
old     LayerNorm.gamma  LayerNorm.weight
wte.weight                =
h.*.ln.{weight,bias}      =
h.*.c_attn.weight         =   transposed
h.*.qkv.{weight,bias}     h.*.q.{weight,bias}+h.*.k.{weight,bias}
h.*.attn.bias             -   ignored     # the causal mask
h.*.LayerNorm.weight      =
lm_head.weight            =   head tied wte.weight
cls.**                    -   outside other-task
)";

}  // namespace

TEST_CASE("a table of names says where a file's tensor is in the model") {
  const nn::NamesTable table(table_text);
  const auto line = table.of_file("transformer.h.12.c_attn.weight", "transformer.");
  REQUIRE(line);
  CHECK(line->parameters == std::vector<std::string>{"h.12.c_attn.weight"});
  CHECK(line->transposed);
  const auto rows = table.of_file("h.0.qkv.bias", "");
  REQUIRE(rows);
  CHECK(rows->parameters == std::vector<std::string>{"h.0.q.bias", "h.0.k.bias"});
  const auto mask = table.of_file("h.3.attn.bias", "");
  REQUIRE(mask);
  CHECK((mask->parameters.empty() && mask->comment == "the causal mask"));
  CHECK(table.of_file("cls.predictions.bias", "transformer.")->other_task);
  CHECK(table.of_file("h.1.LayerNorm.gamma", "")->parameters[0] == "h.1.LayerNorm.weight");
  CHECK(table.of_file("lm_head.weight", "transformer.")->tied == "wte.weight");
  CHECK_FALSE(table.of_file("wte.weight", "transformer."));
  CHECK_FALSE(table.of_file("h.x.ln.weight", ""));
  CHECK_FALSE(table.of_file("h.1.ln_x.gamma", ""));
}

TEST_CASE("a table of names says where a parameter is in the file") {
  const nn::NamesTable table(table_text);
  CHECK(table.of_parameter("h.2.k.weight")->file == "h.2.qkv.weight");
  CHECK(table.of_parameter("lm_head.weight")->outside);
  CHECK_FALSE(table.of_parameter("h.2.attn.bias"));
}

TEST_CASE("a file's prefix is found by the known tensor") {
  const nn::NamesTable table(table_text);
  const auto prefix = [&](const std::string& only) {
    return table.prefix_in([&](const std::string& name) { return name == only; });
  };
  CHECK(prefix("transformer.wte.weight") == "transformer.");
  CHECK(prefix("wte.weight") == "");
  CHECK_FALSE(prefix("model.wte.weight"));
}

TEST_CASE("a text that is no table of names is refused") {
  CHECK(throws([] { nn::NamesTable("wte.weight ="); }, "no tensor is named by which files"));
  CHECK(throws([] { nn::NamesTable("known a\na"); }, "a: no parameter is named"));
  CHECK(throws([] { nn::NamesTable("known a\na = sideways"); }, "unknown mark sideways"));
}
