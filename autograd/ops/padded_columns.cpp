#include "autograd/ops/padded_columns.h"

namespace sotto {

std::int64_t padded_columns(std::int64_t columns, Dtype dtype, Device device) {
  constexpr std::int64_t wide = 1024, required = 16, line = 128;  // columns; bytes
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const bool gains = device != cpu && (dtype == Dtype::f16 || dtype == Dtype::bf16) &&
                     columns >= wide && columns * element % required != 0;
  const std::int64_t step = line / element;
  return gains ? (columns + step - 1) / step * step : columns;
}

}  // namespace sotto
