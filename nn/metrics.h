// Metrics of predictions on public test data. A metric of private data is not private: release
// statistics of it by the engine (dp/engine/engine.h).
//
// Outputs are those of a model, one row of scores over the classes for each target: floating-point
// [n, ..., classes], for i64 targets [n, ...]. Sums are in double. Each function throws
// std::invalid_argument, with the shapes or the value, for shapes and types that do not fit, for no
// targets, for a target that is not a class, and for an output that is NaN or positive infinity.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace sotto::nn {

// The fraction of targets that are among the k largest outputs of their rows; among equal outputs
// the lower class comes first, as with argmax. Throws unless 1 <= k <= classes.
double top_k_accuracy(const Tensor& outputs, const Tensor& targets, std::int64_t k);

// The counts of pairs of classes, i64 [classes, classes]: a row for each target's class, a column
// for each predicted one.
Tensor confusion_matrix(const Tensor& outputs, const Tensor& targets);
// The F1 score of each class of a confusion matrix, 2 tp / (2 tp + fp + fn); 0 for a class that is
// neither a target nor predicted. With two classes, [1] is the binary F1 score.
std::vector<double> f1_scores(const Tensor& confusion);
// The mean of the F1 scores of the classes that are targets or predicted.
double macro_f1(const Tensor& confusion);

// The area under the receiver operating characteristic: the probability that a sample of class 1
// has a larger score than one of class 0, ties half. Scores are [n] or [n, 1], or outputs of two
// classes [n, 2], whose difference is the score; labels are i64 [n]. Throws unless both classes
// occur.
double auc(const Tensor& scores, const Tensor& labels);

// Predictions whose confidence, the largest softmax probability, is in one interval.
struct CalibrationBin {
  std::int64_t count = 0;  // of predictions
  double confidence = 0;   // the mean confidence; 0 for an empty bin
  double accuracy = 0;     // the fraction that is correct
};

// Divides predictions into `bins` intervals of equal width, ((k - 1) / bins, k / bins].
std::vector<CalibrationBin> calibration_curve(const Tensor& outputs, const Tensor& targets,
                                              std::int64_t bins = 15);
// The mean distance of confidence and accuracy over the bins, weighted by their counts (Guo,
// Pleiss, Sun and Weinberger 2017, equation 3).
double expected_calibration_error(const std::vector<CalibrationBin>& curve);

// exp of the mean cross entropy, with the softmax of the outputs.
double perplexity(const Tensor& outputs, const Tensor& targets);

// The mean of (outputs - targets)^2 over all elements: floating-point tensors of one shape.
double mean_squared_error(const Tensor& outputs, const Tensor& targets);

}  // namespace sotto::nn
