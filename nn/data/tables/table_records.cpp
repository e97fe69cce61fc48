#include "nn/data/tables/table_records.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"

namespace sotto {

// pandas 2.2, TextReader._get_header: names in the file go before those of columns without.
std::vector<ColumnName> column_names(std::span<const std::string> in_file) {
  std::vector<ColumnName> names;
  for (const std::string& name : in_file) {
    const bool unnamed = name.empty();
    names.push_back({unnamed ? fmt::format("Unnamed: {}", names.size()) : name, unnamed});
  }
  std::map<std::string, std::int64_t> counts;
  const auto taken = [&](const std::string& name) {
    return std::any_of(names.begin(), names.end(),
                       [&](const ColumnName& other) { return other.name == name; });
  };
  for (const bool unnamed : {false, true}) {
    for (ColumnName& column : names) {
      if (column.unnamed != unnamed) continue;
      std::string name = column.name;
      std::int64_t count = counts[name];
      column.repeated = count > 0;
      while (count > 0) {
        counts[column.name] = count + 1;
        name = fmt::format("{}.{}", column.name, count);
        count = taken(name) ? count + 1 : counts[name];
      }
      column.name = name;
      ++counts[name];
    }
  }
  return names;
}

TableRecords::TableRecords(std::unique_ptr<CsvReader> csv) : csv_(std::move(csv)) {
  if (!csv_->next()) return;
  first_.assign(csv_->fields().begin(), csv_->fields().end());
  first_line_ = csv_->line();
  first_fields_ = row_fields_ = first_.size();
  try {
    ahead_ = csv_->next();
  } catch (const SystemFailure&) {
    return;  // next() throws it again
  }
  if (!ahead_) return;
  row_fields_ = csv_->fields().size();
  if (row_fields_ <= first_fields_) return;
  ends_empty_ = csv_->fields().back().empty();
  first_.insert(ends_empty_ ? first_.end() : first_.begin(), std::string());
}

void TableRecords::take_first() {
  if (first_.empty()) return;
  if (first_fields_ != row_fields_)
    throw SystemFailure(fmt::format("csv: {}: line {}: {} fields, but {} in the first record",
                                    name(), csv_->line(), row_fields_, first_fields_));
  take_first_ = true;
  if (first_fields_ == 1) before_ = first_line_ - 1 - csv_->preamble_lines();
}

bool TableRecords::next() {
  if (before_ > 0) {
    line_ = first_line_ - before_--;
    fields_.assign(1, {});
    return true;
  }
  if (std::exchange(take_first_, false)) {
    line_ = first_line_;
    fields_.assign(first_.begin(), first_.end());
    return true;
  }
  if (!std::exchange(ahead_, false) && !csv_->next()) return false;
  line_ = csv_->line();
  fields_.assign(csv_->fields().begin(), csv_->fields().end());
  // Else it would be names of rows after all, and the first row lacked its last value.
  if (ends_empty_ && !fields_.back().empty())
    throw SystemFailure(fmt::format("csv: {}: line {}: {} fields, but {} in the header", name(),
                                    csv_->line(), row_fields_, first_fields_));
  fields_.resize(first_.size());
  return true;
}

}  // namespace sotto
