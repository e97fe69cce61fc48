#include "nn/data/text/token_dataset.h"

#include <algorithm>
#include <bit>
#include <span>

#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

constexpr std::int64_t not_counted = -100;  // TokenLossOptions::ignore_index

// The rows made so far: ids, and what stands beside each.
class TokenRowsOf {
 public:
  TokenRowsOf(const Tokenizer& tokenizer, const TokenRowOptions& options)
      : context_(options.context),
        splits_(options.long_texts == LongUnit::split),
        padding_(tokenizer.special_tokens().padding.value_or(0)) {
    check(context_ >= 1, "tokens: rows of {} tokens", context_);
  }

  // Adds a text's row or rows: `beside` has a number for each id.
  void add(std::span<const std::int64_t> ids, std::span<const std::int64_t> beside,
           std::int64_t beside_padding, std::int64_t label, std::int64_t unit) {
    const auto most = static_cast<std::size_t>(context_);
    for (std::size_t at = 0; at == 0 || (splits_ && at < ids.size()); at += most) {
      const std::size_t count = std::min(most, ids.size() - at);
      const auto append = [&](std::vector<std::int64_t>& to, auto from, std::int64_t rest) {
        to.insert(to.end(), from.begin(), from.end());
        to.insert(to.end(), most - count, rest);
      };
      append(ids_, ids.subspan(at, count), padding_);
      append(beside_, beside.subspan(at, count), beside_padding);
      append(mask_, std::vector<std::int64_t>(count, 1), 0);
      labels_.push_back(label);
      units_.push_back(unit);
    }
  }

  Tensor matrix(const std::vector<std::int64_t>& values) const {
    return Tensor::from(values, {std::ssize(labels_), context_});
  }
  Tensor ids() const { return matrix(ids_); }
  Tensor beside() const { return matrix(beside_); }
  Tensor mask() const { return matrix(mask_); }
  Tensor labels() const { return Tensor::from(labels_, {std::ssize(labels_)}); }
  const std::vector<std::int64_t>& units() const { return units_; }

 private:
  std::int64_t context_;
  bool splits_;
  std::int64_t padding_;
  std::vector<std::int64_t> ids_, beside_, mask_, labels_, units_;
};

std::int64_t unit_of(const TextRecords& records, std::size_t k) {
  return records.units.empty() ? static_cast<std::int64_t>(k) : records.units[k];
}

// The units, or none where each row is one.
std::vector<std::int64_t> units(const TokenRowsOf& rows, const TextRecords& records,
                                const TokenRowOptions& options) {
  const bool rows_are_units = records.units.empty() && options.long_texts == LongUnit::cut;
  return rows_are_units ? std::vector<std::int64_t>{} : rows.units();
}

// The tokens of each row: the columns up to its last 1 in the mask [n, context].
std::vector<std::int64_t> token_counts(const Tensor& mask) {
  const std::int64_t context = mask.size(1);
  const std::vector<std::int64_t> values = mask.to(cpu).to_vector<std::int64_t>();
  std::vector<std::int64_t> counts;
  for (auto row = values.begin(); row != values.end(); row += context) {
    std::int64_t count = context;
    while (count > 0 && row[count - 1] == 0) --count;
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

std::int64_t cut_length(std::int64_t tokens, std::int64_t context) {
  constexpr std::int64_t min_step = 8;
  const auto below = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, tokens - 1))));
  const std::int64_t step = std::max(min_step, below / 4);
  return std::min(context, std::max(min_step, (tokens + step - 1) / step * step));
}

std::vector<std::int64_t> unit_lengths(const Dataset& rows) {
  const Tensor& mask = rows.field("mask");
  const std::vector<std::int64_t> counts = token_counts(mask);
  std::vector<std::int64_t> lengths;
  const auto length = [&](std::int64_t row) {
    return cut_length(counts[static_cast<std::size_t>(row)], mask.size(1));
  };
  if (rows.units.empty()) {
    for (std::int64_t row = 0; row < rows.size(); ++row) lengths.push_back(length(row));
    return lengths;
  }
  for (const std::vector<std::int64_t>& own : rows.rows_of_units()) {
    std::int64_t longest = 0;
    for (const std::int64_t row : own) longest = std::max(longest, length(row));
    lengths.push_back(longest);
  }
  return lengths;
}

Dataset cut_to_length(const Dataset& rows) {
  const Tensor& mask = rows.field("mask");
  const std::int64_t context = mask.size(1);
  const std::int64_t length = cut_length(std::ranges::max(token_counts(mask)), context);
  if (length == context) return rows;
  Dataset cut = rows.map([&](const Tensor& x) {
    const bool has_columns = x.rank() > 1 && x.size(1) == context;
    return has_columns ? contiguous(x.slice(1, 0, length)) : x;
  });
  cut.units = rows.units;
  return cut;
}

Dataset classifier_rows(const Tokenizer& tokenizer, const TextRecords& records,
                        const TokenRowOptions& options) {
  TokenRowsOf rows(tokenizer, options);
  for (std::size_t k = 0; k < records.texts.size(); ++k) {
    EncodeOptions how;
    if (options.long_texts == LongUnit::cut) how.max_tokens = options.context;
    const bool paired = !records.prompts.empty();
    if (paired) how.pair = records.texts[k];
    const Encoding text = tokenizer.encode(paired ? records.prompts[k] : records.texts[k], how);
    rows.add(text.ids, text.token_types, 0, records.labels.empty() ? 0 : records.labels[k],
             unit_of(records, k));
  }
  return {.inputs = rows.ids(),
          .targets = rows.labels(),
          .fields = {{"mask", rows.mask()}, {"token_types", rows.beside()}},
          .units = units(rows, records, options)};
}

std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  return tokenizer.encode(prompt.empty() ? prompt : prompt + "\n").ids;
}

Dataset language_rows(const Tokenizer& tokenizer, const TextRecords& records,
                      const TokenRowOptions& options) {
  TokenRowsOf rows(tokenizer, options);
  for (std::size_t k = 0; k < records.texts.size(); ++k) {
    std::vector<std::int64_t> ids =
        prompt_tokens(tokenizer, records.prompts.empty() ? "" : records.prompts[k]);
    std::vector<std::int64_t> targets(ids.size(), not_counted);
    std::vector<std::int64_t> text =
        tokenizer.encode(records.texts[k], {.special_tokens = false}).ids;
    if (const auto end = tokenizer.special_tokens().end) text.push_back(*end);
    ids.insert(ids.end(), text.begin(), text.end());
    targets.insert(targets.end(), text.begin(), text.end());
    rows.add(ids, targets, not_counted, 0, unit_of(records, k));
  }
  return {.inputs = rows.ids(),
          .targets = rows.beside(),
          .fields = {{"mask", rows.mask()}},
          .units = units(rows, records, options)};
}

}  // namespace sotto
