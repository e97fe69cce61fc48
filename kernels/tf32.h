// Products of single precision whose factors are rounded to 11 bits (tf32), which GPUs multiply
// several times as fast as whole ones: whether they are wanted, and where they may not be.
#pragma once

namespace sotto {

// Whether products and convolutions of f32 round their factors to 11 bits on GPUs that can (compute
// capability 8.0 and later); sums have 24 bits all the same. Where nobody calls it the environment
// variable SOTTO_TF32 says so: 1, or 0 for what is so without it. One answer holds for the whole
// process, so that the passes over a batch, and a norm and what it clips, see the same gradients:
// throws std::logic_error for another one than a GPU has gone by.
void use_tf32(bool wanted);
// What GPUs go by, from this call on. Throws std::invalid_argument where SOTTO_TF32 says neither.
bool tf32_used();

// While one lives on a thread, backend.h's products that the thread asks for take factors of f32
// whole, also where rounded ones are wanted. A weight's per-sample gradients need it: the norms
// that clip them are of whole factors, and what is added up must not be longer than its norm.
class NoTf32Scope {
 public:
  NoTf32Scope();
  ~NoTf32Scope();
  NoTf32Scope(const NoTf32Scope&) = delete;
  NoTf32Scope& operator=(const NoTf32Scope&) = delete;

  // Whether one lives on this thread.
  static bool wanted();
};

}  // namespace sotto
