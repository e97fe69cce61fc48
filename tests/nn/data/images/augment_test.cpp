#include "nn/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "tests/support/catch.h"

#include "core/random/philox.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor pictures(std::int64_t n, std::int64_t c = 3, std::int64_t h = 6, std::int64_t w = 8) {
  Tensor x = Tensor::empty({n, c, h, w});
  for (std::int64_t k = 0; k < x.numel(); ++k) {
    x.data<float>()[k] = uniform_float({3, 4}, static_cast<std::uint64_t>(k));
  }
  return x;
}

std::vector<std::int64_t> numbers(std::int64_t n, std::int64_t first = 0) {
  std::vector<std::int64_t> y(static_cast<std::size_t>(n));
  std::iota(y.begin(), y.end(), first);
  return y;
}

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

const Augmentation everything{.shift = 2,
                              .flip = true,
                              .brightness = 0.3,
                              .contrast = 0.3,
                              .saturation = 0.3,
                              .cutout = 3,
                              .mixup = 0.4};

}  // namespace

TEST_CASE("without options a view is the picture") {
  const Tensor x = pictures(3);
  const Tensor y = augment(x, numbers(3), {}, {.seed = 1, .count = 2});
  CHECK(y.shape() == Shape{6, 3, 6, 8});
  for (std::int64_t row = 0; row < 6; ++row) CHECK(values(y[row]) == values(x[row / 2]));
}

TEST_CASE("a view depends on its picture, the seed, the record and the view alone") {
  const Tensor x = pictures(5);
  const std::vector<std::int64_t> records{7, 3, 900, 4, 11};
  const Tensor all = augment(x, records, everything, {.seed = 9, .first = 20, .count = 4});
  for (std::int64_t k = 0; k < 5; ++k) {
    const std::vector<std::int64_t> record{records[static_cast<std::size_t>(k)]};
    for (std::int64_t view = 0; view < 4; ++view) {
      const Tensor one =
          augment(x.slice(0, k, k + 1), record, everything, {.seed = 9, .first = 20 + view});
      REQUIRE(values(one[0]) == values(all[4 * k + view]));
    }
  }
  const Tensor one = x.slice(0, 0, 1);
  const auto view = [&](std::uint64_t seed, std::int64_t record, std::int64_t number) {
    return values(augment(one, std::vector{record}, everything, {.seed = seed, .first = number}));
  };
  CHECK(view(1, 2, 3) == view(1, 2, 3));
  CHECK(view(1, 2, 3) != view(2, 2, 3));
  CHECK(view(1, 2, 3) != view(1, 3, 3));
  CHECK(view(1, 2, 3) != view(1, 2, 4));
}

TEST_CASE("views asked for one by one are those of their numbers, whatever lies beside them") {
  const Tensor x = pictures(4);
  const std::vector<RecordView> asked{{7, 20}, {3, 22}, {900, 20}, {7, 21}};
  const Tensor all = augment_each(x, asked, everything, 9);
  for (std::int64_t k = 0; k < 4; ++k) {
    const auto [record, view] = asked[static_cast<std::size_t>(k)];
    const Tensor one =
        augment(x.slice(0, k, k + 1), std::vector{record}, everything, {.seed = 9, .first = view});
    CHECK(values(all[k]) == values(one[0]));
  }
  CHECK(
      throws([&] { augment_each(x, std::vector<RecordView>(3), {}); }, "4 pictures, numbers of 3"));
  const auto refused = [&](const RecordView& of, const char* why) {
    return throws([&] { augment_each(x.slice(0, 0, 1), std::vector{of}, {}); }, why);
  };
  CHECK(refused({-1, 0}, "record -1"));
  CHECK(refused({0, -1}, "view -1"));
  CHECK(refused({0, std::int64_t{1} << 48}, "view 281474976710656"));
}

TEST_CASE("shifts and flips move pixels and reflect the border") {
  Tensor x = Tensor::empty({1, 1, 3, 4});
  for (int k = 0; k < 12; ++k) x.data<float>()[k] = static_cast<float>(k);
  const Tensor y = augment(x, numbers(1), {.shift = 2, .flip = true}, {.count = 2000});
  const auto reflected = [](std::int64_t at, std::int64_t size) {
    return at < 0 ? -at : at < size ? at : 2 * (size - 1) - at;
  };
  std::set<std::vector<float>> expected, got;
  for (const bool flip : {false, true}) {
    for (std::int64_t down = -2; down <= 2; ++down) {
      for (std::int64_t right = -2; right <= 2; ++right) {
        std::vector<float> picture;
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < 4; ++j) {
            const std::int64_t column = flip ? 3 - j : j;
            picture.push_back(
                static_cast<float>(4 * reflected(i - down, 3) + reflected(column - right, 4)));
          }
        }
        expected.insert(picture);
      }
    }
  }
  for (std::int64_t view = 0; view < 2000; ++view) got.insert(values(y[view]));
  CHECK(got == expected);
}

TEST_CASE("a cutout replaces a square by the channel's mean and nothing else") {
  const Tensor x = pictures(1, 2, 9, 9);
  const Tensor y = augment(x, numbers(1), {.cutout = 3}, {.count = 50});
  std::set<std::int64_t> sizes;
  for (std::int64_t view = 0; view < 50; ++view) {
    for (std::int64_t channel = 0; channel < 2; ++channel) {
      const std::vector<float> before = values(x[0][channel]), after = values(y[view][channel]);
      const double mean = std::accumulate(before.begin(), before.end(), 0.0) / 81;
      std::int64_t changed = 0;
      for (std::size_t k = 0; k < before.size(); ++k) {
        if (before[k] == after[k]) continue;
        ++changed;
        CHECK(static_cast<double>(after[k]) == Approx(mean));
      }
      sizes.insert(changed);
    }
  }
  CHECK(sizes == std::set<std::int64_t>{4, 6, 9});
}

TEST_CASE("colours change by factors and stay in their range") {
  Tensor x = Tensor::empty({1, 3, 1, 2});
  std::copy_n(std::vector<float>{0.2f, 0.4f, 0.3f, 0.6f, 0.1f, 0.2f}.begin(), 6, x.data<float>());
  const Tensor bright = augment(x, numbers(1), {.brightness = 0.5}, {.count = 200});
  const Tensor contrast = augment(x, numbers(1), {.contrast = 0.5}, {.count = 200});
  const Tensor saturated = augment(x, numbers(1), {.saturation = 0.5}, {.count = 200});
  for (std::int64_t view = 0; view < 200; ++view) {
    const std::vector<float> b = values(bright[view]);
    CHECK(static_cast<double>(b[3] / b[0]) == Approx(3).epsilon(1e-5));
    CHECK((b[0] >= 0.1f && b[0] <= 0.3f));
    const std::vector<float> c = values(contrast[view]);
    CHECK(std::accumulate(c.begin(), c.end(), 0.0) == Approx(1.8));
    const std::vector<float> s = values(saturated[view]);
    CHECK(0.299 * s[0] + 0.587 * s[2] + 0.114 * s[4] ==
          Approx(0.299 * 0.2 + 0.587 * 0.3 + 0.114 * 0.1).epsilon(1e-5));
  }
  const std::vector<float> all =
      values(augment(pictures(20), numbers(20), everything, {.count = 5}));
  CHECK(*std::min_element(all.begin(), all.end()) >= 0);
  CHECK(*std::max_element(all.begin(), all.end()) <= 1);
}

TEST_CASE("mixup stays within one picture's views, with the moments of Beta") {
  // A picture of 0 on the left and 1 on the right: flips make both, and a mixture is a share.
  Tensor x = Tensor::empty({1, 1, 1, 2});
  x.data<float>()[0] = 0;
  x.data<float>()[1] = 1;
  constexpr std::int64_t count = 20000;
  const std::vector<float> y =
      values(augment(x, numbers(1), {.flip = true, .mixup = 0.5}, {.count = count}));
  double sum = 0, squares = 0, mixed = 0;
  for (std::size_t view = 0; view < count; ++view) {
    const double left = static_cast<double>(y[2 * view]),
                 right = static_cast<double>(y[2 * view + 1]);
    REQUIRE(left + right == Approx(1).epsilon(1e-5));
    sum += left;
    squares += (left - 0.5) * (left - 0.5);
    mixed += left != 0 && left != 1;
  }
  // Half of the pairs have two ways up; of them the share has variance 1 / (4 (2 alpha + 1)) = 1/8.
  CHECK(sum / count == Approx(0.5).margin(0.015));
  CHECK(mixed / count == Approx(0.5).margin(0.03));
  CHECK(squares / count == Approx(0.5 * 0.25 + 0.5 * 0.125).margin(0.01));
}

TEST_CASE("options and numbers out of range are refused") {
  const Tensor x = pictures(2);
  const auto refused = [&](const Augmentation& options, const std::string& why) {
    return throws([&] { augment(x, numbers(2), options); }, why);
  };
  CHECK(refused({.shift = 6}, "augment: a shift of 6 pixels of pictures (2, 3, 6, 8)"));
  CHECK(refused({.shift = -1}, "a shift of -1"));
  CHECK(refused({.brightness = 1.5}, "by 1.5 is not in [0, 1]"));
  CHECK(refused({.contrast = std::nan("")}, "by nan"));
  CHECK(refused({.cutout = -2}, "cutout of -2"));
  CHECK(refused({.mixup = 1.1}, "mixup of 1.1"));
  CHECK(refused({.mixup = 1e-9}, "mixup of 1e-09"));
  CHECK(throws([&] { augment(pictures(2, 1), numbers(2), {.saturation = 0.1}); },
               "without red, green and blue"));
  CHECK(throws([&] { augment(x, numbers(3), {}); }, "2 pictures, numbers of 3 records"));
  CHECK(throws([&] { augment(x, numbers(2, -1), {}); }, "record -1"));
  CHECK(throws([&] { augment(x, numbers(2), {}, {.count = 0}); }, "views 0 to 0 + 0"));
  CHECK(throws([&] { augment(x[0], numbers(3), {}); }, "[n, c, h, w] f32"));
  CHECK(augment(pictures(0), {}, everything).size(0) == 0);
}
