#include "core/tensor_text.h"

#include <numeric>
#include <sstream>

#include "core/half.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

Tensor counting(const Shape& shape) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(values, shape);
}

std::int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n') + 1;
}

}  // namespace

TEST_CASE("a tensor's text has its shape, type and device, and its values in columns") {
  const Tensor x = Tensor::from({1, -2.5, 1e-9, 100, 3, 0.1}, {2, 3}, Dtype::f32);
  CHECK(to_string(x) ==
        "tensor (2, 3) f32 on cpu\n"
        "[[    1,  -2.5, 1e-09],\n"
        " [  100,     3,   0.1]]");
}

TEST_CASE("every type is printed as itself, whatever the strides") {
  CHECK(to_string(counting({2, 3}).transpose(0, 1)) ==
        "tensor (3, 2) i64 on cpu\n[[0, 3],\n [1, 4],\n [2, 5]]");
  CHECK(to_string(Tensor::from(std::vector<std::int64_t>{(1LL << 60) + 1}, {1})) ==
        "tensor (1) i64 on cpu\n[1152921504606846977]");
  for (const Dtype dtype : {Dtype::f64, Dtype::f16, Dtype::bf16})
    CHECK(to_string(Tensor::from({0.5, 2}, {2}, dtype)) ==
          fmt::format("tensor (2) {} on cpu\n[0.5,   2]", name(dtype)));
  CHECK(to_string(Tensor::from({1, 0}, {2}, Dtype::boolean)) ==
        "tensor (2) bool on cpu\n[ true, false]");
  CHECK(to_string(Tensor::from({1, 255}, {2}, Dtype::u8)) == "tensor (2) u8 on cpu\n[  1, 255]");
}

TEST_CASE("numbers without axes, tensors without elements and no tensor have a text") {
  CHECK(to_string(Tensor::from({7}, {}, Dtype::f64)) == "tensor () f64 on cpu\n7");
  CHECK(to_string(Tensor::empty({0})) == "tensor (0) f32 on cpu\n[]");
  CHECK(to_string(Tensor::empty({2, 0})) == "tensor (2, 0) f32 on cpu\n[[],\n []]");
  CHECK(to_string(Tensor()) == "no tensor");
}

TEST_CASE("large tensors are abridged to a screen") {
  CHECK(to_string(counting({1000})) ==
        "tensor (1000) i64 on cpu\n[  0,   1,   2, ..., 997, 998, 999]");
  CHECK(to_string(counting({1, 100})).find("...") == std::string::npos);
  for (const Shape& shape : {Shape{500, 500}, Shape{40, 50, 60}, Shape{9, 9, 9, 9, 9},
                             Shape{7, 8, 9, 8, 7, 8}, Shape{0, 1000}, Shape{3000, 1}}) {
    const std::string text = to_string(counting(shape));
    CAPTURE(text);
    CHECK(lines(text) <= 40);
    CHECK(text.size() <= 3000);
  }
}

TEST_CASE("streams and fmt write the same text") {
  const Tensor x = counting({2, 2});
  std::ostringstream out;
  out << x;
  CHECK(out.str() == to_string(x));
  CHECK(fmt::format("{}", x) == to_string(x));
}

TEST_CASE("streams write shapes, types and devices in words") {
  std::ostringstream out;
  out << Shape{4, 3} << ' ' << Shape{} << ' ' << Dtype::bf16 << ' ' << cpu << ' '
      << counting({2}).dtype();
  CHECK(out.str() == "(4, 3) () bf16 cpu i64");
}
