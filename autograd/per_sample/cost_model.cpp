#include "autograd/per_sample/cost_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

struct GramTimes {
  double pixels, patches;
};

// Seconds for the Gram products of a convolution's pixels for one sample (infinity where no kernel
// computes them), and for those of its patches, which are written out and read.
GramTimes gram_times(const Geometry& g, std::size_t element, const CostModel& costs) {
  const Window& w = g.window;
  const auto flops = [&](double pixels, double inner, double positions) {
    const double outputs = static_cast<double>(g.outputs);
    return 2 * (pixels * pixels * inner + positions * positions * outputs) / costs.gram_flops +
           positions * positions * costs.gram_bytes / costs.bytes;
  };
  const double positions = static_cast<double>(g.positions());
  const double inner = static_cast<double>(g.channels * w.positions());
  const double bytes = 2 * positions * inner * static_cast<double>(element);
  GramTimes t{HUGE_VAL, flops(positions, inner, positions) + bytes / costs.bytes};
  const bool by_one = std::all_of(w.stride, w.stride + 3, [](std::int64_t s) { return s == 1; });
  if (!by_one || costs.shifted_adds == 0) return t;
  const double adds = positions * positions / 2 * static_cast<double>(w.groups * w.positions());
  t.pixels = flops(static_cast<double>(g.pixels()), static_cast<double>(g.channels), positions) +
             adds / costs.shifted_adds;
  return t;
}

GramTimes gram_times(const Patches& f, Dtype dtype, const CostModel& costs) {
  return gram_times(Geometry(f.x.view(), f.dy.view(), f.window), size_of(dtype), costs);
}

// The costs of a form's gradients of `width` elements each, in `dtype`.
struct Model {
  CostModel costs;
  double width;
  Dtype dtype;

  // Seconds to write or read one sample's materialized gradient.
  double pass() const { return width * static_cast<double>(size_of(dtype)) / costs.bytes; }

  PerSampleTimes products(double positions, double factor_widths) const {
    const double materialize = 2 * positions * width / costs.rows_flops;
    const double gram = positions * positions *
                        (2 * factor_widths / costs.gram_flops + costs.gram_bytes / costs.bytes);
    const double sum = 2 * positions * width / costs.sum_flops;
    return {.materialized_norm = materialize,
            .ghost_norm = gram,
            .kept = materialize + 3 * pass(),
            .sum = sum,
            .term_sum = sum};
  }

  // With one position the norm is the product of the factors' norms.
  PerSampleTimes operator()(const Outer& f) const {
    PerSampleTimes t = products(
        f.positions(), static_cast<double>(f.a.size(2)) + static_cast<double>(f.b.size(2)));
    t.materialized_norm += 2 * pass();
    if (f.b.size(1) == 1) t.ghost_norm = 0;
    if (max_in_term(f, 1) == 1) {
      t.term_sum = costs.term_sum_flops > 0 ? 2 * f.positions() * width / costs.term_sum_flops
                                            : t.materialized_norm;
    }
    return t;
  }

  PerSampleTimes operator()(const Patches& f) const {
    const GramTimes gram = gram_times(f, dtype, costs);
    PerSampleTimes t = products(f.positions(), 0);
    t.ghost_norm = std::min(gram.pixels, gram.patches);
    return t;
  }

  // A table's gradient is never worth materializing.
  PerSampleTimes operator()(const OneHot&) const { return {1, 0, 1, 0, 0}; }
  PerSampleTimes operator()(const Dense&) const { return {1, 0, 1, 0, 0}; }
  // Kept gradients would save time, and take more bytes than what they are computed from.
  PerSampleTimes operator()(const Derived&) const { return {1, 0, 1, 0, 0}; }
};

std::int64_t groups(const Form& form) {
  const auto* images = form.as<Patches>();
  return images ? images->window.groups : 1;
}

std::int64_t columns(const PerSampleGrad& f) {
  const auto* outer = f.form_data().as<Outer>();
  return outer ? outer->a.size(2)
               : f.shape().numel() / std::max<std::int64_t>(f.form_data().leading().size(1), 1);
}

bool have_gram_products(const PerSampleGrad& f, const PerSampleGrad& g) {
  const Form &left = f.form_data(), &right = g.form_data();
  if (left.as<OneHot>() && right.as<OneHot>()) return true;
  const auto factored = [](const Form& form) { return form.as<Outer>() || form.as<Patches>(); };
  const auto *u = left.as<Outer>(), *v = right.as<Outer>();
  if (u && v && u->b.size(2) != v->b.size(2)) return false;  // one is padded (padded_outer.h)
  return factored(left) && factored(right) && groups(left) == groups(right) &&
         columns(f) == columns(g);
}

}  // namespace

PerSampleTimes expected_times(const PerSampleGrad& f) {
  const Dtype factors = f.form_data().factor_type().value_or(f.dtype());
  return expected_times(f, backend(f.device()).costs(factors));
}

PerSampleTimes expected_times(const PerSampleGrad& f, const CostModel& costs) {
  return f.form_data().visit(Model{costs, static_cast<double>(f.shape().numel()), f.dtype()});
}

bool uses_gram_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method) {
  if (norm_method == NormMethod::materialize || !have_gram_products(f, g)) return false;
  if (norm_method == NormMethod::ghost) return true;
  const PerSampleTimes t = expected_times(f);
  return t.ghost_norm <= t.materialized_norm;
}

bool keeps_materialized(const PerSampleGrad& f, NormMethod norm_method) {
  if (norm_method != NormMethod::automatic) return norm_method == NormMethod::materialize;
  const Form& form = f.form_data();
  // On a CPU their memory has to save time: GPT-2's would take as much again as its ordinary step,
  // for a thirtieth of its time. A GPU's memory is what the budget says.
  const double worth_keeping = form.device() == cpu ? 0.9 : 1;
  const PerSampleTimes t = expected_times(f);
  if (t.kept >= worth_keeping * (std::min(t.materialized_norm, t.ghost_norm) + t.term_sum))
    return false;
  // On a CPU 16-bit factors are chosen to save memory: materialized gradients must not take more
  // bytes. On a GPU they are chosen for speed.
  if (form.device() != cpu) return true;
  const auto factor_bytes =
      static_cast<std::size_t>(form.factor_values()) * size_of(form.leading().dtype());
  return !form.has_16bit_factor() || f.materialized_bytes() <= factor_bytes;
}

bool pixel_products_are_cheaper(const Patches& f) {
  const GramTimes t =
      gram_times(f, arithmetic_type(f.dy.dtype()), backend(f.dy.device()).costs(f.dy.dtype()));
  return t.pixels < t.patches;
}

}  // namespace sotto::detail
