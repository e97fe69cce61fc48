#include "nn/data/tokenizer/word_model.h"

#include "core/io/utf8.h"

namespace sotto {

namespace {

std::vector<Merge> merges_of(const Field& merges) {
  std::vector<Merge> y;
  for (const Field& merge : merges.list()) {
    if (merge.value().is_array()) {
      const std::vector<Field> pair = merge.list();
      merge.expect(pair.size() == 2, "{} tokens, not 2", pair.size());
      y.push_back({pair[0].text(), pair[1].text()});
      continue;
    }
    const std::string line = merge.text();
    if (line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    merge.expect(space != line.npos && line.find(' ', space + 1) == line.npos,
                 "{} is not two tokens with a space between", excerpt(line));
    y.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return y;
}

}  // namespace

std::string model_type(const Field& model) {
  if (const auto type = model.find("type")) {
    const std::string name = type->text();
    model.expect(name == "BPE" || name == "WordPiece" || name == "WordLevel",
                 "the model {} is not supported", excerpt(name));
    return name;
  }
  if (model.find("merges")) return "BPE";
  if (model.find("max_input_chars_per_word")) return "WordPiece";
  model.expect(model["vocab"].value().is_object(), "no type");
  return "WordLevel";
}

std::unique_ptr<WordModel> make_word_model(const Field& model, const Vocabulary& vocabulary) {
  const std::string type = model_type(model);
  if (type == "BPE") {
    model.only({"unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    return make_bpe(vocabulary, merges_of(model["merges"]),
                    {.unknown = model.text_or("unk_token", ""),
                     .prefix = model.text_or("continuing_subword_prefix", ""),
                     .suffix = model.text_or("end_of_word_suffix", ""),
                     .fuse_unknown = model.flag("fuse_unk", false),
                     .byte_fallback = model.flag("byte_fallback", false),
                     .ignore_merges = model.flag("ignore_merges", false)},
                    model.where());
  }
  if (type == "WordPiece") {
    model.only({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    return make_word_piece(vocabulary,
                           {.unknown = model.text_or("unk_token", "[UNK]"),
                            .prefix = model.text_or("continuing_subword_prefix", "##"),
                            .max_characters = model.number_or("max_input_chars_per_word", 100)});
  }
  model.only({"unk_token", "vocab"});
  return make_word_level(vocabulary, model.text_or("unk_token", "<unk>"));
}

}  // namespace sotto
