// Our half of originals_test.py: tokenizer_program FOLDER or FILE reads one JSON request a line,
// {"text": ..., "pair": ..., "special": ...} or {"ids": ..., "skip": ...}, and prints the ids with
// their types, or the text, or an error, as JSON.
#include <iostream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nn/data/tokenizer/tokenizer.h"

using namespace sotto;
using nlohmann::json;

namespace {

json answer(const Tokenizer& tokenizer, const json& request) {
  if (request.contains("ids")) {
    const auto ids = request.at("ids").get<std::vector<std::int64_t>>();
    return tokenizer.decode(ids, {.skip_special_tokens = request.at("skip").get<bool>()});
  }
  const auto text = request.at("text").get<std::string>();
  EncodeOptions options{.special_tokens = request.at("special").get<bool>()};
  std::string pair;
  if (request.contains("pair")) options.pair = pair = request.at("pair").get<std::string>();
  const Encoding y = tokenizer.encode(text, options);
  return {{"ids", y.ids}, {"types", y.token_types}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const Tokenizer tokenizer = load_tokenizer(argv[1]);
    std::string line;
    while (std::getline(std::cin, line)) {
      json result;
      try {
        result = answer(tokenizer, json::parse(line));
      } catch (const std::exception& error) {
        result = {{"error", error.what()}};
      }
      fmt::print("{}\n", result.dump());
    }
  } catch (const std::exception& error) {
    fmt::print("{}\n", json{{"error", error.what()}}.dump());
    return 1;
  }
  return 0;
}
