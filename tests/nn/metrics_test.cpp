#include "nn/metrics.h"

#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"

#include "core/random/philox.h"
#include "nn/predict.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor labels(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {std::ssize(values)});
}

// Scores of few values, so that many are equal.
Tensor random_scores(const Shape& shape, PublicRandom& random) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.below(7)) / 2 - 1;
  return Tensor::from(values, shape);
}

Tensor random_labels(std::int64_t n, std::int64_t classes, PublicRandom& random) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  for (std::int64_t& value : values) value = random.below(classes);
  return labels(values);
}

// Four rows: the largest outputs are classes 2, 0, 1, 1.
const Tensor outputs = Tensor::from({1, 2, 3, 3, 1, 2, 0, 4, 4, 1, 3, 2}, {4, 3}, Dtype::f32);

}  // namespace

TEST_CASE("top-k accuracy counts targets among the k largest, equal ones in order") {
  const Tensor targets = labels({2, 1, 2, 0});
  CHECK(nn::top_k_accuracy(outputs, targets, 1) == 0.25);
  CHECK(nn::top_k_accuracy(outputs, targets, 2) == 0.5);
  CHECK(nn::top_k_accuracy(outputs, targets, 3) == 1);
}

TEST_CASE("top-1 accuracy is the accuracy, and top-k of all classes is 1") {
  PublicRandom random(1);
  const Tensor x = random_scores({50, 4}, random), y = random_labels(50, 4, random);
  CHECK(nn::top_k_accuracy(x, y, 1) == nn::accuracy(x, y));
  CHECK(nn::top_k_accuracy(x, y, 4) == 1);
}

TEST_CASE("a confusion matrix has targets in rows and predictions in columns") {
  const Tensor confusion = nn::confusion_matrix(outputs, labels({2, 1, 2, 1}));
  CHECK(confusion.shape() == Shape{3, 3});
  CHECK(confusion.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 0, 1, 1, 0, 0, 1, 1});
}

TEST_CASE("F1 is the harmonic mean of precision and recall") {
  // Class 1: 3 found of 5, with 1 false. Class 0: 7 of 8, with 2 false.
  const Tensor confusion = Tensor::from(std::vector<std::int64_t>{7, 1, 2, 3}, {2, 2});
  const double precision = 3.0 / 4, recall = 3.0 / 5;
  const std::vector<double> scores = nn::f1_scores(confusion);
  CHECK(scores[1] == Approx(2 * precision * recall / (precision + recall)));
  CHECK(scores[0] == Approx(14.0 / 17));
  CHECK(nn::macro_f1(confusion) == Approx((scores[0] + scores[1]) / 2));
}

TEST_CASE("a class that is neither a target nor predicted does not count in macro F1") {
  const Tensor confusion =
      Tensor::from(std::vector<std::int64_t>{1, 0, 0, 0, 0, 0, 1, 0, 2}, {3, 3});
  CHECK(nn::f1_scores(confusion)[1] == 0);
  CHECK(nn::macro_f1(confusion) == Approx((2.0 / 3 + 4.0 / 5) / 2));
}

TEST_CASE("AUC is the fraction of pairs in order, ties half") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PublicRandom random(seed);
    const Tensor x = random_scores({40}, random);
    std::vector<std::int64_t> y = random_labels(40, 2, random).to_vector<std::int64_t>();
    y[0] = 0;
    y[1] = 1;
    const std::vector<float> score = x.to_vector<float>();
    double sum = 0, pairs = 0;
    for (std::size_t a = 0; a < y.size(); ++a) {
      for (std::size_t b = 0; b < y.size(); ++b) {
        if (y[a] != 1 || y[b] != 0) continue;
        sum += score[a] > score[b] ? 1 : score[a] == score[b] ? 0.5 : 0;
        ++pairs;
      }
    }
    CHECK(nn::auc(x, labels(y)) == Approx(sum / pairs));
  }
}

TEST_CASE("AUC takes one score, or the outputs of two classes") {
  const Tensor two = Tensor::from({0, 1, 2, 1, 0, 3, 1, 1}, {4, 2}, Dtype::f32);
  const Tensor one = Tensor::from({1, -1, 3, 0}, {4, 1}, Dtype::f32);
  const Tensor y = labels({1, 1, 0, 0});
  CHECK(nn::auc(two, y) == 0.25);
  CHECK(nn::auc(one, y) == 0.25);
}

TEST_CASE("predictions are binned by their confidence") {
  // Confidences 0.75, 0.75 and 0.5; correct are the first and the third.
  const auto log3 = std::log(3.0);
  const Tensor x = Tensor::from({log3, 0, 0, log3, 5, 5}, {3, 2}, Dtype::f64);
  const auto curve = nn::calibration_curve(x, labels({0, 0, 0}), 5);
  REQUIRE(curve.size() == 5);
  CHECK(curve[0].count + curve[1].count + curve[4].count == 0);
  CHECK(curve[2].count == 1);
  CHECK(curve[2].confidence == Approx(0.5));
  CHECK(curve[2].accuracy == 1);
  CHECK(curve[3].count == 2);
  CHECK(curve[3].confidence == Approx(0.75));
  CHECK(curve[3].accuracy == 0.5);
  CHECK(nn::expected_calibration_error(curve) == Approx((0.5 + 2 * 0.25) / 3));
}

TEST_CASE("perplexity is that of a uniform guess, and invariant to a shift of a row") {
  const Tensor uniform = Tensor::from(std::vector<float>(24, 1000), {2, 3, 4});
  const Tensor targets = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 0, 1}, {2, 3});
  CHECK(nn::perplexity(uniform, targets) == Approx(4));
  // Probabilities 1/2 and 1/8: exp((log 2 + log 8) / 2).
  const Tensor x = Tensor::from({std::log(1.0), 0, std::log(7.0), 0}, {2, 2}, Dtype::f64);
  CHECK(nn::perplexity(x, labels({0, 1})) == Approx(4));
}

TEST_CASE("the mean squared error is that of all elements, whatever the type") {
  const Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2}, Dtype::bf16);
  const Tensor y = Tensor::from({1, 0, 3, 1}, {2, 2}, Dtype::f32);
  CHECK(nn::mean_squared_error(x, y) == Approx(13.0 / 4));
}

TEST_CASE("metrics refuse other shapes, types and values, and name them") {
  const Tensor y = labels({0, 1, 2, 0});
  CHECK(throws([&] { nn::top_k_accuracy(outputs, y, 4); }, "the 4 largest of 3 classes"));
  CHECK(throws(
      [&] {
        nn::confusion_matrix(outputs, labels({0, 1, 3, 0}));
      },
      "confusion_matrix: target 3 of 3 classes"));
  CHECK(throws([&] { nn::perplexity(outputs, labels({0, 1})); }, "perplexity: outputs (4, 3)"));
  CHECK(throws([&] { nn::perplexity(outputs, outputs); }, "perplexity: outputs (4, 3)"));
  CHECK(throws([&] { nn::perplexity(y, labels({0})); }, "perplexity: (4) i64"));
  CHECK(throws(
      [&] {
        nn::perplexity(Tensor::from({NAN, 0}, {1, 2}, Dtype::f32), labels({0}));
      },
      "perplexity: element 0 is nan"));
  CHECK(throws(
      [&] {
        nn::auc(Tensor::from({1, 2}, {2}, Dtype::f32), labels({1, 1}));
      },
      "auc: 2 labels of class 1 and 0 of class 0"));
  CHECK(throws([&] { nn::auc(outputs, y); }, "auc: scores (4, 3)"));
  CHECK(throws(
      [&] {
        nn::auc(Tensor::from({1, 2}, {2}, Dtype::f32), labels({1, 2}));
      },
      "auc: label 2"));
  CHECK(throws([&] { nn::f1_scores(outputs); }, "f1_scores: a confusion matrix (4, 3) f32"));
  CHECK(throws([&] { nn::calibration_curve(outputs, y, 0); }, "calibration_curve: 0 bins"));
  CHECK(throws([&] { nn::expected_calibration_error({}); }, "without predictions"));
  CHECK(throws([&] { nn::mean_squared_error(outputs, y); }, "mean_squared_error: (4) i64"));
}
