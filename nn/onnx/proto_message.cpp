#include "nn/onnx/proto_message.h"

#include <bit>

namespace sotto::nn::onnx {

namespace {

enum Kind : std::uint64_t { integer = 0, length = 2, fixed32 = 5 };

std::uint64_t tag(int field, Kind kind) { return static_cast<std::uint64_t>(field) << 3U | kind; }

}  // namespace

void ProtoMessage::varint(std::uint64_t value) {
  constexpr std::uint64_t base = 128;
  for (; value >= base; value /= base) bytes_.push_back(static_cast<char>(value % base + base));
  bytes_.push_back(static_cast<char>(value));
}

void ProtoMessage::add(int field, std::int64_t value) {
  varint(tag(field, integer));
  varint(static_cast<std::uint64_t>(value));
}

void ProtoMessage::add(int field, float value) {
  varint(tag(field, fixed32));
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(value), i = 0; i < sizeof bits; ++i)
    bytes_.push_back(static_cast<char>(bits >> (8 * i) & 0xffU));
}

void ProtoMessage::add(int field, std::string_view bytes) {
  begin(field, bytes.size());
  bytes_.append(bytes);
}

void ProtoMessage::begin(int field, std::uint64_t size) {
  varint(tag(field, length));
  varint(size);
}

}  // namespace sotto::nn::onnx
