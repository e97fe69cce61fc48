#include "core/io/safetensors_header.h"
#include "core/io/weights/weights_formats.h"

namespace sotto::weights {

WeightsFile::Contents read_safetensors(const MappedFile& file, const FileContext& context) {
  const SafetensorsHeader header = read_safetensors_header(file.bytes(), context);
  const std::size_t data = file.bytes().size() - header.data.size();
  WeightsFile::Contents contents{.metadata = header.metadata};
  for (const SafetensorsEntry& entry : header.entries) {
    contents.tensors[entry.name] = {
        .shape = entry.shape,
        .type = entry.type,
        .dtype = entry.dtype,
        .first = [file, place = data + entry.begin] { return file.at(place); }};
  }
  return contents;
}

}  // namespace sotto::weights
