// The readers of the formats of weights: each lists the tensors of a file.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_context.h"
#include "core/io/mapped_file.h"
#include "core/io/weights_file.h"

namespace sotto {

struct WeightsFile::Contents {
  std::map<std::string, StoredTensor> tensors = {};
  nlohmann::json metadata = nlohmann::json::object();
  std::vector<std::string> left_out = {};
};

namespace weights {

// The contents of a file of tensors, told by its first bytes, or of the files that it, an index,
// names; or of the one of these in a folder.
WeightsFile::Contents read_path(const std::string& path);
// The same of a file whose path stands in errors, and by which the files of an index are found.
WeightsFile::Contents read_file(const MappedFile& file, const std::string& path);
// The contents of a file that must not be an index.
WeightsFile::Contents read_shard(const std::string& path);

// The readers of formats. Errors begin with the context.
WeightsFile::Contents read_safetensors(const MappedFile& file, const FileContext& context);
WeightsFile::Contents read_gguf(const MappedFile& file, const FileContext& context);
WeightsFile::Contents read_torch_zip(const MappedFile& file, const FileContext& context);
WeightsFile::Contents read_torch_stream(const MappedFile& file, const FileContext& context);

// The contents of all files that an index, a text of JSON, names. They lie in the index's folder.
WeightsFile::Contents read_shards(std::string_view index, const std::string& path);

}  // namespace weights

}  // namespace sotto
