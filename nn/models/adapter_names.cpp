#include "nn/models/adapter_names.h"

namespace sotto::nn {

AdapterNames::AdapterNames(const std::vector<std::string>& tables)
    : tables_(tables.begin(), tables.end()) {}

std::optional<OtherName> AdapterNames::in_model(const std::string& published) const {
  if (tables_.empty()) return OtherName{published};
  for (const NamesTable& table : tables_) {
    for (const std::string& prefix : {table.prefix(), std::string()}) {
      const std::optional<NamesLine> line = table.of_file(published, prefix);
      if (line && line->parameters.size() == 1)
        return OtherName{line->parameters[0], line->transposed};
    }
  }
  return std::nullopt;
}

const NamesTable& AdapterNames::newest() const {
  const NamesTable* newest = &tables_.front();
  for (const NamesTable& table : tables_) {
    if (!table.prefix().empty() && table.prefix() == newest->prefix()) newest = &table;
  }
  return *newest;
}

std::optional<OtherName> AdapterNames::published(const std::string& parameter) const {
  if (tables_.empty()) return OtherName{parameter};
  const NamesTable& table = newest();
  const std::optional<NamesLine> line = table.of_parameter(parameter);
  if (!line || line->parameters.size() != 1) return std::nullopt;
  return OtherName{(line->outside ? "" : table.prefix()) + line->file, line->transposed};
}

}  // namespace sotto::nn
