// Handwritten digits, 28 x 28 grey pixels: MNIST's files, or digits drawn by the program.
#pragma once

#include "samples/training/task.h"

namespace sotto::mnist {

// The memory of a digit: its pixels and its label.
inline constexpr double bytes_of_digit = 28 * 28 * sizeof(float) + sizeof(std::int64_t);

class DigitsTask final : public samples::Task {
 public:
  samples::TaskFacts facts() override;
  void add_options(samples::CommandLine& line, Options which, samples::Settings& settings) override;
  void prepare(samples::Settings& settings) override;
  samples::Data load(const samples::Settings& settings) override;
  samples::TaskModel make_model(const samples::Data& data,
                                const samples::Settings& settings) override;

 private:
  samples::DataSource source_ = samples::MadeUp{"drawn by the program"};  // or MNIST's files
  bool from_files_ = false;
  bool normalize_ = false;
  std::string activation_ = "tanh";
};

}  // namespace sotto::mnist
