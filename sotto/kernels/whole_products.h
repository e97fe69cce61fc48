// Where products may not round their factors.
#pragma once

namespace sotto {

// While one lives on a thread, backend.h's products that the thread asks for take factors of f32
// whole, also where rounded ones (tf32) were asked for. A weight's per-sample gradients need it:
// the norms that clip them are of whole factors, and what is added up must not be longer than its
// norm.
class WholeProducts {
 public:
  WholeProducts();
  ~WholeProducts();
  WholeProducts(const WholeProducts&) = delete;
  WholeProducts& operator=(const WholeProducts&) = delete;

  // Whether one lives on this thread.
  static bool wanted();
};

}  // namespace sotto
