// Results of a model on rows of a table: measures, the confusion matrix, predictions.
#pragma once

#include <string>

#include "nn/data/tables/table_schema.h"
#include "samples/report/report.h"
#include "samples/tabular/network.h"

namespace sotto::tabular {

// The model's outputs on all rows, on the CPU. The model must be a Network.
Tensor outputs_of_rows(nn::Module& model, const Dataset& rows);
// The privacy unit in words: a row, or all rows of a user.
std::string privacy_unit(const TableSchema& schema);

// Adds the measures of outputs [n, classes] or [n, 1] to the report's results, and the confusion
// matrix.
void describe_results(const Tensor& outputs, const Tensor& targets, const TableSchema& schema,
                      TrainingReport& report);

// A model file's network and its schema. Throws SystemFailure for another file.
struct SavedTableModel {
  TableSchema schema;
  TableNetworkOptions options;
  std::unique_ptr<Network> network;
};
SavedTableModel load_model(const std::string& path);

// Lines of CSV for outputs: the predicted class and each class's probability, or the predicted
// number in the units of the table.
std::string prediction_header(const TableSchema& schema);
std::string prediction_lines(const Tensor& outputs, const TableSchema& schema);

}  // namespace sotto::tabular
