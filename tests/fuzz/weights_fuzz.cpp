// libFuzzer target: any bytes are a file of weights, of any format, or are refused with our errors.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/io/weights/weights_formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto copy = std::make_shared<std::vector<std::uint8_t>>(data, data + size);
  const std::shared_ptr<void> block(copy, copy->data());
  try {
    using Contents = sotto::WeightsFile::Contents;
    Contents contents = sotto::weights::read_file({block, size}, "/nowhere/fuzz");
    const sotto::WeightsFile file("fuzz", std::make_shared<Contents>(std::move(contents)));
    for (const auto& [name, stored] : file.tensors()) {
      try {
        file.blocks(name);
        file.tensor(name);
      } catch (const std::invalid_argument&) {
      }
    }
  } catch (const std::invalid_argument&) {
  } catch (const sotto::SystemFailure&) {  // the files of an index
  }
  return 0;
}
