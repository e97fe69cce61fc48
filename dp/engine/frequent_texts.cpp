#include "dp/engine/frequent_texts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/io/utf8.h"
#include "core/io/xxh64.h"
#include "nn/data/tables/csv_reader.h"

namespace sotto {

namespace {

constexpr std::int64_t hashes = 1 << 14;  // two of 50 texts share one with a probability of 7 %
constexpr std::int64_t max_bytes = 32, places = max_bytes + 1;
constexpr std::int64_t end_of_text = 256, symbols = end_of_text + 1;
constexpr std::int64_t max_texts = 100;  // of a column

// A multiple of the noise that none of so many counts without units exceeds, with a probability
// above 99.99 %.
double above_noise(std::int64_t counts) {
  return std::sqrt(2 * std::log(1e4 * static_cast<double>(counts)));
}

// The symbol that most units have, if it is above the noise.
std::optional<std::int64_t> symbol_of(std::span<const double> fractions, double least) {
  const auto most = std::max_element(fractions.begin(), fractions.end());
  if (*most <= least) return std::nullopt;
  return most - fractions.begin();
}

}  // namespace

FrequentTexts::FrequentTexts(std::string path, const TableSchema& draft)
    : path_(std::move(path)), schema_(draft) {
  for (std::size_t k = 0; k < draft.columns.size(); ++k) {
    if (draft.columns[k].lacks_categories()) columns_.push_back(k);
  }
}

// Calls f with the texts of the first row of each unit; a missing one is empty.
void FrequentTexts::each(const OnUnit& f) const {
  CsvReader csv(path_, {.delimiter = schema_.delimiter});
  std::vector<std::size_t> fields(schema_.columns.size());
  std::iota(fields.begin(), fields.end(), std::size_t{0});
  if (schema_.header && csv.next()) {
    for (std::size_t k = 0; k < fields.size(); ++k) {
      const auto names = csv.fields();
      fields[k] = static_cast<std::size_t>(
          std::find(names.begin(), names.end(), schema_.columns[k].name) - names.begin());
    }
  }
  const auto user =
      std::find_if(schema_.columns.begin(), schema_.columns.end(),
                   [](const auto& column) { return column.kind == ColumnKind::user; });
  std::set<std::string, std::less<>> users;
  std::vector<std::string> texts(columns_.size());
  while (csv.next()) {
    const auto text = [&](std::size_t column) { return csv.fields()[fields[column]]; };
    const auto of_user = static_cast<std::size_t>(user - schema_.columns.begin());
    if (user != schema_.columns.end() && !users.emplace(text(of_user)).second) continue;
    for (std::size_t k = 0; k < texts.size(); ++k) {
      texts[k] = text(columns_[k]);
      if (texts[k] == schema_.missing) texts[k].clear();
    }
    f(texts);
  }
}

// -1 for a text that is missing or too long.
std::int64_t FrequentTexts::hash(std::size_t column, const std::string& text) const {
  if (text.empty() || std::ssize(text) > max_bytes) return -1;
  return static_cast<std::int64_t>(xxh64(std::as_bytes(std::span(text)), columns_[column]) %
                                   std::uint64_t{hashes});
}

FrequentTexts::Bins FrequentTexts::frequent_hashes(const HistogramRelease& histograms) const {
  HistogramSum counts(columns(), hashes);
  std::vector<std::int64_t> of_unit(columns_.size());
  each([&](const std::vector<std::string>& texts) {
    for (std::size_t k = 0; k < texts.size(); ++k) of_unit[k] = hash(k, texts[k]);
    counts.add(of_unit);
  });
  const std::vector<double> fractions = histograms.release(counts);
  const double least = histograms.noise_of(columns()) * above_noise(columns() * hashes);
  Bins kept;
  for (std::int64_t k = 0; k < columns(); ++k) {
    const std::span<const double> own = std::span(fractions).subspan(k * hashes, hashes);
    std::vector<std::int64_t>& bins = kept.emplace_back();
    for (std::int64_t bin = 0; bin < hashes; ++bin) {
      if (own[static_cast<std::size_t>(bin)] > least) bins.push_back(bin);
    }
    std::sort(bins.begin(), bins.end(), [&](std::int64_t a, std::int64_t b) {
      return own[static_cast<std::size_t>(a)] > own[static_cast<std::size_t>(b)];
    });
    bins.resize(std::min<std::size_t>(bins.size(), max_texts));
  }
  return kept;
}

// [columns, places, max_texts, symbols]: a text has a byte at each of its places, and then its end.
std::vector<double> FrequentTexts::count_bytes(const Bins& kept,
                                               const HistogramRelease& histograms) const {
  HistogramSum counts(columns() * places, max_texts * symbols);
  std::vector<std::int64_t> of_unit(static_cast<std::size_t>(columns() * places));
  each([&](const std::vector<std::string>& texts) {
    std::fill(of_unit.begin(), of_unit.end(), -1);
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const auto found = std::find(kept[k].begin(), kept[k].end(), hash(k, texts[k]));
      if (found == kept[k].end()) continue;
      const std::int64_t first = (found - kept[k].begin()) * symbols;
      auto at = of_unit.begin() + static_cast<std::int64_t>(k) * places;
      for (const char byte : texts[k]) *at++ = first + static_cast<unsigned char>(byte);
      *at = first + end_of_text;
    }
    counts.add(of_unit);
  });
  return histograms.release(counts);
}

double FrequentTexts::least_fraction(const HistogramRelease& histograms) const {
  const std::int64_t counts = columns() * places * max_texts * symbols;
  return histograms.noise_of(columns() * places) * above_noise(counts);
}

std::vector<std::vector<std::string>> FrequentTexts::find(
    const HistogramRelease& histograms) const {
  const Bins kept = frequent_hashes(histograms);
  const std::vector<double> fractions = count_bytes(kept, histograms);
  const double least = least_fraction(histograms);
  std::vector<std::vector<std::string>> found(columns_.size());
  const auto text_of = [&](std::size_t column, std::size_t number) {
    std::string text;
    for (std::int64_t place = 0; place < places; ++place) {
      const std::int64_t histogram = static_cast<std::int64_t>(column) * places + place;
      const std::int64_t first =
          (histogram * max_texts + static_cast<std::int64_t>(number)) * symbols;
      const auto symbol = symbol_of(std::span(fractions).subspan(first, symbols), least);
      if (!symbol) return std::string();
      if (*symbol == end_of_text) return text;
      text += static_cast<char>(*symbol);
    }
    return std::string();
  };
  for (std::size_t k = 0; k < kept.size(); ++k) {
    for (std::size_t number = 0; number < kept[k].size(); ++number) {
      const std::string text = text_of(k, number);
      if (hash(k, text) == kept[k][number] && valid_utf8(text)) found[k].push_back(text);
    }
    std::sort(found[k].begin(), found[k].end());
  }
  return found;
}

}  // namespace sotto
