// A pretended GPU's work, for the pretended NCCL.
#pragma once

#include <cstddef>
#include <functional>

namespace sotto {

class PretendedStream {
 public:
  virtual ~PretendedStream() = default;
  // Asks for work, which is done after all that was asked for before, when ready() is true.
  virtual void add_when(std::function<bool()> ready, std::function<void()> work) = 0;
  // Does what can be done now, without waiting.
  virtual void advance() = 0;
  // Notes that the memory is used. Returns false if it is not the GPU's.
  virtual bool use(const void* address, std::size_t bytes) = 0;
};

}  // namespace sotto
