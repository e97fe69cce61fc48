#include "core/ranks/operation.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/xxh64.h"

namespace sotto {

namespace {

std::uint64_t digest_of(std::string_view place) {
  return xxh64(std::as_bytes(std::span(place.data(), place.size())));
}

}  // namespace

std::string_view name(NoticeKind kind) {
  constexpr std::string_view names[] = {"exchange", "all_gather", "broadcast", "scatter",
                                        "gather",   "heartbeat",  "failure",   "end"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<std::byte> write_notice(const NoticeHead& head, std::string_view text) {
  text = text.substr(0, Link::max_notice_bytes - sizeof head);
  std::vector<std::byte> bytes(sizeof head + text.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(bytes.data()) + sizeof head);
  return bytes;
}

ReadNotice read_notice(Ranks::Bytes bytes) {
  if (bytes.size() < sizeof(NoticeHead)) throw SystemFailure("ranks: a notice is cut off");
  ReadNotice notice;
  std::memcpy(&notice.head, bytes.data(), sizeof notice.head);
  const auto text = bytes.subspan(sizeof notice.head);
  notice.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return notice;
}

Operation::Operation(NoticeKind kind, std::string_view place, int ranks)
    : kind(kind), place(place), digest(digest_of(place)), parts(static_cast<std::size_t>(ranks)) {}

std::string Operation::text() const {
  return fmt::format("operation {}, {} \"{}\"", number, name(kind), place);
}

}  // namespace sotto
