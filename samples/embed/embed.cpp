#include "samples/embed/embed.h"

#include <charconv>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "autograd/ops.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/outputs_of.h"
#include "nn/data/tables/table_schema.h"

namespace sotto::embed {

namespace {

// A text as a field of CSV.
std::string quoted(const std::string& text) {
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + "\"";
}

// A number of --pooling.
std::int64_t number_of(const std::string& word, std::int64_t least) {
  std::int64_t number = -1;
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, number);
  check(read.ec == std::errc() && read.ptr == end && number >= least,
        "--pooling: '{}' is neither mean nor a number from {}", word, least);
  return number;
}

// x over its norm along the last axis; zeros stay zeros.
Var normalized(const Var& x) { return x * rsqrt(sum(square(x), {-1}, true) + 1e-24); }

}  // namespace

std::vector<TextPart> text_parts(const std::string& words) {
  std::vector<TextPart> parts;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    const std::size_t colon = std::min(word.find(':'), word.size());
    const std::string at = word.substr(0, colon);
    TextPart part;
    if (at != "mean") part.position = number_of(at, 0);
    if (colon < word.size()) part.blocks = number_of(word.substr(colon + 1), 1);
    parts.push_back(part);
  }
  check(!parts.empty() && !words.ends_with(','), "--pooling: '{}' lacks a part", words);
  return parts;
}

Tensor text_vectors(nn::TextEncoder& encoder, const TextPart& part, const Dataset& rows) {
  const std::int64_t context = rows.inputs.size(1);
  check(!part.position || *part.position < context, "--pooling: position {} of {} tokens",
        part.position.value_or(0), context);
  return memory::outputs_of(encoder, rows, [&](Tape& tape, const Dataset& some) {
    const nn::TokenInputs inputs{.ids = tape.input(some.inputs),
                                 .mask = tape.input(some.field("mask"))};
    const std::int64_t first = part.position.value_or(0), end = part.position ? first + 1 : context;
    return normalized(nn::mean_over_tokens(slice(encoder.hidden(inputs), 1, first, end),
                                           slice(*inputs.mask, 1, first, end)));
  });
}

Tensor joined(const std::vector<Tensor>& parts) {
  return scale(concat(parts, 1), 1 / std::sqrt(static_cast<double>(parts.size())));
}

Tensor picture_vectors(nn::ImageModel& model, const images::ModelPictures& inputs,
                       const Tensor& pictures) {
  return memory::outputs_of(model,
                            {.inputs = pictures, .targets = zeros({pictures.size(0)}, Dtype::i64)},
                            [&](Tape& tape, const Dataset& part) {
                              return normalized(model.features(inputs(tape.input(part.inputs))));
                            });
}

std::string table(const Tensor& vectors, const TextRecords& records) {
  const std::int64_t n = vectors.size(0), width = vectors.size(1);
  std::string csv;
  for (std::int64_t k = 1; k <= width; ++k) csv += fmt::format("{}v{}", k == 1 ? "" : ",", k);
  if (!records.classes.empty()) csv += fmt::format(",{}", label_column);
  if (!records.units.empty()) csv += fmt::format(",{}", user_column);
  csv += "\n";
  const std::vector<float> values = vectors.to_vector<float>();
  for (std::int64_t row = 0; row < n; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const auto begin = values.begin() + row * width;
    csv += fmt::format("{:.6g}", fmt::join(begin, begin + width, ","));
    if (!records.classes.empty())
      csv += "," + quoted(records.classes[static_cast<std::size_t>(records.labels[r])]);
    if (!records.units.empty()) csv += fmt::format(",{}", records.units[r]);
    csv += "\n";
  }
  return csv;
}

std::string schema(const Tensor& vectors, const TextRecords& records) {
  TableSchema schema;
  for (std::int64_t k = 1; k <= vectors.size(1); ++k)
    schema.columns.push_back({.name = fmt::format("v{}", k),
                              .kind = ColumnKind::number,
                              .range = NumberRange{-1, 1},
                              .standardization = Standardization{0, 1}});  // as it is
  TableColumn label{.name = label_column, .kind = ColumnKind::label};
  for (const std::string& name : records.classes) label.categories.push_back({.name = name});
  schema.columns.push_back(label);
  if (!records.units.empty())
    schema.columns.push_back({.name = user_column, .kind = ColumnKind::user});
  return schema.to_json();
}

}  // namespace sotto::embed
