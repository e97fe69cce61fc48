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
// evenly spaced over the batch. Otherwise returns false and changes nothing.
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

}  // namespace sotto
