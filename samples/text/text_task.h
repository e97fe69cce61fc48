// Training on text: files, or sentences made up by the program; to tell classes, or to generate.
#pragma once

#include "samples/text/text_model.h"
#include "samples/text/tuned_text.h"
#include "samples/training/task.h"

namespace sotto::text {

// The key of a model file's metadata under which its TextModel is.
inline constexpr const char* model_key = "sotto.text.model";

class TextTask final : public samples::Task {
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
  std::vector<samples::TaskSetting> settings();
  void fit_to_data(samples::Settings& settings) const;
  std::vector<const char*> unused_options() const;
  samples::Data made_up(const samples::Settings& settings);
  samples::Data from_files(const samples::Files& files, const samples::Settings& settings);
  samples::Data divided(const Dataset& rows, std::uint64_t seed) const;

  samples::DataSource source_ = samples::MadeUp{"sentences made up by the program"};
  double test_fraction_ = 0.2;
  std::int64_t test_every_ = 0;  // 0: a fraction
  std::string class_names_;      // joined, to compare with a checkpoint's
  TextModel model_;
  TunedText tuning_;  // options that the help lists; without --init they are refused
};

}  // namespace sotto::text
