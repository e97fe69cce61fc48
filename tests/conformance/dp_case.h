// A private case that was read: the model, the clipping, and for a dp_step case the rows that are
// run together.
#pragma once

#include <functional>
#include <span>

#include "autograd/per_sample/grouping.h"
#include "dp/clipping/clipper.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

// A way to clip: the norms' method, and the number of backward passes.
struct ClipMethod {
  const char* name;
  ClipPasses passes;
  NormMethod norm_method;
};
// All of them.
std::span<const ClipMethod> clip_methods();

// The rule of a case's `dp`.
ClipRule read_rule(const Json& dp);

// Rows [begin, end) of the logical batch, run together.
struct Part {
  std::int64_t begin = 0, end = 0;
  // Maps rows of the physical batch to places in `units`.
  Grouping grouping;
  // The case's units in the physical batch, in the order in which the clipper sees them.
  std::vector<std::int64_t> units;
};

// The model of a private case, and the clipping.
struct DpModel {
  DpModel(const Case& c, Dtype dtype);
  // Takes rows out of a tensor whose rows lie along the axis.
  using Rows = std::function<Tensor(const Tensor& all, int axis)>;
  // The logits' cross entropy for each of the rows.
  Var loss(Tape& tape, const Rows& rows);

  const Case& c;
  Dtype dtype;
  Json dp;
  Parameters parameters;
  std::vector<ClipGroup> groups;
  ClipRule rule;

 private:
  void read_groups();
};

struct DpCase : DpModel {
  DpCase(const Case& c, Dtype dtype);

  // The logits' cross entropy for each of the rows [begin, end).
  Var loss(Tape& tape, std::int64_t begin, std::int64_t end);

  std::int64_t rows = 0, units = 0;
  // -1 for rows that take no part.
  std::vector<std::int64_t> unit_of_row;
  bool mean = false;
  // One row for each unit, in order, with none left out.
  bool plain = true;

  // The physical batches, joined where they would cut a unit in two: the library splits a logical
  // batch between units only.
  std::vector<Part> parts() const;

 private:
  void read_units();
  // `last` is the last row of each unit, -1 for none.
  void assign_units(Part& part, const std::vector<std::int64_t>& last, bool final) const;
};

}  // namespace sotto::conformance
