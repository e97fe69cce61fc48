#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/join.h"
#include "nn/data/expect.h"
#include "nn/data/tables/csv_reader.h"
#include "nn/data/text/text_records.h"
#include "nn/data/text/utf8_text.h"

namespace sotto {

namespace {

// The path without .gz.
std::string_view unpacked(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path;
}

// The number of a name's column; nullopt for an empty name.
std::optional<std::size_t> column(const std::string& name, const std::vector<std::string>& names,
                                  const std::string& path) {
  if (name.empty()) return std::nullopt;
  const auto at = std::find(names.begin(), names.end(), name);
  check(at != names.end(), "text: {} has no column {}; it has {}", path, name, join(names, ", "));
  check(std::count(names.begin(), names.end(), name) == 1, "text: {} has two columns {}", path,
        name);
  return static_cast<std::size_t>(at - names.begin());
}

// Numbers of names, in the order in which they come.
class Numbers {
 public:
  std::int64_t of(std::string_view name) {
    return numbers_.try_emplace(std::string(name), std::ssize(numbers_)).first->second;
  }
  const std::map<std::string, std::int64_t>& all() const { return numbers_; }

 private:
  std::map<std::string, std::int64_t> numbers_;
};

// Replaces labels that count classes as they come by the numbers in `classes`, in the order of the
// names if there are none.
void number_classes(const Numbers& found, const std::vector<std::string>& classes,
                    const std::string& path, TextRecords& records) {
  records.classes = classes;
  if (classes.empty()) {
    for (const auto& [name, number] : found.all()) records.classes.push_back(name);
  }
  std::vector<std::int64_t> number_of(found.all().size());
  for (const auto& [name, number] : found.all()) {
    const auto at = std::find(records.classes.begin(), records.classes.end(), name);
    expect(at != records.classes.end(), "text: {}: the class \"{}\" is not among {}", path, name,
           join(records.classes, ", "));
    number_of[static_cast<std::size_t>(number)] = at - records.classes.begin();
  }
  for (std::int64_t& label : records.labels) label = number_of[static_cast<std::size_t>(label)];
}

}  // namespace

bool is_text_table(const std::string& path) {
  const std::string_view name = unpacked(path);
  return name.ends_with(".tsv") || name.ends_with(".csv");
}

TextRecords read_text_table(const std::string& path, const TextColumns& columns,
                            const std::vector<std::string>& classes) {
  const bool tabs = unpacked(path).ends_with(".tsv");
  CsvReader reader(path, {.delimiter = tabs ? '\t' : ',', .quotes = !tabs});
  expect(reader.next(), "text: {} has no first record of names", path);
  const std::vector<std::string> names(reader.fields().begin(), reader.fields().end());
  const auto text = column(columns.text, names, path), prompt = column(columns.prompt, names, path),
             label = column(columns.label, names, path), user = column(columns.user, names, path);
  check(text.has_value(), "text: {}: no column of texts is named", path);
  TextRecords records;
  Numbers labels, users;
  while (reader.next()) {
    const auto fields = reader.fields();
    for (const std::string_view field : fields)
      expect_utf8(field, fmt::format("{}: line {}", path, reader.line()));
    records.texts.emplace_back(fields[*text]);
    if (prompt) records.prompts.emplace_back(fields[*prompt]);
    if (label) records.labels.push_back(labels.of(fields[*label]));
    if (!user) continue;
    // Rows without a user are not those of one: all of them would be clipped together.
    expect(!fields[*user].empty(), "text: {}: line {}: no {}", path, reader.line(), columns.user);
    records.units.push_back(users.of(fields[*user]));
  }
  if (label) number_classes(labels, classes, path, records);
  return records;
}

}  // namespace sotto
