// File tags: [sanitized]
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "core/random/philox.h"
#include "core/tensor.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Index = std::vector<std::int64_t>;

// 0, 1, 2, ... in row-major order.
Tensor counting(const Shape& shape) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(values, shape);
}

Shape random_shape(PublicRandom& random, int min_rank, int max_rank) {
  Shape shape;
  const auto rank = min_rank + random.below(max_rank - min_rank + 1);
  for (std::int64_t i = 0; i < rank; ++i)
    shape.push_back(random.below(20) == 0 ? 0 : 1 + random.below(4));
  return shape;
}

// Every index of a shape in row-major order.
std::vector<Index> indices(const Shape& shape) {
  std::vector<Index> all;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    Index at(static_cast<std::size_t>(shape.rank()));
    std::int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at[static_cast<std::size_t>(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    all.push_back(at);
  }
  return all;
}

// The element of a view at an index, found by select() only.
std::int64_t element(const Tensor& x, const Index& at) {
  Tensor y = x;
  for (const std::int64_t i : at) y = y.select(0, i);
  return static_cast<std::int64_t>(y.item());
}

// A view after random operations, and its expected elements, row-major.
struct Case {
  Tensor view;
  std::vector<std::int64_t> values;
};

// The case after a view whose element at index i is the previous element at source(i).
template <class F>
Case step(const Case& before, const Tensor& view, F&& source) {
  std::map<Index, std::int64_t> value;
  const auto old = indices(before.view.shape());
  for (std::size_t i = 0; i < old.size(); ++i) value[old[i]] = before.values[i];
  Case after{view, {}};
  for (const Index& at : indices(view.shape())) after.values.push_back(value.at(source(at)));
  return after;
}

Case random_permute(const Case& x, PublicRandom& random) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(x.view.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  random.shuffle(axes);
  return step(x, x.view.permute(Shape(axes)), [&](const Index& at) {
    Index from(at.size());
    for (std::size_t k = 0; k < at.size(); ++k) from[static_cast<std::size_t>(axes[k])] = at[k];
    return from;
  });
}

Case random_slice(const Case& x, PublicRandom& random) {
  const auto axis = static_cast<int>(random.below(x.view.rank()));
  const std::int64_t start = random.below(x.view.size(axis) + 1);
  const std::int64_t stop = start + random.below(x.view.size(axis) - start + 1);
  const std::int64_t by = 1 + random.below(3);
  const int written = random.below(2) == 0 ? axis : axis - x.view.rank();
  return step(x, x.view.slice(written, start, stop, by), [&](Index at) {
    at[static_cast<std::size_t>(axis)] = start + at[static_cast<std::size_t>(axis)] * by;
    return at;
  });
}

Case random_expand(const Case& x, PublicRandom& random) {
  Shape wide = x.view.shape();
  for (int i = 0; i < wide.rank(); ++i) wide[i] = wide[i] == 1 ? random.below(4) : wide[i];
  const bool lead = wide.rank() < max_rank && random.below(2) == 0;
  if (lead) wide.insert(0, 2);
  return step(x, x.view.expand(wide), [&](Index at) {
    if (lead) at.erase(at.begin());
    for (std::size_t i = 0; i < at.size(); ++i) {
      at[i] = x.view.size(static_cast<int>(i)) == 1 ? 0 : at[i];
    }
    return at;
  });
}

Case random_unsqueeze(const Case& x, PublicRandom& random) {
  if (x.view.rank() == max_rank) return x;
  const auto axis = static_cast<int>(random.below(x.view.rank() + 1));
  return step(x, x.view.unsqueeze(axis), [&](Index at) {
    at.erase(at.begin() + axis);
    return at;
  });
}

Case random_view(PublicRandom& random) {
  const Tensor x = counting(random_shape(random, 1, 4));
  Case now{x, x.to_vector<std::int64_t>()};
  for (std::int64_t steps = random.below(4); steps > 0; --steps) {
    const std::int64_t kind = random.below(4);
    now = kind == 0   ? random_permute(now, random)
          : kind == 1 ? random_slice(now, random)
          : kind == 2 ? random_expand(now, random)
                      : random_unsqueeze(now, random);
  }
  return now;
}

// A shape with as many elements: the factors of the size, shuffled and grouped.
Shape random_regrouping(std::int64_t numel, PublicRandom& random) {
  Shape shape;
  while (shape.rank() < max_rank - 1 && random.below(4) > 0) {
    std::int64_t factor = 1 + random.below(4);
    if (numel % factor != 0) factor = 1;
    shape.push_back(factor);
    numel /= factor;
  }
  shape.push_back(numel);
  return shape;
}

// True if strides exist that give the elements of `x` under `shape` without a copy.
bool has_strides(const Tensor& x, const Shape& shape) {
  std::vector<std::int64_t> offsets;
  for_each_offset(x.shape(), x.strides(), [&](std::int64_t o) { offsets.push_back(o); });
  const auto at = indices(shape);
  const Shape steps = contiguous_strides(shape);
  for (std::size_t i = 0; i < at.size(); ++i) {
    std::int64_t expected = offsets[0];
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const std::int64_t k = at[i][static_cast<std::size_t>(axis)];
      if (k > 0) expected += k * (offsets[static_cast<std::size_t>(steps[axis])] - offsets[0]);
    }
    if (offsets[i] != expected) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("views of views hold the elements that indexing says") {
  PublicRandom random(1);
  for (int round = 0; round < 2000; ++round) {
    const Case x = random_view(random);
    CAPTURE(round, to_string(x.view.shape()), to_string(x.view.strides()));
    REQUIRE(x.view.to_vector<std::int64_t>() == x.values);
  }
}

TEST_CASE("select gives the element at an index") {
  PublicRandom random(2);
  for (int round = 0; round < 100; ++round) {
    const Case x = random_view(random);
    const auto all = indices(x.view.shape());
    for (std::size_t i = 0; i < all.size(); i += 7) {
      REQUIRE(element(x.view, all[i]) == x.values[i]);
    }
  }
  CHECK(counting({3, 2}).select(-1, -1).to_vector<std::int64_t>() == Index{1, 3, 5});
}

TEST_CASE("view_as keeps the elements, and returns nullopt only if no strides exist") {
  PublicRandom random(3);
  int views = 0;
  int copies = 0;
  for (int round = 0; round < 5000; ++round) {
    const Case x = random_view(random);
    const Shape shape = random_regrouping(x.view.numel(), random);
    CAPTURE(round, to_string(x.view.shape()), to_string(x.view.strides()), to_string(shape));
    const auto y = x.view.view_as(shape);
    if (x.view.numel() > 0) REQUIRE(y.has_value() == has_strides(x.view, shape));
    if (y) {
      REQUIRE(y->shape() == shape);
      REQUIRE(y->to_vector<std::int64_t>() == x.values);
      CHECK(y->shares_storage(x.view));
    }
    ++(y ? views : copies);
  }
  CHECK(views > 500);
  CHECK(copies > 500);
}

TEST_CASE("view_as fills in one open size") {
  CHECK(counting({4, 6}).view_as({3, -1})->shape() == Shape{3, 8});
  CHECK(counting({4, 6}).view_as({-1})->shape() == Shape{24});
  CHECK(Tensor::empty({0, 3}).view_as({-1, 3})->shape() == Shape{0, 3});
  CHECK(counting({1}).view_as({})->item() == 0);
  CHECK(throws(
      [] {
        counting({4, 6}).view_as({5, -1});
      },
      "reshape: 24 elements do not fill (5, -1)"));
  CHECK(throws(
      [] {
        counting({4, 6}).view_as({-1, -1});
      },
      "reshape: more than one -1 in (-1, -1)"));
  CHECK(throws([] { counting({4, 6}).view_as({-2, -12}); }, "reshape: negative size in (-2, -12)"));
  CHECK(throws([] { Tensor::empty({0, 3}).view_as({0, -1}); }, "reshape: 0 elements do not fill"));
}

TEST_CASE("contiguous() and is_dense() agree with the offsets") {
  PublicRandom random(4);
  for (int round = 0; round < 2000; ++round) {
    const Tensor x = random_view(random).view;
    if (x.numel() == 0) continue;
    std::vector<std::int64_t> offsets;
    for_each_offset(x.shape(), x.strides(), [&](std::int64_t o) { offsets.push_back(o); });
    Index row_major(offsets.size());
    std::iota(row_major.begin(), row_major.end(), 0);
    CAPTURE(to_string(x.shape()), to_string(x.strides()));
    REQUIRE(x.contiguous() == (offsets == row_major));
    std::sort(offsets.begin(), offsets.end());
    REQUIRE(x.is_dense() == (offsets == row_major));
  }
}

TEST_CASE("a tensor laid out channels-last has the strides of its memory order") {
  const Tensor x = Tensor::empty_ordered({2, 3, 4, 5}, {0, 2, 3, 1}, Dtype::f32, cpu);
  CHECK(x.strides() == Shape{60, 1, 15, 3});
  CHECK(x.memory_order() == Shape{0, 2, 3, 1});
  CHECK(x.is_dense());
  CHECK_FALSE(x.contiguous());
  CHECK(x.permute({0, 2, 3, 1}).contiguous());
}

TEST_CASE("transpose, squeeze and expand at fixed places") {
  const Tensor x = counting({2, 3});
  CHECK(x.transpose(0, -1).to_vector<std::int64_t>() == Index{0, 3, 1, 4, 2, 5});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 1});
  CHECK(x.unsqueeze(1).squeeze(-2).shape() == Shape{2, 3});
  CHECK(x.expand({2, 2, 3}).to_vector<std::int64_t>() == Index{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(counting({2, 1}).expand({2, 3}).strides() == Shape{1, 0});
}

TEST_CASE("from converts a list of numbers to every dtype") {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32,
                            Dtype::u8, Dtype::boolean}) {
    const Tensor x = Tensor::from({0, 1, 1, 0}, {2, 2}, dtype);
    CHECK(x.dtype() == dtype);
    CHECK(x.select(0, 0).select(0, 1).item() == 1);
    CHECK(x.bytes() == 4 * size_of(dtype));
  }
  CHECK(Tensor::from({2.5}, {}, Dtype::f16).item() == 2.5);
}

TEST_CASE("errors name the call and the values") {
  const Tensor x = counting({2, 3});
  CHECK(throws([&] { x.permute({0, 0}); }, "permute: axes (0, 0) name an axis twice"));
  CHECK(throws([&] { x.permute({0}); }, "permute: axes (0) for the shape (2, 3)"));
  CHECK(throws([&] { x.size(2); }, "size: axis 2 of a tensor with 2 axes"));
  CHECK(throws([&] { x.size(-3); }, "size: axis -3 of a tensor with 2 axes"));
  CHECK(throws([&] { x.slice(1, 2, 4); }, "slice: 2:4:1 of axis 1 in (2, 3)"));
  CHECK(throws([&] { x.slice(1, 0, 2, 0); }, "slice: 0:2:0 of axis 1 in (2, 3)"));
  CHECK(throws([&] { x.select(0, 2); }, "select: index 2 of axis 0 in (2, 3)"));
  CHECK(throws([&] { x.select(0, -3); }, "select: index -3 of axis 0 in (2, 3)"));
  CHECK(throws([&] { x.squeeze(0); }, "squeeze: axis 0 of (2, 3) does not have size 1"));
  CHECK(throws([&] { x.expand({3, 3}); }, "expand: shapes do not broadcast: (2, 3) and (3, 3)"));
  CHECK(throws([&] { x.expand({3}); }, "expand: (2, 3) does not broadcast to (3)"));
  CHECK(throws([&] { x.item(); }, "item: 6 elements in a tensor of shape (2, 3)"));
  CHECK(throws([&] { x.data<float>(); }, "tensor: elements are i64, but f32 was requested"));
  CHECK(throws([] { Tensor().item(); }, "item:"));
  CHECK(throws([] { Tensor().device(); }, "tensor: not defined"));
  CHECK(throws([] { Tensor::empty({2, -1}); }, "tensor: negative size in (2, -1)"));
  CHECK(throws([] { counting({1, 1, 1, 1, 1, 1}).unsqueeze(0); }, "more than 6 axes"));
  CHECK(throws(
      [] {
        Tensor::from({1, 2}, {3}, Dtype::f32);
      },
      "tensor: 2 values for the shape (3)"));
  CHECK(throws([] { Shape{1, 1, 1, 1, 1, 1, 1}; }, "shape: 7 axes where at most 6 are supported"));
}

TEST_CASE("a shape whose bytes or strides pass 2^63 is refused") {
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  CHECK(throws(
      [] {
        Tensor::empty({huge, huge});
      },
      "tensor: too many elements in (1099511627776, 1099511627776)"));
  CHECK(throws([] { Tensor::empty({0, huge, huge}); }, "tensor: too many elements"));
  CHECK(throws([] { Tensor::empty({std::int64_t{1} << 60}, Dtype::f64); }, "too many elements"));
  CHECK(checked_bytes({3, 0, 5}, 4) == 0);
  CHECK(checked_bytes({3, 5}, 4) == 60);
}

TEST_CASE("shapes broadcast as aligned at the right") {
  CHECK(broadcast_shapes("add", {2, 1, 3}, {4, 1}) == Shape{2, 4, 3});
  CHECK(broadcast_shapes("add", {}, {4, 1}) == Shape{4, 1});
  CHECK(broadcast_shapes("add", {0}, {1}) == Shape{0});
  CHECK(throws([] { broadcast_shapes("add", {2}, {3}); },
               "add: shapes do not broadcast: (2) and (3)"));
}

TEST_CASE("elements are found by index, from either end") {
  const Tensor x = counting({2, 3, 4});
  for (const std::int64_t i : {0, 1}) {
    for (const std::int64_t j : {0, 1, 2}) {
      CHECK(x.at({i, j, 2}) == static_cast<double>(12 * i + 4 * j + 2));
      CHECK(x.at({i - 2, j - 3, -2}) == x.at({i, j, 2}));
      CHECK(x[i][j][2].item() == x.at({i, j, 2}));
      CHECK(x.transpose(0, 2).at({2, j, i}) == x.at({i, j, 2}));
    }
  }
  CHECK(x[-1].shape() == Shape{3, 4});
  CHECK(x[1].shares_storage(x));
  CHECK(Tensor::from({5}, {}, Dtype::f32).at({}) == 5);
}

TEST_CASE("an index that does not fit is refused with the shape") {
  const Tensor x = counting({2, 3});
  CHECK(throws([&] { x.at({1}); }, "at: indices (1) in a tensor of shape (2, 3)"));
  CHECK(throws([&] { x.at({1, 3}); }, "index 3 of axis 0 in (3)"));
  CHECK(throws([&] { x[2]; }, "index 2 of axis 0 in (2, 3)"));
  CHECK(throws([&] { x[0][0][0]; }, "tensor: index 0 of a tensor of shape ()"));
  CHECK(throws([&] { Tensor().at({}); }, "at: indices ()"));
  CHECK(throws([&] { x.item(); }, "item: 6 elements in a tensor of shape (2, 3)"));
}
