// Clip rules: from the norm of a gradient to the factor that bounds it.
#pragma once

#include <string>
#include <vector>

namespace sotto {

// How a norm n becomes a factor, for a bound C. Whatever the rule, factor * n <= C.
struct ClipRule {
  enum class Kind {
    minimum,    // min(1, C / n)                      (Abadi et al. 2016)
    opacus,     // min(1, C / (n + 1e-6))             (for comparison with that library)
    automatic,  // C / (n + gamma)                    (Bu et al. 2023, AUTO-S)
    normalise,  // C / n; 0 for n = 0
    adaptive,   // C / (n + gamma / (n + gamma)), each sample its own  (Xia et al. 2023, PSAC)
  };
  Kind kind = Kind::minimum;
  double gamma = 0.01;  // automatic, adaptive

  // 0 for a norm or error that is not finite, or so large that the factor would fall out of single
  // precision (below 2^-100). `margin` is a relative slack for rounding and `error` what rounding
  // may add to the norm besides: factor * (n + error) <= C (1 - margin).
  double factor(double norm, double bound, double margin, double error = 0) const;
};

// "minimum" and so on, and back; throws std::invalid_argument for another name.
const char* name(ClipRule::Kind kind);
ClipRule::Kind clip_rule_kind(const std::string& name);
std::vector<std::string> clip_rule_names();

}  // namespace sotto
