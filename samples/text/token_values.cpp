#include "samples/text/token_values.h"

#include <cstring>
#include <map>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/text/token_dataset.h"
#include "nn/predict.h"

namespace sotto::text {

Tensor TokenValues::of_length(const Dataset& rows) const {
  const auto forward = [&](Tape& tape, const Dataset& part) {
    nn::TokenInputs inputs{.ids = tape.input(part.inputs), .mask = tape.input(part.field("mask"))};
    if (part.fields.contains("token_types"))
      inputs.token_types = tape.input(part.field("token_types"));
    return encoder_.before_block(inputs, block_);
  };
  constexpr std::int64_t together = 64;
  return to_dtype(nn::predict(encoder_, rows, forward, together), Dtype::f16);
}

std::size_t TokenValues::bytes(const Dataset& rows) const {
  const std::vector<std::int64_t> first{0};
  const std::int64_t features = of_length(rows.batch(first)).size(2);
  return static_cast<std::size_t>(rows.inputs.numel() * features) * size_of(Dtype::f16);
}

Tensor TokenValues::operator()(const Dataset& rows) const {
  const Dataset each{.inputs = rows.inputs, .targets = rows.targets, .fields = rows.fields};
  const std::vector<std::int64_t> lengths = unit_lengths(each);
  std::map<std::int64_t, std::vector<std::int64_t>> rows_of;  // by length
  for (std::size_t row = 0; row < lengths.size(); ++row)
    rows_of[lengths[row]].push_back(static_cast<std::int64_t>(row));
  Tensor all;
  for (const auto& [length, numbers] : rows_of) {
    const Tensor values = of_length(cut_to_length(each.batch(numbers)));
    const std::int64_t features = values.size(2);
    if (!all.defined()) all = zeros({rows.size(), rows.inputs.size(1), features}, Dtype::f16);
    const std::size_t row_bytes = static_cast<std::size_t>(length * features) * size_of(Dtype::f16);
    for (std::size_t k = 0; k < numbers.size(); ++k)
      std::memcpy(all.select(0, numbers[k]).view().as<std::byte>(),
                  values.view().as<const std::byte>() + k * row_bytes, row_bytes);
  }
  return all;
}

}  // namespace sotto::text
