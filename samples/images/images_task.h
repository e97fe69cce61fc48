// Training on pictures: folders of files, CIFAR's or MNIST's files, or shapes drawn by the program.
#pragma once

#include "samples/images/image_network.h"
#include "samples/training/task.h"

namespace sotto::images {

class ImagesTask final : public samples::Task {
 public:
  samples::TaskFacts facts() override;
  void add_options(samples::CommandLine& line, Options which, samples::Settings& settings) override;
  void prepare(samples::Settings& settings) override;
  samples::Data load(const samples::Settings& settings) override;
  samples::TaskModel make_model(const samples::Data& data,
                                const samples::Settings& settings) override;
  double evaluate(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                  TrainingReport* report) override;

 private:
  void add_data_options(samples::CommandLine& line, samples::Settings& settings);
  void add_model_options(samples::CommandLine& line);
  std::vector<samples::TaskSetting> settings();
  std::vector<const char*> unused_options() const;
  void set_shape(PictureFiles kind);
  void check_views();
  samples::Data drawn(const samples::Settings& settings);
  samples::Data from_files(const samples::Files& files, const samples::Settings& settings);

  samples::DataSource source_ = samples::MadeUp{"shapes drawn by the program"};
  std::string cache_;  // file of features; empty: none
  double test_fraction_ = 0.2;
  std::int64_t size_ = 0;  // 0: the data's own, or usual_size
  bool grey_ = false;
  bool skip_unreadable_ = false;
  ImageNetworkOptions network_;
  std::int64_t views_ = 0;
  Augmentation augmentation_;  // the brightness is --jitter
  Dataset shown_;              // test pictures that the report may show; none of private data
  std::vector<std::string> classes_;
  std::string class_names_;  // as one text, by which a resumed run knows them
};

}  // namespace sotto::images
