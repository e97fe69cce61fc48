#include <filesystem>
#include <fstream>
#include <vector>

#include "core/io/atomic_file.h"
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

// The file of a path that is read.
fs::path file_of(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? file_in(path) : fs::path(path);
}

void write(const fs::path& path, const std::string& text) {
  write_file_atomically(path.string(), [&](FileWriter& to) { to.write(text); });
}

void save_gguf(const fs::path& file, const fs::path& folder) {
  const json metadata = open_weights(file.string()).metadata();
  TokenizerDocument tokenizer = gguf_tokenizer(metadata, file.string());
  tokenizer.document["version"] = "1.0";
  json config = std::move(tokenizer.roles);
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["clean_up_tokenization_spaces"] = false;
  const auto chat = metadata.find("tokenizer.chat_template");
  if (chat != metadata.end()) config["chat_template"] = *chat;
  write(folder / "tokenizer.json", tokenizer.document.dump() + "\n");
  write(folder / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace

Tokenizer load_tokenizer(const std::string& path) {
  const fs::path file = file_of(path);
  const TokenizerDocument read_document = read(file);
  return make_tokenizer({read_document.document, "tokenizer: " + file.string() + ": "},
                        read_document.roles);
}

void save_tokenizer(const std::string& path, const std::string& folder) {
  const fs::path file = file_of(path);
  if (is_gguf(file)) return save_gguf(file, folder);
  // A file that was named alone may lie beside those of other tokenizers.
  std::vector<std::string> names{"tokenizer_config.json", "special_tokens_map.json",
                                 "added_tokens.json", "chat_template.jinja"};
  if (file != path || file.filename() == "vocab.json") names.emplace_back("merges.txt");
  if (file != path) names.insert(names.end(), {"vocab.json", "vocab.txt", "tokenizer.model"});
  for (const std::string& name : names) {
    const fs::path from = file.parent_path() / name;
    if (is_file(from)) write(fs::path(folder) / name, read_file(from.string()));
  }
  const bool words = file.extension() == ".txt", pairs = file.filename() == "vocab.json";
  write(fs::path(folder) / (words   ? "vocab.txt"
                            : pairs ? "vocab.json"
                                    : "tokenizer.json"),
        read_file(file.string()));
}

}  // namespace sotto
