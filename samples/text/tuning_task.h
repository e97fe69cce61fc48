// Tuning a published model on text: to tell classes, or to write.
#pragma once

#include "samples/text/tuned_text.h"
#include "samples/training/task.h"

namespace sotto::text {

class TuningTask final : public samples::Task {
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
  std::vector<samples::TaskSetting> settings();
  void check_unit(samples::Settings& settings) const;

  samples::Files files_;
  double test_fraction_ = 0.2;
  TunedText text_;
  std::string class_names_;  // joined, to compare with a checkpoint's
  bool writes_ = false;      // once prepared: whether the model is a language model
  // Rows of about one length are computed together, and cut to it.
  bool cuts_ = true;
  std::int64_t frozen_ = 0;  // blocks in front of what is trained (frozen_blocks)
};

// Adds the measures on rows of these outputs to the report's results.
void describe_tuned(const TunedText& text, const Tensor& outputs, const Dataset& rows,
                    TrainingReport& report);

}  // namespace sotto::text
