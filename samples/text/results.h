// Results of a model on text: measures, the confusion matrix, predictions.
#pragma once

#include <string>

#include "samples/report/report.h"
#include "samples/text/text_model.h"

namespace sotto::text {

// The outputs that a row's results are computed from: the logarithms of the classes' probabilities,
// [n, classes], or of a model that writes the sum over the row's symbols of the negative logarithms
// of theirs, [n]. The module must be a Network, and the rows prepared (text_model.h).
Var outputs_of_part(const TextModel& model, nn::Module& network, Tape& tape, const Dataset& part);
// Those of all rows, on the CPU.
Tensor outputs_of_rows(const TextModel& model, nn::Module& network, const Dataset& rows);

// The scores of each unit's classes, [units, classes]: the mean over its rows, which follow each
// other, of the logarithms of the probabilities.
Tensor scores_of_units(const Tensor& outputs, const Dataset& rows);
// The class of each unit.
Tensor classes_of_units(const Dataset& rows);

// The mean over all symbols, ends of units included, of the negative logarithm of the probability
// that the language model gave to the symbol.
double nats_per_character(const Tensor& outputs, const Dataset& rows);

// Adds the measures on the prepared rows to the report's results, and the confusion matrix.
void describe_results(const TextModel& model, const Tensor& outputs, const Dataset& rows,
                      TrainingReport& report);

// Lines of CSV: the number of the unit, from 1, its predicted class, and each class's probability.
std::string predictions(const Tensor& scores, const std::vector<std::string>& classes);

}  // namespace sotto::text
