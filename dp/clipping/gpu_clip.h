// Clipping on a GPU without the host in between: norms, factors and weighted sums follow one
// another on the device, and one read at the end tells what came of it. What only the host can do,
// norms of terms that cancel and sums that overflow, shows as not sound(), and is done again in the
// host's way (docs/appendix/gpu-notes.md, "Clipping").
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "autograd/sink.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"

namespace sotto {

// All uses of some parameters.
using ParameterUses = std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>>;

// sum_n w[n] G[n] of a parameter's gradient, over its uses; weights [n], f64.
Tensor weighted_sum(const std::vector<PerSampleGrad>& uses, const Tensor& weights);

// The uses as they are kept until their norms are known: as rows where these are cheaper and fit
// what is left of the budget in bytes.
std::vector<PerSampleGrad> materialize_if_cheaper(std::vector<PerSampleGrad> uses,
                                                  NormMethod norm_method, std::size_t& budget);

// Whether a total is a number: NaN and Inf do not leave a sum. (Clipped gradients are far too small
// for their sum to overflow.) Of one that is on a GPU the host learns it only by waiting.
bool all_finite(const Tensor& x);

// The clipping of one part of a batch. The groups outlive it.
class DeviceClip {
 public:
  struct How {
    ClipRule rule;
    NormMethod norm_method = NormMethod::automatic;
    std::int64_t units = 0;          // of privacy
    std::int64_t rows = 0;           // losses, at most
    std::vector<double> spacings{};  // of each group's sums; empty: sum_spacing() by default
    BlockEnds ends{};                // empty: single units
  };
  DeviceClip(const std::vector<ClipGroup>& groups, const How& how, Device device);

  // What the device is told by its memory and not by its launches: the groups' bounds, what the
  // loss was multiplied by, and how many units count, the first ones; the others' weights are 0.
  void set(double loss_scale, std::int64_t live);
  // Loses what an earlier part left.
  void start();
  // In this order for each group, without waiting: its parameters' norms, its factors, and its
  // parameters' sums.
  void add_norm(std::size_t group, const Parameter& parameter,
                const std::vector<PerSampleGrad>& uses);
  void find_factors(std::size_t group);
  void add_sum(std::size_t group, Parameter& parameter, const std::vector<PerSampleGrad>& uses);
  // All three.
  void clip(std::size_t group, const ParameterUses& uses);
  // The losses of the part, to be read with the rest.
  void add_losses(const Tensor& losses);

  // Waits for the device, once.
  void read();
  // Of the last read: whether no norm of a group's is in doubt and all its sums are finite. What
  // else is known of a group, of its first units, counts only then.
  bool sound(std::size_t group) const;
  std::vector<double> norms(std::size_t group, std::int64_t units) const;
  std::vector<double> factors(std::size_t group, std::int64_t units) const;
  std::vector<double> losses() const;
  // The sums of a group that is sound. They are the last part's, not yet anybody's.
  Gradients sums(std::size_t group) const;
  // Whether both read, and have as sums, the same bits.
  bool same_as(const DeviceClip& other) const;
  // Makes room.
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
  How how_;
  Device device_;
  Tensor settings_;                                          // [groups, 3]
  std::vector<std::array<double, ClipSettings::rows>> set_;  // what is there
  std::vector<Tensor> terms_;  // for each group [3, parameters, units]
  // What is read, f64: results [groups, 4, units], a number for each sum that is finite when the
  // sum is, and losses.
  Tensor report_;
  std::int64_t losses_ = 0;
  std::vector<Sum> sums_;  // in the order of the numbers
  std::vector<double> read_;
};

}  // namespace sotto
