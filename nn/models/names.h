// Names of a model's tensors in the files of other software: a table for each layout, as a text
// that a person can read. Loading and saving read the same table.
//
//   # GPT-2 as transformers writes it.
//   known   wte.weight                  a file of this layout has this tensor ...
//   prefix  transformer.                ... with this prefix or without
//   wte.weight                  =       the model's parameter has the same name
//   h.*.ln_1.{weight,bias}      =       "*" is a number; braces: one line for each ending
//   h.*.attn.c_attn.weight      =       transposed
//   h.*.attn.bias               -       ignored     # the causal mask of older versions
//   lm_head.weight              =       head tied wte.weight
//   blocks.*.attn.qkv.bias      blocks.*.q.bias+blocks.*.k.bias+blocks.*.v.bias
//   old     LayerNorm.gamma     LayerNorm.weight
//
// Each line but those of known, prefix and old: the name in the file without the prefix ("**" is
// any text), the parameters of the model whose rows the tensor holds, or "-", and marks:
//   transposed    the file holds [in, out], the model [out, in]
//   outside       the name never has the prefix
//   new           it may be missing; it is then drawn anew
//   head          outside, new, and of another size where other classes are asked for
//   tied NAME     a model without this parameter uses NAME (a name of the model) in its place
//   paired FIELD  rows of a head pair neighbours (Llama's original rotary layout); the config's
//                 FIELD is the number of heads
//   ignored, other-task   the model has no such tensor; the comment is the reason
// A line of old: an ending of older files, and the ending that stands in the other lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sotto::nn {

// A line of a table, or what it says about one tensor: then every "*" is a number.
struct NamesLine {
  std::string file;                     // the tensor's name in the file
  std::vector<std::string> parameters;  // of the model; none: the tensor is passed over
  bool transposed = false;
  bool outside = false;
  bool fresh = false;  // marked new
  bool head = false;   // its size follows the number of classes
  std::string tied;    // empty: not tied
  std::string paired;  // empty: rows as the model has them
  bool other_task = false;
  std::string comment;
  std::optional<std::int64_t> block = {};  // the first number of a name with stars
};

class NamesTable {
 public:
  // Throws std::invalid_argument, with the line, for a text that is no table.
  explicit NamesTable(std::string_view text);

  // The prefix of the body's tensors in a file: prefix(), "", or nullopt in a file of another
  // layout. `has` tells whether the file has a tensor.
  std::optional<std::string> prefix_in(
      const std::function<bool(const std::string& name)>& has) const;
  // The line for a tensor of a file whose body has this prefix.
  std::optional<NamesLine> of_file(const std::string& name, const std::string& prefix) const;
  // The line that holds a parameter of the model; `file` is without the prefix.
  std::optional<NamesLine> of_parameter(const std::string& name) const;

  const std::string& prefix() const { return prefix_; }  // of the body
  const std::string& known() const { return known_; }    // the name by which a layout is found
  const std::vector<NamesLine>& lines() const { return lines_; }

 private:
  void read_line(std::string_view text);

  std::string known_, prefix_;
  std::vector<std::pair<std::string, std::string>> old_endings_;
  std::vector<NamesLine> lines_;
};

// True if the text fits the pattern: "*" is a number, "**" any text. The texts of the "*" and "**"
// are appended to `parts`.
bool fits_pattern(std::string_view pattern, std::string_view text,
                  std::vector<std::string>* parts = nullptr);

}  // namespace sotto::nn
