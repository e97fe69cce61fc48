// TF32: products of f32 whose factors are rounded to 11 bits, which GPUs compute several times as
// fast. The program enables them, and a scope excludes them where they would be wrong.
#pragma once

namespace sotto {

// Sets whether products and convolutions of f32 round their factors to 11 bits on GPUs that can
// (compute capability 8.0 and later); sums keep 24 bits. Without a call, the environment variable
// SOTTO_TF32 decides: 1, or 0 (the default). The setting holds for the whole process, so that a
// norm and the gradient that it clips are computed alike: throws std::logic_error if a GPU has
// already used the other setting.
void use_tf32(bool wanted);
// The setting of the process, fixed from this call on. Throws std::invalid_argument if SOTTO_TF32
// is neither 0 nor 1.
bool tf32_used();

// While one lives on a thread, products of this thread use unrounded f32 factors, whatever the
// setting. Per-sample gradients of weights need it: the norms that clip them are of unrounded
// factors, and a clipped gradient must not exceed its norm.
class NoTf32Scope {
 public:
  NoTf32Scope();
  ~NoTf32Scope();
  NoTf32Scope(const NoTf32Scope&) = delete;
  NoTf32Scope& operator=(const NoTf32Scope&) = delete;

  // True inside a scope on this thread.
  static bool wanted();
};

}  // namespace sotto
