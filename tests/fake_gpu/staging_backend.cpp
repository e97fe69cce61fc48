#include "tests/fake_gpu/staging_backend.h"

#include <algorithm>
#include <vector>

#include "core/cuda/cuda_library.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

namespace {

// Bytes from the first element to the last.
std::size_t span_bytes(const View& v) {
  if (v.numel() == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < v.rank; ++i) last += (v.size[i] - 1) * v.stride[i];
  return static_cast<std::size_t>(last + 1) * size_of(v.dtype);
}

}  // namespace

View Stage::operator()(const View& host) {
  View there = host;
  if (!host.data) return there;
  const std::size_t bytes = span_bytes(host);
  const auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return piece.host == host.data && piece.storage.bytes() == bytes;
  });
  if (found != pieces_.end()) {
    there.data = found->storage.data();
    return there;
  }
  Piece& piece = pieces_.emplace_back(host.data, bytes, device_);
  copy_bytes(piece.storage.data(), device_, host.data, cpu, bytes);
  there.data = piece.storage.data();
  return there;
}

Stage::~Stage() noexcept(false) {
  for (const Piece& piece : pieces_) {
    copy_bytes(piece.host, cpu, piece.storage.data(), device_, piece.storage.bytes());
  }
}

void StagedBackend::update(std::span<const UpdateArray> arrays, View faults) {
  run([&](Stage& stage) {
    std::vector<UpdateArray> there(arrays.begin(), arrays.end());
    for (UpdateArray& array : there) {
      const auto move = [&](void* host, Dtype dtype) {
        return stage({host, dtype, 1, {array.count}, {1}}).data;
      };
      array.value = move(array.value, array.dtype);
      array.gradient = move(array.gradient, array.dtype);
      for (void*& state : array.state) state = move(state, array.dtype);
      void* const noise = const_cast<std::int64_t*>(array.noise);
      array.noise = static_cast<const std::int64_t*>(move(noise, Dtype::i64));
    }
    on().update(there, stage(faults));
  });
}

}  // namespace sotto
