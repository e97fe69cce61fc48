#include "samples/text/tuned_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "core/error.h"
#include "core/io/safetensors.h"
#include "samples/cli/model_file.h"
#include "samples/text/token_values.h"

namespace sotto::text {

namespace {

TextUnit unit_of_files(const std::string& unit) {
  if (unit == "paragraph") return TextUnit::paragraph;
  return unit == "file" ? TextUnit::file : TextUnit::line;
}

// The number of each row's tokens that have a loss, [n, 1]: the first token has none.
Var counts_of(Tape& tape, const Tensor& targets) {
  const std::int64_t n = targets.size(0), t = targets.size(1);
  const std::vector<std::int64_t> labels = targets.to(cpu).to_vector<std::int64_t>();
  std::vector<float> counts(static_cast<std::size_t>(n));
  for (std::int64_t row = 0; row < n; ++row) {
    const auto begin = labels.begin() + row * t;
    counts[static_cast<std::size_t>(row)] = static_cast<float>(
        std::count_if(begin + 1, begin + t, [](std::int64_t label) { return label >= 0; }));
  }
  return tape.input(Tensor::from(counts, {n, 1}).to(targets.device()));
}

}  // namespace

const std::string& TunedText::tokenizer_path() const {
  return tokenizer.empty() ? start.init : tokenizer;
}

TokenRowOptions TunedText::row_options() const {
  constexpr std::int64_t max_context = 1 << 16;
  check(context >= 2 && context <= max_context, "--context: {} is not from 2 to {}", context,
        max_context);
  return {.context = context,
          .long_texts = long_texts == "split" ? LongUnit::split : LongUnit::cut};
}

TextRecords read_records(const TunedText& text, const std::string& path) {
  if (!is_text_table(path))
    return read_text_units(path, {.unit = unit_of_files(text.unit)}, text.classes);
  TextColumns columns = text.columns;
  if (text.unit != "user") columns.user.clear();
  return read_text_table(path, columns, text.classes);
}

nlohmann::json to_json(const TunedText& text) {
  return {{"start", samples::to_json(text.start)},
          {"tokenizer", text.tokenizer},
          {"pooling", text.pooling},
          {"blocks", text.blocks},
          {"dropout", text.dropout},
          {"unit", text.unit},
          {"text column", text.columns.text},
          {"prompt column", text.columns.prompt},
          {"label column", text.columns.label},
          {"context", text.context},
          {"long texts", text.long_texts},
          {"classes", text.classes}};
}

TunedText tuned_text_from_json(const nlohmann::json& object) {
  return {.start = samples::start_from_json(object.at("start")),
          .tokenizer = object.at("tokenizer"),
          .pooling = object.at("pooling"),
          .blocks = object.at("blocks"),
          .dropout = object.at("dropout"),
          .unit = object.at("unit"),
          .columns = {.text = object.at("text column"),
                      .prompt = object.at("prompt column"),
                      .label = object.at("label column")},
          .context = object.at("context"),
          .long_texts = object.at("long texts"),
          .classes = object.at("classes")};
}

nn::LanguageModel* TunedModel::writer() const {
  return dynamic_cast<nn::LanguageModel*>(&network());
}

Dataset TunedModel::rows(const TextRecords& records) const {
  return writer() != nullptr ? language_rows(tokenizer, records, text.row_options())
                             : classifier_rows(tokenizer, records, text.row_options());
}

TunedModel make_tuned(const TunedText& text) {
  TunedModel model{.text = text,
                   .tokenizer = load_tokenizer(text.tokenizer_path()),
                   .started = samples::start_model(text.start, {.classes = std::ssize(text.classes),
                                                                .pooling = text.pooling,
                                                                .dropout = text.dropout,
                                                                .blocks = text.blocks})};
  if (const nn::LanguageModel* const writer = model.writer()) {
    const std::int64_t most = writer->max_tokens();
    check(most == 0 || text.context <= most, "--context: the model reads {} tokens, not {}", most,
          text.context);
  }
  return model;
}

bool is_tuned(const std::string& path) {
  try {
    return load_safetensors(path).metadata.contains(tuned_key);
  } catch (const std::invalid_argument&) {
    return false;  // which the reader of other models says
  }
}

TunedModel load_tuned(const std::string& path) {
  return samples::load_model_file(path, tuned_key, [&](const nlohmann::json& json) {
    TunedModel model = make_tuned(tuned_text_from_json(json));
    samples::set_trained(*model.started.pretrained.model, load_safetensors(path).tensors, path);
    return model;
  });
}

std::int64_t frozen_blocks(const TunedModel& model) {
  auto* const encoder = dynamic_cast<nn::TextEncoder*>(&model.network());
  return encoder == nullptr || model.text.dropout > 0 ? 0 : nn::first_trained_block(*encoder);
}

void keep_values(nn::TokenModel& network, std::int64_t frozen, Dataset& rows) {
  constexpr std::size_t most_bytes = std::size_t{4} << 30;
  if (frozen == 0) return;
  const TokenValues values(dynamic_cast<nn::TextEncoder&>(network), frozen);
  if (values.bytes(rows) <= most_bytes) rows.inputs = values(rows);
}

Var forward_tokens(nn::TokenModel& network, Tape& tape, const Dataset& rows, std::int64_t frozen) {
  if (frozen > 0) {
    auto& encoder = dynamic_cast<nn::TextEncoder&>(network);
    const bool kept = rows.inputs.dtype() == Dtype::f16;
    const Tensor values =
        kept ? rows.inputs : TokenValues(encoder, frozen)(rows).to(rows.inputs.device());
    return encoder.from_block(cast(tape.input(values), Dtype::f32), tape.input(rows.field("mask")),
                              frozen);
  }
  nn::TokenInputs inputs{.ids = tape.input(rows.inputs), .mask = tape.input(rows.field("mask"))};
  if (rows.fields.contains("token_types"))
    inputs.token_types = tape.input(rows.field("token_types"));
  return network(inputs);
}

Var tuned_outputs(nn::TokenModel& network, Tape& tape, const Dataset& rows, std::int64_t frozen) {
  const Dataset cut = cut_to_length(rows);
  const Var outputs = forward_tokens(network, tape, cut, frozen);
  if (outputs.value().rank() == 2) return log_softmax(outputs, 1);
  const Var sums = nn::next_token_loss(outputs, cut.targets, {.sum = true});
  return concat({unsqueeze(sums, 1), counts_of(tape, cut.targets)}, 1);
}

double nats_per_token(const Tensor& outputs) {
  double nats = 0, count = 0;
  const std::vector<float> pairs = outputs.to_vector<float>();
  for (std::size_t k = 0; k < pairs.size(); k += 2) {
    nats += pairs[k];
    count += pairs[k + 1];
  }
  return nats / count;
}

}  // namespace sotto::text
