// Training on text: files, or sentences made up by the program; to tell classes, or to generate.
#pragma once

#include "samples/text/text_model.h"
#include "samples/training/task.h"

namespace sotto::text {

// The key of a model file's metadata under which its TextModel is.
inline constexpr const char* model_key = "sotto.text.model";

class TextTask final : public samples::Task {
 public:
  std::string program() const override { return "text"; }
  std::string description() const override;
  std::string title() const override;
  samples::Settings defaults() const override;
  double ordinary_learning_rate() const override { return 0.005; }
  std::vector<samples::Preset> presets() const override;
  samples::Measure measure() const override;
  void add_data_options(samples::CommandLine& line, samples::Settings& settings) override;
  void add_model_options(samples::CommandLine& line) override;
  std::vector<samples::TaskSetting> settings() override;
  void prepare(samples::Settings& settings) override;
  void fit_to_data(samples::Settings& settings) const override;
  std::vector<const char*> unused_options() const override;
  samples::Data load(const samples::Settings& settings) override;
  const samples::DataSource& source() const override { return source_; }
  std::unique_ptr<nn::Module> make_model(const samples::Data& data, std::uint64_t seed) override;
  Var losses(Tape& tape, nn::Module& model, const Dataset& batch) override;
  Var outputs(Tape& tape, nn::Module& model, const Dataset& batch) override;
  double evaluate(const Tensor& outputs, const samples::Data& data) override;
  std::map<std::string, std::string> metadata() const override;
  void describe(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                TrainingReport& report) override;

 private:
  samples::Data made_up(const samples::Settings& settings);
  samples::Data from_files(const samples::Files& files, const samples::Settings& settings);
  samples::Data divided(const Dataset& rows, std::uint64_t seed) const;

  samples::DataSource source_ = samples::MadeUp{"sentences made up by the program"};
  double test_fraction_ = 0.2;
  std::int64_t test_every_ = 0;  // 0: a fraction
  TextModel model_;
};

}  // namespace sotto::text
