// The records of an archive: APPNOTE.TXT of PKWARE, section 4.3.
#include "core/io/weights/zip_places.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/io/weights/byte_reader.h"

namespace sotto::weights {

namespace {

constexpr std::uint32_t elsewhere = 0xffffffff;  // a number is in the 64-bit record
constexpr std::size_t locator_bytes = 20;

// Reads from an offset on, where a record must begin with this signature.
ByteReader record_at(std::span<const std::byte> archive, std::uint64_t offset,
                     std::string_view signature, const FileContext& context) {
  context.check(offset <= archive.size(), "a record at byte {} of {}", offset, archive.size());
  ByteReader reader(archive.subspan(offset), context);
  context.check(reader.text(signature.size()) == signature, "no record of an archive at byte {}",
                offset);
  return reader;
}

struct List {
  std::uint64_t count, offset;
};

// The list of entries, by the record at the end of the archive.
List list_of(std::span<const std::byte> archive, const FileContext& context) {
  const std::string_view text(reinterpret_cast<const char*>(archive.data()), archive.size());
  const std::size_t end = text.rfind("PK\5\6");
  context.check(end != text.npos, "the archive has no end record");
  ByteReader reader = record_at(archive, end, "PK\5\6", context);
  reader.text(6);  // numbers of disks, and the count on this one
  const auto count = reader.number<std::uint16_t>();
  reader.number<std::uint32_t>();  // bytes of the list
  const auto offset = reader.number<std::uint32_t>();
  const bool has_locator =
      end >= locator_bytes && text.substr(end - locator_bytes).starts_with("PK\6\7");
  if (!has_locator) return {count, offset};
  ByteReader locator = record_at(archive, end - locator_bytes, "PK\6\7", context);
  locator.number<std::uint32_t>();  // a disk
  ByteReader wide = record_at(archive, locator.number<std::uint64_t>(), "PK\6\6", context);
  wide.text(28);  // bytes of the record, versions, disks, and the count on this one
  const auto wide_count = wide.number<std::uint64_t>();
  wide.number<std::uint64_t>();  // bytes of the list
  return {wide_count, wide.number<std::uint64_t>()};
}

// The offset of an entry's header: among its 64-bit numbers if the 32 bits are not enough.
std::uint64_t wide_offset(ByteReader extra, int numbers_before) {
  constexpr std::uint16_t wide_numbers = 1;
  while (extra.left() > 0) {
    const auto id = extra.number<std::uint16_t>();
    const auto bytes = extra.number<std::uint16_t>();
    if (id == wide_numbers) {
      extra.text(static_cast<std::size_t>(numbers_before) * sizeof(std::uint64_t));
      return extra.number<std::uint64_t>();
    }
    extra.text(bytes);
  }
  extra.context().fail("an entry has no offset");
}

// The offset of the bytes behind an entry's header.
std::size_t place_behind(std::span<const std::byte> archive, std::uint64_t offset,
                         std::string_view name, const FileContext& context) {
  ByteReader header = record_at(archive, offset, "PK\3\4", context);
  header.text(22);  // as in the list
  const auto name_bytes = header.number<std::uint16_t>();
  const auto extra_bytes = header.number<std::uint16_t>();
  context.check(header.text(name_bytes) == name, "the entry {} has another name in its header",
                excerpt(name));
  header.text(extra_bytes);
  return offset + header.place();
}

}  // namespace

std::map<std::string, std::size_t> zip_places(std::span<const std::byte> archive,
                                              const FileContext& context) {
  const List list = list_of(archive, context);
  context.check(list.offset <= archive.size(), "the list of entries is at byte {} of {}",
                list.offset, archive.size());
  ByteReader reader(archive.subspan(list.offset), context);
  std::map<std::string, std::size_t> places;
  for (std::uint64_t k = 0; k < list.count; ++k) {
    context.check(reader.text(4) == "PK\1\2", "entry {} is not in the list", k);
    reader.text(16);  // versions, flags, the method, a time, a checksum
    const auto packed = reader.number<std::uint32_t>();
    const auto bytes = reader.number<std::uint32_t>();
    const auto name_bytes = reader.number<std::uint16_t>();
    const auto extra_bytes = reader.number<std::uint16_t>();
    const auto comment_bytes = reader.number<std::uint16_t>();
    reader.text(8);  // a disk, attributes
    std::uint64_t offset = reader.number<std::uint32_t>();
    const std::string name(reader.text(name_bytes));
    const std::string_view extra = reader.text(extra_bytes);
    reader.text(comment_bytes);
    if (offset == elsewhere) {
      offset = wide_offset({std::as_bytes(std::span(extra)), context},
                           int{packed == elsewhere} + int{bytes == elsewhere});
    }
    places[name] = place_behind(archive, offset, name, context);
  }
  return places;
}

}  // namespace sotto::weights
