// Prints, as one JSON object a line, megabytes of text per second of CPU time that tokenizers
// encode on one thread: the most of several times.
//
// usage: bench_tokenizers TOKENIZER... -- TEXT...     folders or files of tokenizers; files of text
#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/io/atomic_file.h"
#include "nn/data/tokenizer/tokenizer.h"

using namespace sotto;

namespace {

constexpr int repetitions = 4;
constexpr double megabyte = 1e6;

// The lines of a text, each with its end.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> y;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    y.push_back(text.substr(at, end - at));
    at = end;
  }
  return y;
}

void report(const std::string& name, const std::string& text_name, const char* unit,
            const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  double most = 0;
  std::size_t bytes = 0, ids = 0;
  for (const std::string& text : texts) bytes += text.size();
  for (int k = 0; k < repetitions; ++k) {
    ids = 0;
    const std::clock_t start = std::clock();
    for (const std::string& text : texts) ids += tokenizer.encode(text).ids.size();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    most = std::max(most, static_cast<double>(bytes) / megabyte / seconds);
  }
  fmt::print(
      "{{\"tokenizer\": \"{}\", \"text\": \"{}\", \"unit\": \"{}\", \"ids\": {}, "
      "\"megabytes_per_second\": {:.2f}}}\n",
      name, text_name, unit, ids, most);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto middle = std::find(words.begin(), words.end(), "--");
  if (middle == words.begin() || words.end() - middle < 2) {
    fmt::print(stderr, "usage: bench_tokenizers TOKENIZER... -- TEXT...\n");
    return 2;
  }
  for (auto path = words.begin(); path != middle; ++path) {
    const Tokenizer tokenizer = load_tokenizer(*path);
    for (auto file = middle + 1; file != words.end(); ++file) {
      const std::string text = read_file(*file);
      report(*path, *file, "line", tokenizer, lines_of(text));
      report(*path, *file, "file", tokenizer, {text});
    }
  }
  return 0;
}
