#include "core/dtype.h"

#include "core/error.h"

namespace sotto {

const char* name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return "f64";
    case Dtype::f32: return "f32";
    case Dtype::f16: return "f16";
    case Dtype::bf16: return "bf16";
    case Dtype::i64: return "i64";
    case Dtype::i32: return "i32";
    case Dtype::u8: return "u8";
    case Dtype::boolean: return "bool";
  }
  return "unknown";
}

void bad_dtype(Dtype dtype, const char* wanted) {
  fail(fmt::format("dtype: {} given where {} is needed", name(dtype), wanted));
}

}  // namespace sotto
