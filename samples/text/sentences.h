// Sentences of a small grammar that the program makes up, for a first try without a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/data/text/text_files.h"

namespace sotto::text {

// The places that the sentences tell about: their classes.
std::vector<std::string> sentence_classes();

struct Sentence {
  std::string text;
  std::int64_t place = 0;  // its class
};
// Sentence `number` of an endless list: a function of the seed. Now and then a word belongs to
// another place, so that not every sentence tells its own.
Sentence sentence(std::uint64_t seed, std::int64_t number);

// Sentences first, ..., first + count - 1 as rows, whose targets are their places.
Dataset sentences(std::int64_t count, std::uint64_t seed, std::int64_t first,
                  const TextOptions& options);

}  // namespace sotto::text
