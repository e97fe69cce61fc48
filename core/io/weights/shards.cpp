#include <filesystem>
#include <set>
#include <utility>

#include "core/io/strict_json.h"
#include "core/io/weights/weights_formats.h"

namespace sotto::weights {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t max_index_bytes = 100'000'000;
constexpr std::size_t max_entries = 1'000'000;

// The files of an index by tensor.
std::map<std::string, std::string> weight_map(std::string_view text, const FileContext& context) {
  constexpr std::size_t deepest = 16;  // below "metadata" there may be anything
  context.check(text.size() <= max_index_bytes, "{} bytes, more than {}", text.size(),
                max_index_bytes);
  const json index =
      parse_json_object(text, context.text, {.depth = deepest, .max_entries = max_entries});
  const auto map = index.find("weight_map");
  context.check(map != index.end() && map->is_object(), "there is no object weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    const FileContext here = context.tensor(name);
    here.check(file.is_string(), "its file is not a string: {}", file.type_name());
    const fs::path place = file.get<std::string>();
    bool inside =
        !place.empty() && place.is_relative() && place.native().find('\0') == std::string::npos;
    for (const fs::path& step : place) inside = inside && step != "..";
    here.check(inside, "the file {} is not in the folder of the index", excerpt(place.string()));
    files[name] = place.string();
  }
  return files;
}

}  // namespace

WeightsFile::Contents read_shards(std::string_view index, const std::string& path) {
  const FileContext context{"weights: " + path};
  const std::map<std::string, std::string> files = weight_map(index, context);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  WeightsFile::Contents all;
  for (const std::string& name : names) {
    WeightsFile::Contents shard = read_shard((fs::path(path).parent_path() / name).string());
    all.metadata.update(shard.metadata);
    for (auto& [tensor, stored] : shard.tensors) {
      const auto listed = files.find(tensor);
      context.tensor(tensor).check(listed != files.end(), "in the file {}, but not in weight_map",
                                   excerpt(name));
      context.tensor(tensor).check(listed->second == name, "in the file {}, but weight_map says {}",
                                   excerpt(name), excerpt(listed->second));
      all.tensors[tensor] = std::move(stored);
    }
  }
  for (const auto& [tensor, file] : files) {
    context.tensor(tensor).check(all.tensors.contains(tensor), "not in the file {}", excerpt(file));
  }
  return all;
}

}  // namespace sotto::weights
