#include "core/io/weights/zip_archive.h"

#include <utility>

#include <zip.h>

#include "core/io/weights/zip_places.h"

namespace sotto::weights {

namespace {

constexpr zip_int64_t max_entries = 1'000'000;
// A compressed archive may become so many times larger: weights shrink to a half, a pickle to a
// tenth, and only zeros to a thousandth.
constexpr std::uint64_t most_unpacked = 64;
constexpr std::uint64_t always_unpacked = std::uint64_t{1} << 24;  // of small files

// The archive of these bytes, which stay as long as it.
zip_t* open_archive(std::span<const std::byte> bytes, const FileContext& context) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  zip_t* const archive = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : nullptr;
  const std::string reason = archive ? "" : zip_error_strerror(&error);
  if (!archive && source) zip_source_free(source);
  zip_error_fini(&error);
  context.check(archive != nullptr, "no zip archive that can be read: {}", reason);
  return archive;
}

}  // namespace

ZipArchive::ZipArchive(const MappedFile& file, FileContext context)
    : file_(file),
      context_(std::move(context)),
      archive_(open_archive(file_.bytes(), context_), &zip_discard),
      places_(zip_places(file_.bytes(), context_)) {
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  context_.check(count <= max_entries, "{} entries, more than {}", count, max_entries);
  std::uint64_t left = file_.bytes().size();
  std::uint64_t unpacked = most_unpacked * left + always_unpacked;  // bytes that are left
  for (zip_int64_t k = 0; k < count; ++k) {
    const auto index = static_cast<zip_uint64_t>(k);
    zip_stat_t status;
    const bool known = zip_stat_index(archive_.get(), index, ZIP_FL_ENC_RAW, &status) == 0 &&
                       (status.valid & ZIP_STAT_NAME) != 0 &&
                       (status.valid & ZIP_STAT_COMP_SIZE) != 0;
    context_.check(known && status.comp_size <= left,
                   "the entries have more bytes than the file, or entry {} cannot be read", k);
    left -= status.comp_size;
    const std::uint64_t bytes = (status.valid & ZIP_STAT_SIZE) != 0 ? status.size : 0;
    context_.check(bytes <= unpacked, "the entries have more than {} times the bytes of the file",
                   most_unpacked);
    unpacked -= bytes;
    context_.check(names_.emplace(status.name, index).second, "the entry {} occurs twice",
                   excerpt(status.name));
  }
}

std::optional<ZipArchive::Entry> ZipArchive::find(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  zip_stat_t status;
  zip_stat_init(&status);
  zip_stat_index(archive_.get(), found->second, ZIP_FL_ENC_RAW, &status);
  const zip_uint64_t needed =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  context_.check((status.valid & needed) == needed && status.encryption_method == ZIP_EM_NONE,
                 "the entry {} is encrypted", excerpt(name));
  const bool stored = status.comp_method == ZIP_CM_STORE;
  context_.check(stored || status.comp_method == ZIP_CM_DEFLATE,
                 "the entry {} is compressed by method {}, which is not supported", excerpt(name),
                 status.comp_method);
  const auto place = places_.find(name);
  const bool inside = place != places_.end() && (!stored || status.size == status.comp_size) &&
                      status.comp_size <= file_.bytes().size() - place->second;
  context_.check(inside, "the entry {} is not where the archive says", excerpt(name));
  return Entry{name, found->second, status.size, !stored, place->second};
}

std::shared_ptr<void> ZipArchive::map(const Entry& entry) const {
  return entry.deflated ? nullptr : file_.at(entry.place);
}

void ZipArchive::read(const Entry& entry, std::span<std::byte> into) const {
  const std::lock_guard lock(mutex_);
  zip_file_t* const opened = zip_fopen_index(archive_.get(), entry.index, 0);
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(opened, &zip_fclose);
  context_.check(file != nullptr, "the entry {} cannot be read: {}", excerpt(entry.name),
                 zip_strerror(archive_.get()));
  zip_int64_t got = 1;
  while (got > 0 && !into.empty()) {
    got = zip_fread(file.get(), into.data(), into.size());
    if (got > 0) into = into.subspan(static_cast<std::size_t>(got));
  }
  // The checksum is compared at the end.
  std::byte more{};
  const bool whole = into.empty() && zip_fread(file.get(), &more, 1) == 0;
  context_.check(whole, "the entry {} is damaged: {}", excerpt(entry.name),
                 zip_file_strerror(file.get()));
}

}  // namespace sotto::weights
