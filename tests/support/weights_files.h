// Files of weights as other programs write them: safetensors and GGUF, made of what a test gives,
// right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/weights/weights_formats.h"

// The bytes of numbers, one after the other.
template <class... T>
std::string bytes_of(const T&... values) {
  std::string y;
  (y.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return y;
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string safetensors_file(const std::string& header, const std::string& data = "") {
  return bytes_of(std::uint64_t{header.size()}) + header + data;
}

// A GGUF file. The numbers of types are those of ggml.
struct GgufFile {
  static constexpr std::uint32_t u8 = 0, u32 = 4, f32 = 6, boolean = 7, text = 8, array = 9;

  std::uint32_t version = 3;
  std::vector<std::string> keys = {};     // from key() and text_key()
  std::vector<std::string> tensors = {};  // from add()
  std::string data = {};
  std::uint64_t alignment = 32;

  static std::string text_of(const std::string& value) {
    return bytes_of(std::uint64_t{value.size()}) + value;
  }
  // A key with a value, which is given as bytes.
  void key(const std::string& name, std::uint32_t type, const std::string& value) {
    keys.push_back(text_of(name) + bytes_of(type) + value);
  }
  void text_key(const std::string& name, const std::string& value) {
    key(name, text, text_of(value));
  }
  // A tensor whose sizes are row-major, as ours, at the next aligned place.
  void add(const std::string& name, std::uint32_t type, std::vector<std::uint64_t> sizes,
           const std::string& elements) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    add_at(name, type, std::move(sizes), data.size());
    data += elements;
  }
  void add_at(const std::string& name, std::uint32_t type, std::vector<std::uint64_t> sizes,
              std::uint64_t offset) {
    const std::vector<std::uint64_t> reversed(sizes.rbegin(), sizes.rend());
    tensors.push_back(text_of(name) + bytes_of(static_cast<std::uint32_t>(sizes.size())) +
                      bytes_of(reversed) + bytes_of(type, offset));
  }
  std::string bytes() const {
    std::string y =
        "GGUF" + bytes_of(version, std::uint64_t{tensors.size()}, std::uint64_t{keys.size()});
    for (const auto* parts : {&keys, &tensors})
      for (const std::string& part : *parts) y += part;
    y.resize((y.size() + alignment - 1) / alignment * alignment);
    return y + data;
  }
};

// The weights in a file of these bytes, called "FILE" in errors. The block has no byte more, so
// that sanitizers see each read beyond.
inline sotto::WeightsFile weights_in(const std::string& bytes) {
  const std::shared_ptr<void> block(::operator new (bytes.size(), std::align_val_t{64}),
                                    [](void* p) { ::operator delete (p, std::align_val_t{64}); });
  std::memcpy(block.get(), bytes.data(), bytes.size());
  auto contents = sotto::weights::read_file(sotto::MappedFile(block, bytes.size()), "FILE");
  return {"FILE", std::make_shared<sotto::WeightsFile::Contents>(std::move(contents))};
}
