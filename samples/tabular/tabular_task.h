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
  std::string program() const override { return "tabular"; }
  std::string description() const override;
  std::string title() const override;
  samples::Settings defaults() const override;
  double ordinary_learning_rate() const override { return 0.05; }
  std::vector<samples::Preset> presets() const override;
  samples::Measure measure() const override;
  void add_data_options(samples::CommandLine& line, samples::Settings& settings) override;
  void add_model_options(samples::CommandLine& line) override;
  std::vector<samples::TaskSetting> settings() override;
  void prepare(samples::Settings& settings) override;
  samples::Data load(const samples::Settings& settings) override;
  const samples::DataSource& source() const override { return source_; }
  std::optional<StandardizeOptions> standardize(nn::Module& model) const override;
  std::unique_ptr<nn::Module> make_model(const samples::Data& data, std::uint64_t seed) override;
  Var losses(Tape& tape, nn::Module& model, const Dataset& batch) override;
  Var outputs(Tape& tape, nn::Module& model, const Dataset& batch) override;
  double evaluate(const Tensor& outputs, const samples::Data& data) override;
  std::map<std::string, std::string> metadata() const override;
  void describe(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                TrainingReport& report) override;

 private:
  samples::Data made_up(const samples::Settings& settings) const;
  samples::Data from_files(const samples::Files& files, const samples::Settings& settings) const;

  samples::DataSource source_ = samples::MadeUp{"people made up by the program"};
  std::string schema_path_;  // of the files
  std::string folder_;       // of the encoded table; empty: in memory
  double test_fraction_ = 0.2;
  TableNetworkOptions network_;
  std::string class_weights_text_;  // "1,3"; empty: all are 1
  Tensor class_weights_;            // f32 [classes], or undefined
  std::string schema_text_;         // the schema in its canonical form
  std::optional<TableSchema> schema_;
};

}  // namespace sotto::tabular
