#include "nn/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// The elements of a floating-point tensor.
std::vector<double> values(const char* metric, const Tensor& x) {
  std::vector<double> y = to_dtype(x.to(cpu), Dtype::f64).to_vector<double>();
  for (std::size_t k = 0; k < y.size(); ++k) {
    check(y[k] < std::numeric_limits<double>::infinity(), "{}: element {} is {}", metric, k, y[k]);
  }
  return y;
}

void check_floating(const char* metric, const Tensor& x) {
  check(x.defined() && is_float(x.dtype()),
        "{}: {} {} where there should be floating-point outputs", metric, x.shape(),
        name(x.dtype()));
}

// Calls f(row, target) with the outputs for each target.
void for_each_row(const char* metric, const Tensor& outputs, const Tensor& targets,
                  const std::function<void(std::span<const double>, std::int64_t)>& f) {
  check_floating(metric, outputs);
  check(targets.defined() && targets.dtype() == Dtype::i64 && targets.numel() > 0 &&
            outputs.rank() == targets.rank() + 1,
        "{}: outputs {} for targets {} {}", metric, outputs.shape(), targets.shape(),
        name(targets.dtype()));
  const std::int64_t classes = outputs.size(-1);
  check(classes >= 1, "{}: outputs {} of no class", metric, outputs.shape());
  check(outputs.select(-1, 0).shape() == targets.shape(), "{}: outputs {} for targets {}", metric,
        outputs.shape(), targets.shape());
  const std::vector<double> scores = values(metric, outputs);
  const auto theirs = targets.to_vector<std::int64_t>();
  for (std::size_t k = 0; k < theirs.size(); ++k) {
    check(theirs[k] >= 0 && theirs[k] < classes, "{}: target {} of {} classes", metric, theirs[k],
          classes);
    const auto size = static_cast<std::size_t>(classes);
    f(std::span(scores).subspan(k * size, size), theirs[k]);
  }
}

std::int64_t largest(std::span<const double> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

// log sum_c exp(row[c] - max), for the largest element.
double log_sum(std::span<const double> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double v : row) sum += std::exp(v - max);
  return std::log(sum);
}

double mean(double sum, std::int64_t count) { return sum / static_cast<double>(count); }

std::vector<std::int64_t> counts(const char* metric, const Tensor& confusion) {
  check(confusion.defined() && confusion.dtype() == Dtype::i64 && confusion.rank() == 2 &&
            confusion.size(0) == confusion.size(1) && confusion.numel() > 0,
        "{}: a confusion matrix {} {}", metric, confusion.shape(), name(confusion.dtype()));
  return confusion.to_vector<std::int64_t>();
}

// The targets and the predictions of each class together.
std::vector<std::int64_t> occurrences(const char* metric, const Tensor& confusion) {
  const std::vector<std::int64_t> all = counts(metric, confusion);
  const auto classes = static_cast<std::size_t>(confusion.size(0));
  std::vector<std::int64_t> sums(classes);
  for (std::size_t k = 0; k < all.size(); ++k) {
    sums[k / classes] += all[k];
    sums[k % classes] += all[k];
  }
  return sums;
}

}  // namespace

double top_k_accuracy(const Tensor& outputs, const Tensor& targets, std::int64_t k) {
  std::int64_t found = 0;
  for_each_row("top_k_accuracy", outputs, targets,
               [&](std::span<const double> row, std::int64_t target) {
                 check(k >= 1 && k <= std::ssize(row),
                       "top_k_accuracy: the {} largest of {} classes", k, row.size());
                 const double own = row[static_cast<std::size_t>(target)];
                 std::int64_t before = 0;
                 for (std::int64_t c = 0; c < std::ssize(row); ++c) {
                   const double other = row[static_cast<std::size_t>(c)];
                   if (other > own || (other == own && c < target)) ++before;
                 }
                 if (before < k) ++found;
               });
  return mean(static_cast<double>(found), targets.numel());
}

Tensor confusion_matrix(const Tensor& outputs, const Tensor& targets) {
  std::vector<std::int64_t> counts;
  std::int64_t classes = 0;
  for_each_row("confusion_matrix", outputs, targets,
               [&](std::span<const double> row, std::int64_t target) {
                 classes = std::ssize(row);
                 counts.resize(static_cast<std::size_t>(classes * classes));
                 ++counts[static_cast<std::size_t>(target * classes + largest(row))];
               });
  return Tensor::from(counts, {classes, classes});
}

std::vector<double> f1_scores(const Tensor& confusion) {
  const std::vector<std::int64_t> all = counts("f1_scores", confusion);
  const std::vector<std::int64_t> occur = occurrences("f1_scores", confusion);
  std::vector<double> scores;
  for (std::size_t c = 0; c < occur.size(); ++c) {
    const auto both = static_cast<double>(2 * all[c * occur.size() + c]);
    scores.push_back(occur[c] == 0 ? 0 : both / static_cast<double>(occur[c]));
  }
  return scores;
}

double macro_f1(const Tensor& confusion) {
  const std::vector<double> scores = f1_scores(confusion);
  const std::vector<std::int64_t> occur = occurrences("macro_f1", confusion);
  const std::int64_t classes = std::ssize(occur) - std::count(occur.begin(), occur.end(), 0);
  check(classes > 0, "macro_f1: a confusion matrix {} of zeros", confusion.shape());
  return mean(std::accumulate(scores.begin(), scores.end(), 0.0), classes);
}

namespace {

// One score for each sample; see auc().
std::vector<double> binary_scores(const Tensor& scores) {
  check_floating("auc", scores);
  const std::int64_t columns = scores.rank() == 2 ? scores.size(1) : 1;
  check((scores.rank() == 1 || scores.rank() == 2) && (columns == 1 || columns == 2),
        "auc: scores {}", scores.shape());
  const std::vector<double> all = values("auc", scores);
  if (columns == 1) return all;
  std::vector<double> differences;
  for (std::size_t k = 0; k < all.size(); k += 2) differences.push_back(all[k + 1] - all[k]);
  return differences;
}

}  // namespace

// The sum of the ranks of class 1, of equal scores the mean rank (Mann and Whitney 1947).
double auc(const Tensor& scores, const Tensor& labels) {
  const std::vector<double> score = binary_scores(scores);
  check(labels.defined() && labels.dtype() == Dtype::i64 && labels.rank() == 1 &&
            labels.numel() == std::ssize(score),
        "auc: scores {} for labels {} {}", scores.shape(), labels.shape(), name(labels.dtype()));
  const auto label = labels.to_vector<std::int64_t>();
  for (const std::int64_t v : label) check(v == 0 || v == 1, "auc: label {}", v);
  std::vector<std::size_t> order(score.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return score[a] < score[b]; });
  double ranks = 0;
  double ones = 0;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    double tied = 0;
    for (; end < order.size() && score[order[end]] == score[order[begin]]; ++end) {
      tied += static_cast<double>(label[order[end]]);
    }
    ranks += tied * static_cast<double>(begin + end + 1) / 2;
    ones += tied;
  }
  const double zeros = static_cast<double>(label.size()) - ones;
  check(ones > 0 && zeros > 0, "auc: {} labels of class 1 and {} of class 0", ones, zeros);
  return (ranks - ones * (ones + 1) / 2) / (ones * zeros);
}

std::vector<CalibrationBin> calibration_curve(const Tensor& outputs, const Tensor& targets,
                                              std::int64_t bins) {
  check(bins >= 1, "calibration_curve: {} bins", bins);
  std::vector<CalibrationBin> curve(static_cast<std::size_t>(bins));
  for_each_row(
      "calibration_curve", outputs, targets, [&](std::span<const double> row, std::int64_t target) {
        const double confidence = std::exp(-log_sum(row));
        const auto bin =
            static_cast<std::int64_t>(std::ceil(confidence * static_cast<double>(bins))) - 1;
        CalibrationBin& in =
            curve[static_cast<std::size_t>(std::clamp<std::int64_t>(bin, 0, bins - 1))];
        ++in.count;
        in.confidence += confidence;
        in.accuracy += largest(row) == target ? 1 : 0;
      });
  for (CalibrationBin& bin : curve) {
    const std::int64_t count = std::max<std::int64_t>(bin.count, 1);
    bin.confidence = mean(bin.confidence, count);
    bin.accuracy = mean(bin.accuracy, count);
  }
  return curve;
}

double expected_calibration_error(const std::vector<CalibrationBin>& curve) {
  double sum = 0;
  std::int64_t count = 0;
  for (const CalibrationBin& bin : curve) {
    sum += static_cast<double>(bin.count) * std::abs(bin.confidence - bin.accuracy);
    count += bin.count;
  }
  check(count > 0, "expected_calibration_error: a curve without predictions");
  return mean(sum, count);
}

double perplexity(const Tensor& outputs, const Tensor& targets) {
  double sum = 0;
  for_each_row("perplexity", outputs, targets,
               [&](std::span<const double> row, std::int64_t target) {
                 sum += row[static_cast<std::size_t>(largest(row))] -
                        row[static_cast<std::size_t>(target)] + log_sum(row);
               });
  return std::exp(mean(sum, targets.numel()));
}

double mean_squared_error(const Tensor& outputs, const Tensor& targets) {
  check_floating("mean_squared_error", outputs);
  check_floating("mean_squared_error", targets);
  check(outputs.shape() == targets.shape() && outputs.numel() > 0,
        "mean_squared_error: outputs {} for targets {}", outputs.shape(), targets.shape());
  const std::vector<double> a = values("mean_squared_error", outputs),
                            b = values("mean_squared_error", targets);
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return mean(sum, outputs.numel());
}

}  // namespace sotto::nn
