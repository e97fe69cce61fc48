#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "core/io/weights/weights_formats.h"

namespace sotto::weights {

namespace {

namespace fs = std::filesystem;

// The names that publishers give, in the order in which they are taken.
constexpr const char* usual_names[] = {"model.safetensors", "model.safetensors.index.json",
                                       "pytorch_model.bin", "pytorch_model.bin.index.json"};
constexpr std::string_view endings[] = {".safetensors", ".gguf", ".pth", ".pt", ".bin"};

bool has_ending(const std::string& name) {
  return std::any_of(std::begin(endings), std::end(endings),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// The file of weights in a folder: one of a usual name, or the only one.
std::string file_in(const std::string& folder) {
  std::error_code error;
  std::set<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    found.insert(entry.path().filename().string());
  }
  if (error) throw SystemFailure(fmt::format("read: {}: {}", folder, error.message()));
  for (const char* name : usual_names) {
    if (found.contains(name)) return (fs::path(folder) / name).string();
  }
  std::erase_if(found, [](const std::string& name) { return !has_ending(name); });
  const FileContext context{"weights: " + folder};
  context.check(!found.empty(), "the folder holds no {}, and no other file of weights",
                usual_names[0]);
  context.check(found.size() == 1,
                "the folder holds several files of weights, among them {} and {}",
                excerpt(*found.begin()), excerpt(*found.rbegin()));
  return (fs::path(folder) / *found.begin()).string();
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A safetensors file begins with eight bytes of length, of which the last is 0, and a brace. The
// length may begin with the code of a brace, too.
bool begins_as_safetensors(std::string_view text) {
  constexpr std::size_t length_bytes = 8;
  return text.size() > length_bytes && text[length_bytes] == '{' &&
         (text[0] != '{' || text[length_bytes - 1] == '\0');
}

bool is_index(const MappedFile& file) {
  const std::string_view text = text_of(file.bytes());
  return text.starts_with('{') && !begins_as_safetensors(text);
}

WeightsFile::Contents read_tensors(const MappedFile& file, const std::string& path) {
  const std::string_view text = text_of(file.bytes());
  if (begins_as_safetensors(text)) return read_safetensors(file, {"safetensors: " + path});
  if (text.starts_with("GGUF")) return read_gguf(file, {"GGUF: " + path});
  if (text.starts_with("PK")) return read_torch_zip(file, {"PyTorch: " + path});
  if (text.starts_with('\x80')) return read_torch_stream(file, {"PyTorch: " + path});
  const FileContext context{"weights: " + path};
  context.check(!text.empty(), "the file is empty");
  context.check(!text.starts_with("version https://git-lfs"),
                "a pointer of Git LFS, which stands for the file itself");
  constexpr std::size_t tar_mark = 257;  // POSIX, pax: ustar format
  context.check(text.size() <= tar_mark || !text.substr(tar_mark).starts_with("ustar"),
                "a tar archive, as the first versions of PyTorch wrote, which is not supported");
  constexpr std::size_t shown = 8;
  context.fail("no format that is known: the file begins with \"{}\"",
               printable(text.substr(0, shown)));
}

}  // namespace

WeightsFile::Contents read_shard(const std::string& path) {
  const MappedFile file(path);
  FileContext{"weights: " + path}.check(!is_index(file),
                                        "an index of files, not a file of tensors");
  return read_tensors(file, path);
}

WeightsFile::Contents read_file(const MappedFile& file, const std::string& path) {
  return is_index(file) ? read_shards(text_of(file.bytes()), path) : read_tensors(file, path);
}

WeightsFile::Contents read_path(const std::string& path) {
  std::error_code none;  // the file is opened below
  const std::string at = fs::is_directory(path, none) ? file_in(path) : path;
  return read_file(MappedFile(at), at);
}

}  // namespace sotto::weights
