// Rearranges operands of products: transposition, and a batch as one product.
#pragma once

#include <utility>

#include "core/view.h"

namespace sotto {

// x with its last two axes exchanged.
inline View transposed(View x) {
  std::swap(x.size[x.rank - 2], x.size[x.rank - 1]);
  std::swap(x.stride[x.rank - 2], x.stride[x.rank - 1]);
  return x;
}

// The first item of a batch.
inline View first_item(View v) {
  if (v.rank == 2) return v;
  v.rank = 2;
  for (int axis = 0; axis < 2; ++axis) {
    v.size[axis] = v.size[axis + 1];
    v.stride[axis] = v.stride[axis + 1];
  }
  return v;
}

// Turns c = a b of all items into one product if they share b, and the rows of a and of c are
// evenly spaced over the batch. Otherwise returns false.
inline bool fold_batch(View& a, View& b, View& c) {
  const auto follows = [](const View& v) {
    return v.rank == 3 && v.stride[0] == v.size[1] * v.stride[1];
  };
  const bool shared = b.rank == 2 || b.stride[0] == 0;
  if (!shared || !follows(a) || !follows(c)) return false;
  const std::int64_t items = a.size[0];
  a = first_item(a);
  b = first_item(b);
  c = first_item(c);
  a.size[0] *= items;
  c.size[0] *= items;
  return true;
}

// Items that one call of a library may have: some kernels count them in a grid's third axis.
inline constexpr std::int64_t max_batch = 65535;

// Calls f(a, b, c) for the product c = a b, or for parts of at most max_batch items of its batch.
template <class F>
void for_parts_of_batch(const View& a, const View& b, const View& c, F f) {
  const std::int64_t items = c.rank == 3 ? c.size[0] : 1;
  if (items <= max_batch) return f(a, b, c);
  for (std::int64_t first = 0; first < items; first += max_batch) {
    const auto part = [&](View v) {
      if (v.rank < 3) return v;
      v.data = v.as<char>() + first * v.stride[0] * static_cast<std::int64_t>(size_of(v.dtype));
      v.size[0] = items - first < max_batch ? items - first : max_batch;
      return v;
    };
    f(part(a), part(b), part(c));
  }
}

}  // namespace sotto
