// Results of a model on text: measures, the confusion matrix, predictions.
#pragma once

#include <string>

#include "samples/report/report.h"
#include "samples/text/text_model.h"

namespace sotto::text {

// The scores of each unit's classes, [units, classes] on the CPU: the mean over its rows of the
// logarithms of the probabilities. `rows` are prepared (text_model.h), and those of a unit follow
// each other. The model must be a Network.
Tensor scores_of_units(nn::Module& model, const Dataset& rows);
// The class of each unit.
Tensor classes_of_units(const Dataset& rows);

// The mean over all symbols, ends of units included, of the negative logarithm of the probability
// that the language model gave to the symbol.
double nats_per_character(nn::Module& model, const Dataset& rows);

// Adds the measures on the prepared rows to the report's results, and the confusion matrix.
void describe_results(nn::Module& network, const TextModel& model, const Dataset& rows,
                      TrainingReport& report);

// Lines of CSV: the number of the unit, from 1, its predicted class, and each class's probability.
std::string predictions(const Tensor& scores, const std::vector<std::string>& classes);

}  // namespace sotto::text
