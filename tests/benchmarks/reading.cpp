// Prints, as one JSON object a line, the seconds of CPU time, over all threads, that reading takes:
// the least of several times. reading.py sets it beside pandas and Pillow.
//
// usage: bench_reading TABLE SCHEMA FOLDER...     folders of pictures, which have one size
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "nn/data/images/image_folder.h"
#include "nn/data/images/picture.h"
#include "nn/data/input_file.h"
#include "nn/data/tables/csv_reader.h"
#include "nn/data/tables/table_reader.h"

using namespace sotto;

namespace {

constexpr int repetitions = 4;
constexpr std::size_t max_bytes = std::size_t{1} << 30;

void report(const std::string& what, const std::function<void()>& read) {
  double least = std::numeric_limits<double>::infinity();
  for (int k = 0; k < repetitions; ++k) {
    const std::clock_t start = std::clock();
    read();
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  fmt::print("{{\"what\": \"{}\", \"seconds\": {:.6f}}}\n", what, least);
}

void read_records(const std::string& path) {
  CsvReader reader(path);
  while (reader.next()) continue;
}

// The pictures as they are, without a change of size.
void read_pictures(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path().string());
  const Picture first = decode_picture(read_bytes(paths[0], max_bytes), paths[0], 1 << 26);
  report(std::filesystem::path(folder).filename().string(),
         [&] { read_images(paths, {.height = first.height, .width = first.width}); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_reading TABLE SCHEMA FOLDER...\n");
    return 2;
  }
  const std::string table = argv[1];
  const TableSchema schema = TableSchema::load(argv[2]);
  report("records", [&] { read_records(table); });
  report("table", [&] { read_table(table, schema); });
  for (int k = 3; k < argc; ++k) read_pictures(argv[k]);
}
