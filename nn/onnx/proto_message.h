// Messages in the wire format of Protocol Buffers, of which ONNX files consist: a field is a tag,
// 8 number + kind, and an integer (base 128, low digits first), a float, or a length and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sotto::nn::onnx {

class ProtoMessage {
 public:
  void add(int field, std::int64_t value);
  void add(int field, float value);
  void add(int field, std::string_view bytes);
  void add(int field, const ProtoMessage& message) { add(field, std::string_view(message.bytes_)); }
  // The beginning of a field of so many bytes, which the caller writes behind.
  void begin(int field, std::uint64_t size);

  void append(const ProtoMessage& fields) { bytes_ += fields.bytes_; }

  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value);

  std::string bytes_;
};

}  // namespace sotto::nn::onnx
