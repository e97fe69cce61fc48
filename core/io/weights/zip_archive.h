// Entries of a zip archive, read by libzip.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "core/io/file_context.h"
#include "core/io/mapped_file.h"

struct zip;

namespace sotto::weights {

// An archive in a mapped file. Calls from several threads wait for each other.
class ZipArchive {
 public:
  struct Entry {
    std::string name;
    std::uint64_t index;
    std::uint64_t bytes;  // as the archive says; read() trusts it no further
    bool deflated;        // else stored
    std::size_t place;    // of its bytes in the file
  };

  // Throws std::invalid_argument, beginning with the context, for what is no archive, and for
  // entries with more bytes than the file.
  ZipArchive(const MappedFile& file, FileContext context);

  // The numbers of entries by their names.
  const std::map<std::string, std::uint64_t>& names() const { return names_; }
  // Throws for an entry that is encrypted or neither stored nor deflated; nullopt if there is none.
  std::optional<Entry> find(const std::string& name) const;
  // The bytes of a stored entry, mapped; nullptr for a deflated one.
  std::shared_ptr<void> map(const Entry& entry) const;
  // Fills `into`, of `entry.bytes`. Throws if the entry has other bytes, or its checksum is wrong.
  void read(const Entry& entry, std::span<std::byte> into) const;
  const FileContext& context() const { return context_; }

 private:
  MappedFile file_;
  FileContext context_;
  mutable std::mutex mutex_;
  std::unique_ptr<zip, void (*)(zip*)> archive_;
  std::map<std::string, std::uint64_t> names_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace sotto::weights
