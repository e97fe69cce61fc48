// The arithmetic of the Gaussian mechanism's noise.
#pragma once

namespace sotto {

// The arithmetic by which normal noise is drawn and added.
enum class GaussianNoise {
  // The sum and the exact normal noise added to it are rounded to a grid. The release is thus a
  // function of the ideal Gaussian mechanism's result for the rounded sum, whose slightly larger
  // sensitivity scales the noise. docs/appendix/proofs-noise.md, "The noise", has the proof.
  discretized,
  // Noise is drawn and added in f64. The set of possible results depends on the sum (Mironov 2012);
  // the privacy guarantee is that of the ideal mechanism and ignores this effect.
  floating_point,
};

}  // namespace sotto
