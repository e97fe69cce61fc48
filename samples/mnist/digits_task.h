// Handwritten digits, 28 x 28 grey pixels: MNIST's files, or digits drawn by the program.
#pragma once

#include "samples/training/task.h"

namespace sotto::mnist {

// The memory of a digit: its pixels and its label.
inline constexpr double bytes_of_digit = 28 * 28 * sizeof(float) + sizeof(std::int64_t);

class DigitsTask final : public samples::Task {
 public:
  std::string program() const override { return "mnist"; }
  std::string description() const override;
  std::string title() const override;
  samples::Settings defaults() const override { return {}; }
  double ordinary_learning_rate() const override;
  std::vector<samples::Preset> presets() const override;
  void add_data_options(samples::CommandLine& line, samples::Settings& settings) override;
  void add_model_options(samples::CommandLine& line) override;
  std::vector<samples::TaskSetting> settings() override;
  void prepare(samples::Settings& settings) override;
  samples::Data load(const samples::Settings& settings) override;
  const samples::DataSource& source() const override { return source_; }
  std::unique_ptr<nn::Module> make_model(const samples::Data& data, std::uint64_t seed) override;

 private:
  samples::DataSource source_ = samples::MadeUp{"drawn by the program"};  // or MNIST's files
  bool from_files_ = false;
  bool normalize_ = false;
  std::string activation_ = "tanh";
};

}  // namespace sotto::mnist
