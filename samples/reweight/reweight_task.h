// Training on rows of which some have wrong labels, or of which some classes have few: weights for
// the rows, learned from a few clean public ones.
#pragma once

#include <optional>

#include "samples/images/image_network.h"
#include "samples/reweight/weighed_model.h"
#include "samples/training/task.h"

namespace sotto::reweight {

class ReweightTask final : public samples::Task {
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
  std::vector<const char*> unused_options() const;
  void describe(WeighedModel& model, const Tensor& outputs, const samples::Data& data,
                TrainingReport& report);
  Method method() const { return method_of(method_); }
  void check_method(const samples::Settings& settings) const;
  void check_rows() const;
  samples::Data all_rows(const samples::Settings& settings) const;
  Dataset clean_rows(samples::Data& data, const samples::Settings& settings) const;
  void add_weights(WeighedModel& model, const samples::Data& data, TrainingReport& report);

  samples::DataSource source_ = samples::MadeUp{"drawn by the program"};
  std::string clean_folder_;  // of the clean rows; empty: they are taken out of the training data
  bool from_files_ = false, clean_from_files_ = false;
  std::int64_t clean_ = 1000, clean_batch_ = 256;
  double wrong_labels_ = 0, imbalance_ = 1;
  std::string wrong_ = "next";
  std::string method_ = "gate", weigher_sees_ = "loss";
  double weigher_bound_ = 0.2, weigher_rate_ = 0.3;
  images::ImageNetworkOptions network_{.model = "perceptron"};
  std::optional<RowWeights> rows_;  // once the data are loaded
};

}  // namespace sotto::reweight
