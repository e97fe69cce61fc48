// A kernel's view of a tensor: address, element type, sizes and strides. It owns nothing, and
// device code can include this header.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace sotto {

// Elements that somebody else owns, as kernels see them.
struct View {
  void* data = nullptr;         // the first element, on its device
  Dtype dtype = Dtype::f32;     // of the elements
  int rank = 0;                 // number of axes, at most 6
  std::int64_t size[6] = {};    // of the axes
  std::int64_t stride[6] = {};  // in elements; 0 repeats the element

  // The first element; T must be the type.
  template <class T>
  HD T* as() const {
    return static_cast<T*>(data);
  }
  HD std::int64_t numel() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= size[i];
    return product;
  }
  // True if the view is row-major without gaps.
  bool contiguous() const {
    std::int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (size[i] != 1 && stride[i] != expected) return false;
      expected *= size[i];
    }
    return true;
  }
};

}  // namespace sotto
