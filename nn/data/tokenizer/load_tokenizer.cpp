#include <filesystem>
#include <fstream>
#include <vector>

#include "core/io/weights_file.h"
#include "nn/data/expect.h"
#include "nn/data/tokenizer/tokenizer_files.h"
#include "nn/data/tokenizer/tokenizer_parts.h"

namespace sotto {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// tokenizer_config.json of a folder, with the keys of special_tokens_map.json that it lacks.
json config_of(const fs::path& folder) {
  json y = json::object();
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (is_file(folder / name)) y.update(read_tokenizer_json((folder / name).string()));
  }
  return y;
}

bool is_gguf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string magic(4, '\0');
  return file.read(magic.data(), std::ssize(magic)) && magic == "GGUF";
}

// The file of a folder that is read.
fs::path file_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (is_file(folder / name)) return folder / name;
  }
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
  }
  expect(!found.empty(), "tokenizer: {}: no tokenizer.json, vocab.json, vocab.txt or .gguf",
         folder.string());
  check(found.size() == 1, "tokenizer: {}: {} files .gguf; name one of them", folder.string(),
        found.size());
  return found.front();
}

TokenizerDocument read(const fs::path& path) {
  if (is_gguf(path)) return gguf_tokenizer(open_weights(path.string()).metadata(), path.string());
  const json config = config_of(path.parent_path());
  if (path.extension() == ".txt") return word_piece_file(path.string(), config);
  if (path.filename() == "vocab.json")
    return bpe_files(path.string(), (path.parent_path() / "merges.txt").string(), config);
  return {read_tokenizer_json(path.string()), roles_in(config)};
}

}  // namespace

Tokenizer load_tokenizer(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::is_directory(path, error) ? file_in(path) : fs::path(path);
  const TokenizerDocument read_document = read(file);
  return make_tokenizer({read_document.document, "tokenizer: " + file.string() + ": "},
                        read_document.roles);
}

}  // namespace sotto
