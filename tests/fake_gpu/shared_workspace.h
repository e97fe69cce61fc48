// The workspace of the products of a pretended GPU, through the lock of a real one's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/library_workspace.h"
#include "kernels/host_device/geometry.h"
#include "tests/fake_gpu/host_executor.h"

namespace sotto {

class SharedWorkspace {
 public:
  // Asks for y = f(y) in two launches, as a library for a product whose sum is split: the first
  // leaves the result in the workspace, the second takes it from there. Other threads may go on in
  // between.
  void product(Backend& engine, const View& y, const std::function<void(const View& y)>& f,
               const OnLaunch& ask) {
    shared_.use([&](void* data) {
      auto& bytes = *static_cast<std::vector<char>*>(data);
      ask(
          [&engine, &bytes, y, f] {
            const View partial = in(bytes, y);
            engine.copy(y, partial);
            f(partial);
          },
          Asked::launch);
      std::this_thread::yield();
      ask([&engine, &bytes, y] { engine.copy(in(bytes, y), y); }, Asked::further_launch);
    });
  }

 private:
  // A view like y, in the workspace and row-major.
  static View in(std::vector<char>& bytes, const View& y) {
    const std::size_t wanted = static_cast<std::size_t>(y.numel()) * size_of(y.dtype);
    bytes.resize(std::max(bytes.size(), wanted));
    View partial = in_order(y, false);
    partial.data = bytes.data();
    return partial;
  }

  std::vector<char> bytes_;
  LibraryWorkspace shared_{&bytes_};
};

}  // namespace sotto
