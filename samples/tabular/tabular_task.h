// Training on the rows of a table: a CSV file and its schema, or people made up by the program.
#pragma once

#include <optional>

#include "nn/data/tables/table_schema.h"
#include "samples/tabular/network.h"
#include "samples/training/task.h"

namespace sotto::tabular {

// The key of a model file's metadata under which network and schema are.
inline constexpr const char* model_key = "sotto.tabular.model";

class TabularTask final : public samples::Task {
 public:
  samples::TaskFacts facts() override;
  void add_options(samples::CommandLine& line, Options which, samples::Settings& settings) override;
  void prepare(samples::Settings& settings) override;
  samples::Data load(const samples::Settings& settings) override;
  samples::TaskModel make_model(const samples::Data& data,
                                const samples::Settings& settings) override;
  Var losses(Tape& tape, nn::Module& model, const Dataset& batch) override;
  double evaluate(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                  TrainingReport* report) override;

 private:
  void add_data_options(samples::CommandLine& line, samples::Settings& settings);
  void add_model_options(samples::CommandLine& line);
  samples::Data made_up(const samples::Settings& settings) const;
  void check_prototypes() const;
  samples::Data from_files(const samples::Files& files, const samples::Settings& settings) const;

  samples::DataSource source_ = samples::MadeUp{"people made up by the program"};
  std::string schema_path_;  // of the files
  std::string folder_;       // of the encoded table; empty: in memory
  double test_fraction_ = 0.2;
  TableNetworkOptions network_;
  std::string prototypes_;  // a table of public rows; empty: the network starts at random
  double prototype_scale_ = 10;
  std::string class_weights_text_;  // "1,3"; empty: all are 1
  Tensor class_weights_;            // f32 [classes], or undefined
  std::string schema_text_;         // the schema in its canonical form
  std::optional<TableSchema> schema_;
};

}  // namespace sotto::tabular
