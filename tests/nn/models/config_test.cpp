// Fields of config.json: defaults, and values that are refused.
#include <nlohmann/json.hpp>

#include "nn/models/config.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("a config's fields have defaults, and null is as absent") {
  const nlohmann::json json = {{"n_inner", nullptr}, {"n_head", 3}, {"eps", 1e-6}};
  const nn::ConfigFields config(json);
  CHECK(config.size("n_head") == 3);
  CHECK(config.size("n_inner", 8) == 8);
  CHECK_FALSE(config.index("pad_token_id"));
  CHECK(config.number("eps", 1) == 1e-6);
  CHECK(config.rate("dropout", 0.25) == 0.25);
  CHECK(config.text("act", "gelu") == "gelu");
  CHECK(config.flag("bias", true));
  CHECK(config.object("rope").empty());
  CHECK(config.classes() == 2);
}

TEST_CASE("the number of classes is that of the labels, unless it is given") {
  nlohmann::json json = {{"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}};
  CHECK(nn::ConfigFields(json).classes() == 3);
  json["num_labels"] = 7;
  CHECK(nn::ConfigFields(json).classes() == 7);
}

TEST_CASE("absurd numbers and options of a config are refused by name") {
  for (const nlohmann::json& bad :
       {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1e12), nlohmann::json(2.5),
        nlohmann::json("12"), nlohmann::json::array({1})}) {
    const nlohmann::json json = {{"n_head", bad}};
    CHECK(throws([&] { nn::ConfigFields(json).size("n_head"); }, "config: n_head is"));
  }
  const nlohmann::json json = {{"rate", 1.0}, {"act", 3}, {"kind", "dynamic"}, {"eps", 0}};
  const nn::ConfigFields config(json);
  CHECK(throws([&] { config.size("n_layer"); }, "config: n_layer is missing"));
  CHECK(throws([&] { config.rate("rate", 0); }, "config: rate is 1.0"));
  CHECK(throws([&] { config.text("act", ""); }, "config: act is 3, not a text"));
  CHECK(throws([&] { config.positive("eps", 1); }, "config: eps is 0.0, not a number above 0"));
  CHECK(throws([&] { config.require("kind", "default"); },
               "config: kind = \"dynamic\" is not supported, only \"default\""));
  CHECK(throws([&] { config.check_divides("d", 10, "heads", 3); },
               "config: d 10 is no multiple of heads 3"));
}
