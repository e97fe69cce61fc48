// Bytes up to the first zero are a schema, or are refused with std::invalid_argument; a schema's
// JSON form is read back as the same. The bytes behind it, read as that schema or a fixed one says,
// are a table, or are refused with SystemFailure; compressed, and row by row, they are the same
// table.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "nn/data/tables/schema_guess.h"
#include "nn/data/tables/table_reader.h"
#include "tests/fuzz/plain_and_gzip.h"

namespace {

using namespace sotto;

const TableSchema usual{
    .columns = {{.name = "a", .kind = ColumnKind::number, .range = {{0, 1}}, .missing_value = 0},
                {.name = "b",
                 .kind = ColumnKind::category,
                 .categories = {{"x"}, {"y", {"z"}}},
                 .missing = true,
                 .other = true},
                {.name = "c", .kind = ColumnKind::label, .categories = {{"no"}, {"yes"}}},
                {.name = "d", .kind = ColumnKind::user}}};

std::optional<TableSchema> parsed(const std::string& text) {
  try {
    return TableSchema::from_json(text);
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // the expected answer to most inputs
  }
}

using Rows = std::vector<float>;

// All inputs of a table, read so many rows at a time.
std::optional<Rows> read(const std::string& file, const TableSchema& schema, std::int64_t at_once) {
  std::istringstream in(file);
  try {
    TableReader reader(in, "fuzz", schema);
    Rows rows;
    while (true) {
      const Dataset part = reader.next(at_once);
      if (part.size() == 0) return rows;
      require(part.size() <= at_once && part.inputs.size(1) == schema.width());
      require(part.units.empty() || std::ssize(part.units) == part.size());
      const auto inputs = part.inputs.to_vector<float>();
      rows.insert(rows.end(), inputs.begin(), inputs.end());
    }
  } catch (const SystemFailure&) {
    return std::nullopt;
  }
}

// Calls f with the path of a file in memory.
template <class F>
void with_file(const std::string& bytes, const F& f) {
  const int number = ::memfd_create("fuzz", 0);
  require(number >= 0 && ::write(number, bytes.data(), bytes.size()) == std::ssize(bytes));
  f("/proc/self/fd/" + std::to_string(number));
  ::close(number);
}

// A guess reads its file, but for labels that are missing.
void guess(const std::string& path, std::optional<bool> header) {
  try {
    const SchemaGuess found = guess_schema(path, {.header = header});
    require(TableSchema::from_json(found.to_json()).to_json() == found.schema.to_json());
    require(!header || found.schema.header == *header);
    require(read_table(path, found.schema).size() > 0);
  } catch (const std::invalid_argument&) {
  } catch (const SystemFailure& error) {
    const std::string_view why = error.what();
    require(!why.starts_with("table: ") || why.find("a missing value") != why.npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(bytes.find('\0'), size);
  const std::optional<TableSchema> schema = parsed(bytes.substr(0, end));
  if (schema) {
    const std::string text = schema->to_json();
    const std::optional<TableSchema> again = parsed(text);
    require(again && again->to_json() == text);
    require(std::ssize(schema->input_names()) == schema->width());
  }
  const std::string file = bytes.substr(std::min(end + 1, size));
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  for (const TableSchema& by : {schema.value_or(usual), usual}) {
    const std::optional<Rows> rows = read(file, by, all);
    require(rows == read(file, by, 1));
    if (!compressed_already(file)) require(rows == read(compressed(file), by, all));
    for (const float x : rows.value_or(Rows())) require(std::isfinite(x));
  }
  constexpr std::optional<bool> headers[] = {std::nullopt, true, false};
  with_file(file, [&](const std::string& path) { guess(path, headers[size % 3]); });
  return 0;
}
