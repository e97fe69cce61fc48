// Clipping on a GPU without waiting for the host: the device computes norms, clip factors and
// weighted sums, and the host reads the results once at the end. Two cases need the host, norms
// that lost digits to cancellation and sums that overflow: then the group is not reliable(), and
// the host clips it again (docs/appendix/gpu-notes.md, "Clipping").
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"
#include "dp/clipping/parameter_gradients.h"
#include "kernels/host_device/clip_sample.h"

namespace sotto {

// Clips one physical batch at a time. The groups must outlive this object.
class GpuClip {
 public:
  struct Options {
    ClipRule rule;
    NormMethod norm_method = NormMethod::automatic;
    std::int64_t units = 0;          // privacy units
    std::int64_t rows = 0;           // maximum number of losses
    std::vector<double> spacings{};  // of each group's sums; empty: sum_spacing() by default
    BlockEnds ends{};                // of blocks of units; empty: every unit is a term
  };
  GpuClip(const std::vector<ClipGroup>& groups, const Options& options, Device device);

  // Writes the values that a captured graph reads from device memory: clip bounds, loss scale, and
  // the number of valid units. The units after these get weight 0.
  void write_settings(double loss_scale, std::int64_t valid_units);
  // Begins a physical batch: frees the sums and norms of the one before.
  void start();
  // Call these in this order for each group: norms of all its parameters, clip factors, sums of all
  // its parameters. None of them waits for the device.
  void add_norm(std::size_t group, const Parameter& parameter,
                const std::vector<PerSampleGrad>& uses);
  void find_factors(std::size_t group);
  void add_sum(std::size_t group, Parameter& parameter, const std::vector<PerSampleGrad>& uses);
  // Calls the three above for all parameters of a group.
  void clip(std::size_t group, const ParameterUses& gradients);
  // Stores the losses of the physical batch, so that read() returns them with the other results.
  void add_losses(const Tensor& losses);

  // Checks whether the sums are finite, at the end of what is captured; otherwise read() does.
  void check_sums();
  // Waits for the device and copies the results to the host.
  void read();
  // Results of the last read(). A group is reliable if none of its norms has to be recomputed in
  // f64 and all its sums are finite. Only then are the norms and factors of its first `units` units
  // valid.
  bool reliable(std::size_t group) const;
  std::vector<double> norms(std::size_t group, std::int64_t units) const;
  std::vector<double> factors(std::size_t group, std::int64_t units) const;
  std::vector<double> losses() const;
  // The sums of a reliable group over the last physical batch.
  Gradients sums(std::size_t group) const;
  // True if both objects' results and sums are bitwise equal.
  bool same_as(const GpuClip& other) const;
  // Frees the memory of a group's sums.
  void drop_sums(std::size_t group);

 private:
  struct Sum {
    std::size_t group;
    Parameter* parameter;
    Tensor total;
  };
  NormEstimate terms_of(std::size_t group, const Parameter& parameter);
  RoundedSum sum_of(std::size_t group, Parameter& parameter, const Tensor& total);
  // The first `units` values of one row of a group's results.
  std::span<const double> result(std::size_t group, ClipResults::Row row, std::int64_t units) const;
  Tensor results(std::size_t group) const;
  std::int64_t first_check() const;

  const std::vector<ClipGroup>& groups_;
  Options options_;
  Device device_;
  Tensor settings_;                                              // [groups, 3]
  std::vector<std::array<double, ClipSettings::rows>> written_;  // the settings on the device
  std::vector<Tensor> terms_;  // for each group [ClipTerms::rows, parameters, units]
  // The values that read() copies, f64: results [groups, ClipResults::rows, units], for each sum 1
  // if it is not finite, else 0, and losses.
  Tensor report_;
  std::int64_t losses_ = 0;
  std::vector<Sum> sums_;  // in the order of their marks in report_
  bool checked_ = false;   // by check_sums()
  std::vector<double> read_;
};

}  // namespace sotto
