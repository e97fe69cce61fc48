// Training on pictures: folders of files, CIFAR's or MNIST's files, or shapes drawn by the program.
#pragma once

#include "samples/images/image_network.h"
#include "samples/training/task.h"

namespace sotto::images {

class ImagesTask final : public samples::Task {
 public:
  std::string program() const override { return "images"; }
  std::string description() const override;
  std::string title() const override;
  samples::Settings defaults() const override;
  double ordinary_learning_rate() const override { return 0.05; }
  std::vector<samples::Preset> presets() const override;
  void add_data_options(samples::CommandLine& line, samples::Settings& settings) override;
  void add_model_options(samples::CommandLine& line) override;
  std::vector<samples::TaskSetting> settings() override;
  void prepare(samples::Settings& settings) override;
  void check_files() const override;
  samples::Data load(const samples::Settings& settings) override;
  void keep(const samples::Data& data) const override;
  const samples::DataSource& source() const override { return source_; }
  std::unique_ptr<nn::Module> make_model(const samples::Data& data, std::uint64_t seed) override;
  std::int64_t views() const override { return views_; }
  Dataset view(const Dataset& samples, std::span<const RecordView> views,
               std::uint64_t seed) const override;
  std::map<std::string, std::string> metadata() const override;
  void describe(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                TrainingReport& report) override;

 private:
  void set_shape(PictureFiles kind);
  void check_views();
  samples::Data drawn(const samples::Settings& settings);
  samples::Data from_files(const samples::Files& files, const samples::Settings& settings);

  samples::DataSource source_ = samples::MadeUp{"shapes drawn by the program"};
  std::string cache_;     // file of features; empty: none
  std::string computed_;  // what identifies features that are to be written there; empty: none
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
