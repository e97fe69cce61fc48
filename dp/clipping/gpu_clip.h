// Clipping on a GPU without the host in between: norms, factors and weighted sums follow one
// another on the device, and one read at the end returns the results. Two cases need the host,
// norms that cancel and sums that overflow: they show as not reliable(), and the host clips the
// group again (docs/appendix/gpu-notes.md, "Clipping").
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"
#include "dp/clipping/parameter_gradients.h"

namespace sotto {

// The clipping of one physical batch. The groups outlive it.
class GpuClip {
 public:
  struct Options {
    ClipRule rule;
    NormMethod norm_method = NormMethod::automatic;
    std::int64_t units = 0;          // of privacy
    std::int64_t rows = 0;           // losses, at most
    std::vector<double> spacings{};  // of each group's sums; empty: sum_spacing() by default
    BlockEnds ends{};                // of blocks of units; empty: every unit is a term
  };
  GpuClip(const std::vector<ClipGroup>& groups, const Options& options, Device device);

  // Writes the values that a captured graph reads from device memory: clip bounds, loss scale, and
  // the number of valid units. The units after these get weight 0.
  void write_settings(double loss_scale, std::int64_t valid_units);
  // Frees what an earlier physical batch left.
  void start();
  // In this order for each group, without waiting: its parameters' norms, its factors, and its
  // parameters' sums.
  void add_norm(std::size_t group, const Parameter& parameter,
                const std::vector<PerSampleGrad>& uses);
  void find_factors(std::size_t group);
  void add_sum(std::size_t group, Parameter& parameter, const std::vector<PerSampleGrad>& uses);
  // All three, of all parameters.
  void clip(std::size_t group, const ParameterUses& gradients);
  // The losses of the physical batch, to be read with the rest.
  void add_losses(const Tensor& losses);

  // Waits for the device, once.
  void read();
  // Results of the last read. reliable() says whether no norm of the group needs to be recomputed
  // in double and all its sums are finite. Its norms and factors, of its first units, hold only
  // then.
  bool reliable(std::size_t group) const;
  std::vector<double> norms(std::size_t group, std::int64_t units) const;
  std::vector<double> factors(std::size_t group, std::int64_t units) const;
  std::vector<double> losses() const;
  // The sums of a reliable group, of the last physical batch alone.
  Gradients sums(std::size_t group) const;
  // Whether both read, and have as sums, the same bits.
  bool same_as(const GpuClip& other) const;
  // Frees memory.
  void drop_sums(std::size_t group);

 private:
  struct Sum {
    std::size_t group;
    Parameter* parameter;
    Tensor total;
  };
  // A row of a group's results, its first units.
  std::span<const double> result(std::size_t group, ClipResults::Row row, std::int64_t units) const;
  Tensor results(std::size_t group) const;
  std::int64_t first_check() const;

  const std::vector<ClipGroup>& groups_;
  Options options_;
  Device device_;
  Tensor settings_;                                              // [groups, 3]
  std::vector<std::array<double, ClipSettings::rows>> written_;  // the settings on the device
  std::vector<Tensor> terms_;  // for each group [ClipTerms::rows, parameters, units]
  // What is read, f64: results [groups, ClipResults::rows, units], a number for each sum that is
  // finite when the sum is, and losses.
  Tensor report_;
  std::int64_t losses_ = 0;
  std::vector<Sum> sums_;  // in the order of the numbers
  std::vector<double> read_;
};

}  // namespace sotto
