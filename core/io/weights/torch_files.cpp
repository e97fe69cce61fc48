// The two forms of files that PyTorch's torch.save writes: a zip archive with a pickle and an entry
// for each storage, and before version 1.6 pickles with the storages behind them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "core/io/weights/torch_tensors.h"
#include "core/io/weights/weights_formats.h"
#include "core/io/weights/zip_archive.h"

namespace sotto::weights {

namespace {

using Kind = Pickled::Kind;

constexpr std::uint64_t max_pickle_bytes = 100'000'000;

std::string read_text(const ZipArchive& archive, const ZipArchive::Entry& entry,
                      std::uint64_t limit) {
  archive.context().check(entry.bytes <= limit, "the entry {} has {} bytes, more than {}",
                          excerpt(entry.name), entry.bytes, limit);
  std::string text(entry.bytes, '\0');
  archive.read(entry, std::as_writable_bytes(std::span(text)));
  return text;
}

// The folder of the archive, with its slash, in which data.pkl is.
std::string folder_of(const ZipArchive& archive) {
  constexpr std::string_view pickle = "data.pkl";
  std::vector<std::string> found;
  for (const auto& [name, index] : archive.names()) {
    archive.context().check(!name.ends_with("/constants.pkl"),
                            "a program of TorchScript, which is not run");
    if (name == pickle || name.ends_with("/data.pkl")) {
      found.push_back(name.substr(0, name.size() - pickle.size()));
    }
  }
  archive.context().check(found.size() == 1, "{} entries data.pkl where a file of PyTorch has one",
                          found.size());
  return found[0];
}

// The bytes of a deflated entry, which are read once for all tensors that share them.
class ZipStorage {
 public:
  ZipStorage(std::shared_ptr<const ZipArchive> archive, ZipArchive::Entry entry)
      : archive_(std::move(archive)), entry_(entry) {}

  std::shared_ptr<void> bytes() {
    const std::lock_guard lock(mutex_);
    if (std::shared_ptr<void> there = bytes_.lock()) return there;
    const auto block = std::make_shared<Tensor>(
        Tensor::empty({static_cast<std::int64_t>(entry_.bytes)}, Dtype::u8));
    auto* const first = static_cast<std::byte*>(block->view().data);
    archive_->read(entry_, {first, entry_.bytes});
    const std::shared_ptr<void> read(block, first);
    bytes_ = read;
    return read;
  }

 private:
  std::shared_ptr<const ZipArchive> archive_;
  ZipArchive::Entry entry_;
  std::mutex mutex_;
  std::weak_ptr<void> bytes_;
};

// An archive says how many bytes a compressed entry has, and may lie: a thousand for each of its
// own. So no more are accepted than the tensors have.
void attach(TorchStorage& storage, const std::shared_ptr<const ZipArchive>& archive,
            const std::string& name) {
  const FileContext& context = archive->context();
  const std::optional<ZipArchive::Entry> entry = archive->find(name);
  context.check(entry.has_value(), "there is no entry {}", excerpt(name));
  const auto wanted = static_cast<std::uint64_t>(storage.bytes());
  context.check(entry->bytes == wanted, "the entry {} has {} bytes where its storage has {}",
                excerpt(name), entry->bytes, wanted);
  context.check(!entry->deflated || storage.used == storage.bytes(),
                "the compressed entry {} has {} bytes where the tensors have {}", excerpt(name),
                entry->bytes, storage.used);
  if (std::shared_ptr<void> mapped = archive->map(*entry)) {
    storage.first = [mapped = std::move(mapped)] { return mapped; };
    return;
  }
  storage.first = [read = std::make_shared<ZipStorage>(archive, *entry)] { return read->bytes(); };
}

// torch.serialization.MAGIC_NUMBER as the pickle has it, little-endian.
constexpr std::string_view magic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::int64_t protocol_version = 1001;

// Throws unless the first three pickles say the version and the order of bytes that are supported.
void check_old_form(ByteReader& reader) {
  const FileContext& context = reader.context();
  const auto next = [&] { return read_pickle(reader, known_to_torch); };
  const Pickle first = next();
  context.check(first.root->is(Kind::integer) && first.root->text == magic,
                "a pickle, but none that PyTorch's torch.save wrote");
  const Pickle version = next();
  context.check(version.root->is(Kind::integer) && version.root->number == protocol_version,
                "the version {} of PyTorch's files is not supported, only {}", version.root->number,
                protocol_version);
  const Pickle system = next();
  const std::vector<Pickled*>& facts = system.root->items;
  for (std::size_t k = 0; k + 1 < facts.size(); k += 2) {
    context.check(facts[k]->text != "little_endian" || facts[k + 1]->number == 1,
                  "the file is big-endian");
  }
}

}  // namespace

WeightsFile::Contents read_torch_zip(const MappedFile& file, const FileContext& context) {
  const auto archive = std::make_shared<const ZipArchive>(file, context);
  const std::string folder = folder_of(*archive);
  if (const auto order = archive->find(folder + "byteorder")) {
    constexpr std::uint64_t most = 16;
    context.check(read_text(*archive, *order, most) == "little", "the file is not little-endian");
  }
  const std::string text =
      read_text(*archive, *archive->find(folder + "data.pkl"), max_pickle_bytes);
  ByteReader reader(std::as_bytes(std::span(text)), context.part("data.pkl"));
  const Pickle pickle = read_pickle(reader, known_to_torch);
  const TorchStorages storages = storages_of(pickle, context);
  WeightsFile::Contents contents = read_dictionary(pickle, storages, context);
  for (const auto& [key, storage] : storages) {
    if (storage->used > 0) attach(*storage, archive, folder + "data/" + key);
  }
  return contents;
}

WeightsFile::Contents read_torch_stream(const MappedFile& file, const FileContext& context) {
  ByteReader reader(file.bytes(), context);
  check_old_form(reader);
  const Pickle pickle = read_pickle(reader, known_to_torch);
  TorchStorages storages = storages_of(pickle, context);
  WeightsFile::Contents contents = read_dictionary(pickle, storages, context);
  const Pickle keys = read_pickle(reader, known_to_torch);
  for (const Pickled* key : keys.root->items) {
    const auto found = storages.find(key->text);
    context.check(found != storages.end() && !found->second->first,
                  "the storage {} is in no tensor, or twice in the file", excerpt(key->text));
    TorchStorage& storage = *found->second;
    const auto count = reader.number<std::int64_t>();
    context.check(count == storage.count, "the storage {} has {} elements where its tensors say {}",
                  excerpt(key->text), count, storage.count);
    storage.first = [file, place = reader.place()] { return file.at(place); };
    reader.text(static_cast<std::uint64_t>(storage.bytes()));
  }
  for (const auto& [key, storage] : storages) {
    context.check(static_cast<bool>(storage->first), "the storage {} is not in the file",
                  excerpt(key));
  }
  return contents;
}

}  // namespace sotto::weights
