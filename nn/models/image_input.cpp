#include "nn/models/image_input.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/strict_json.h"
#include "nn/models/config.h"

namespace sotto::nn {

namespace {

namespace fs = std::filesystem;

constexpr const char* preprocessor_file = "preprocessor_config.json";
constexpr std::size_t max_config_bytes = 16 << 20;
constexpr JsonLimits config_limits{.depth = 64, .max_entries = 1 << 20};

ImageInput usual(const std::string& architecture) {
  if (architecture.find("resne") != std::string::npos)
    return {.mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}};
  if (architecture.find("efficientnet") != std::string::npos) {
    constexpr double mean = 127.0 / 255, deviation = 128.0 / 255;
    return {.mean = {mean, mean, mean}, .deviation = {deviation, deviation, deviation}};
  }
  return {.mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}};
}

bool has(const nlohmann::json& config, const char* field) {
  return config.contains(field) && !config[field].is_null();
}

void read_size(const nlohmann::json& value, const char* field, std::int64_t& size) {
  constexpr std::int64_t most = 1 << 14;
  check(value.is_number_integer() && value >= 1 && value <= most, "config: {} is {}, not a size",
        field, shown(value));
  size = value.get<std::int64_t>();
}

void read_channels(const nlohmann::json& config, const char* field, bool positive,
                   std::vector<double>& values) {
  if (!has(config, field)) return;
  const nlohmann::json& list = config[field];
  bool fits = list.is_array() && !list.empty();
  values.clear();
  for (std::size_t c = 0; fits && c < list.size(); ++c) {
    fits = list[c].is_number() && (!positive || list[c] > 0);
    if (fits) values.push_back(list[c].get<double>());
  }
  check(fits, "config: {} is {}, not {}numbers of the channels", field, shown(list),
        positive ? "positive " : "");
}

// transformers': a number, or the sizes of two axes, or of the shorter one.
void read_preprocessor(const nlohmann::json& config, ImageInput& input) {
  for (const char* field : {"size", "crop_size"}) {
    if (!has(config, field)) continue;
    const nlohmann::json& size = config[field];
    if (!size.is_object()) read_size(size, field, input.size);
    for (const char* side : {"shortest_edge", "height"}) {
      if (size.is_object() && has(size, side)) read_size(size[side], field, input.size);
    }
  }
  read_channels(config, "image_mean", false, input.mean);
  read_channels(config, "image_std", true, input.deviation);
}

// timm's: the sizes of channels, height and width.
void read_timm(const nlohmann::json& config, ImageInput& input) {
  if (has(config, "input_size")) {
    const nlohmann::json& size = config["input_size"];
    check(size.is_array() && size.size() == 3, "config: {} is {}", "input_size", shown(size));
    read_size(size[1], "input_size", input.size);
  }
  read_channels(config, "mean", false, input.mean);
  read_channels(config, "std", true, input.deviation);
}

}  // namespace

ImageInput image_input(const std::string& path, const Pretrained& pretrained) {
  ImageInput input = usual(pretrained.report.architecture);
  const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = (folder / preprocessor_file).string();
  if (fs::exists(file)) {
    read_preprocessor(parse_json_object(read_file(file, max_config_bytes), file, config_limits),
                      input);
  } else if (!pretrained.config.empty()) {
    const nlohmann::json config =
        parse_json_object(pretrained.config, "config.json", config_limits);
    if (has(config, "pretrained_cfg") && config["pretrained_cfg"].is_object())
      read_timm(config["pretrained_cfg"], input);
  }
  check(input.mean.size() == input.deviation.size(), "config: {} means and {} deviations",
        input.mean.size(), input.deviation.size());
  return input;
}

void save_image_input(const ImageInput& input, const std::string& folder) {
  constexpr double brightest = 255;
  constexpr int bicubic = 3;  // Pillow's number
  const nlohmann::json config{{"image_processor_type", "ViTImageProcessor"},
                              {"do_resize", true},
                              {"resample", bicubic},
                              {"size", {{"height", input.size}, {"width", input.size}}},
                              {"do_rescale", true},
                              {"rescale_factor", 1 / brightest},
                              {"do_normalize", true},
                              {"image_mean", input.mean},
                              {"image_std", input.deviation}};
  const std::string text = config.dump(2) + "\n";
  write_file_atomically((fs::path(folder) / preprocessor_file).string(),
                        [&](FileWriter& file) { file.write(text); });
}

}  // namespace sotto::nn
