#include "nn/data/text/text_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/error.h"
#include "core/io/utf8.h"
#include "nn/data/class_files.h"
#include "nn/data/expect.h"
#include "nn/data/file_kind.h"
#include "nn/data/input_file.h"
#include "nn/data/text/text_records.h"
#include "nn/data/text/utf8_text.h"

namespace sotto {

namespace {

constexpr std::size_t max_text_bytes = std::size_t{1} << 32;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// The text with LF in place of CRLF and CR, the other ends of lines.
std::string with_line_feeds(std::string_view text) {
  std::string y;
  y.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool crlf = text.substr(at).starts_with("\r\n");
    y += text[at] == '\r' ? '\n' : text[at];
    if (crlf) ++at;
  }
  return y;
}

// The parts of the text between separators.
std::vector<std::string_view> separated(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> y;
  while (true) {
    const std::size_t end = text.find(separator);
    y.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return y;
    text.remove_prefix(end + separator.size());
  }
}

// The parts of the text between separators. The first line of a file has no line end before it, and
// the last one may have none behind it.
std::vector<std::string_view> separated_units(std::string_view text, std::string_view separator) {
  const std::string_view at_begin = separator.substr(separator.starts_with('\n') ? 1 : 0);
  const std::string_view at_end =
      separator.substr(0, separator.size() - (separator.ends_with('\n') ? 1 : 0));
  if (!at_begin.empty() && text.starts_with(at_begin)) text.remove_prefix(at_begin.size());
  if (!at_end.empty() && text.ends_with(at_end)) text.remove_suffix(at_end.size());
  return separated(text, separator);
}

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

// Runs of lines that are not blank, with the ends of lines within.
std::vector<std::string_view> paragraphs(std::string_view text) {
  std::vector<std::string_view> y;
  const char* begin = nullptr;
  const char* end = nullptr;
  for (const std::string_view line : separated(text, "\n")) {
    if (!blank(line)) {
      if (begin == nullptr) begin = line.data();
      end = line.data() + line.size();
    } else if (begin != nullptr) {
      y.emplace_back(begin, static_cast<std::size_t>(end - begin));
      begin = nullptr;
    }
  }
  if (begin != nullptr) y.emplace_back(begin, static_cast<std::size_t>(end - begin));
  return y;
}

std::vector<std::string_view> units_of(std::string_view text, const TextOptions& options) {
  if (options.unit == TextUnit::line) return separated(text, "\n");
  if (options.unit == TextUnit::paragraph) return paragraphs(text);
  if (options.unit == TextUnit::separated)
    return separated_units(text, with_line_feeds(options.separator));
  return {text};
}

// The texts of the units of a file's text.
using UseUnit = std::function<void(std::string_view unit, std::string_view text)>;
void each_unit(std::string_view text, const std::string& name, const TextOptions& options,
               const UseUnit& use) {
  check(options.unit != TextUnit::separated || !options.separator.empty(),
        "text: the separator is empty");
  expect_utf8(text, name);
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  std::string copy;
  if (text.find('\r') != text.npos) text = copy = with_line_feeds(text);
  for (const std::string_view unit : units_of(text, options)) use(unit, text);
}

// The rows made so far.
class Rows {
 public:
  explicit Rows(const TextOptions& options) : options_(options) {
    check(options.context >= 1, "text: a context of {} symbols", options.context);
  }

  void add(std::string_view text, const std::string& name, std::int64_t label) {
    each_unit(text, name, options_, [&](std::string_view unit, std::string_view whole) {
      const std::vector<std::int64_t> numbers = encoded(unit, whole, name);
      if (!numbers.empty()) add_unit(numbers, label);
    });
  }

  Dataset data() const {
    const std::int64_t n = std::ssize(lengths_);
    return {.inputs = Tensor::from(numbers_, {n, options_.context}),
            .targets = Tensor::from(labels_, {n}),
            .fields = {{"lengths", Tensor::from(lengths_, {n})}},
            .units = units_};
  }

 private:
  std::vector<std::int64_t> encoded(std::string_view unit, std::string_view text,
                                    const std::string& name) const {
    std::vector<std::int64_t> y;
    for (std::size_t at = 0; at < unit.size();) {
      const auto [number, bytes] = options_.vocabulary.symbol(unit, at);
      if (number < 0) refuse(unit.substr(at, bytes), text, name);
      y.push_back(number);
      at += bytes;
    }
    return y;
  }

  // `symbol` is a part of the text.
  [[noreturn]] static void refuse(std::string_view symbol, std::string_view text,
                                  const std::string& name) {
    const auto line = 1 + std::count(text.data(), symbol.data(), '\n');
    throw SystemFailure(fmt::format("text: {}: line {}: the vocabulary lacks U+{:04X}", name, line,
                                    static_cast<std::uint32_t>(utf8_character(symbol, 0).code)));
  }

  void add_unit(std::span<const std::int64_t> numbers, std::int64_t label) {
    const auto context = static_cast<std::size_t>(options_.context);
    if (options_.long_units == LongUnit::cut)
      numbers = numbers.first(std::min(context, numbers.size()));
    for (; !numbers.empty(); numbers = numbers.subspan(std::min(context, numbers.size()))) {
      const std::size_t length = std::min(context, numbers.size());
      numbers_.insert(numbers_.end(), numbers.begin(),
                      numbers.begin() + static_cast<std::ptrdiff_t>(length));
      numbers_.insert(numbers_.end(), context - length, TextVocabulary::end);
      lengths_.push_back(static_cast<std::int64_t>(length));
      labels_.push_back(label);
      units_.push_back(unit_);
    }
    ++unit_;
  }

  const TextOptions& options_;
  std::vector<std::int64_t> numbers_, lengths_, labels_, units_;
  std::int64_t unit_ = 0;
};

std::string text_of_file(const std::string& path) {
  InputFile file(path);
  const std::vector<std::uint8_t> bytes = read_all(file.reader(), max_text_bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_file(const std::string& path, std::int64_t label, Rows& rows) {
  rows.add(text_of_file(path), path, label);
}

}  // namespace

Dataset text_dataset(std::string_view text, const std::string& name, const TextOptions& options) {
  Rows rows(options);
  rows.add(text, name, 0);
  return rows.data();
}

TextFiles read_text_files(std::span<const std::string> paths, const TextOptions& options) {
  Rows rows(options);
  for (const std::string& path : paths) add_file(path, 0, rows);
  return {.data = rows.data()};
}

TextFiles read_text_folder(const std::string& folder, const TextOptions& options,
                           const std::vector<std::string>& classes) {
  Rows rows(options);
  ClassFiles files = list_class_files(folder, classes, /*text=*/true);
  for (std::size_t k = 0; k < files.paths.size(); ++k)
    add_file(files.paths[k], files.labels[k], rows);
  return {.data = rows.data(), .classes = std::move(files.classes)};
}

TextRecords read_text_units(const std::string& path, const TextOptions& options,
                            const std::vector<std::string>& classes) {
  TextRecords records;
  const auto add = [&](const std::string& file, std::optional<std::int64_t> label) {
    each_unit(text_of_file(file), file, options, [&](std::string_view unit, std::string_view) {
      if (blank(unit)) return;
      records.texts.emplace_back(unit);
      if (label) records.labels.push_back(*label);
    });
  };
  if (!std::filesystem::is_directory(path)) {
    add(path, std::nullopt);
    return records;
  }
  ClassFiles files = list_class_files(path, classes, /*text=*/true);
  for (std::size_t k = 0; k < files.paths.size(); ++k) add(files.paths[k], files.labels[k]);
  records.classes = std::move(files.classes);
  return records;
}

}  // namespace sotto
