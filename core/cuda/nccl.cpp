#include "core/cuda/nccl.h"

#include <cstdlib>

#include <dlfcn.h>

#include "core/cuda/cuda_library.h"
#include "core/error.h"

namespace sotto {

namespace {

template <class F>
void find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (!function) throw SystemFailure(fmt::format("NCCL has no {}", name));
}

Nccl loaded() {
  const char* const asked = std::getenv("SOTTO_NCCL_LIBRARY");
  const std::string path = asked ? asked : cuda_runtime().nccl_library();
  if (path.empty()) throw SystemFailure("no NCCL is named");
  // Never closed: it has threads of its own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw SystemFailure(dlerror());
  Nccl nccl{};
  find(library, "ncclGetVersion", nccl.get_version);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRank", nccl.comm_init_rank);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.receive);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  return nccl;
}

}  // namespace

void nccl_check(const Nccl& nccl, const char* function, int result) {
  if (result == nccl_success) return;
  throw SystemFailure(fmt::format("NCCL: {}: {}", function, nccl.get_error_string(result)));
}

const Nccl& load_nccl() {
  static const Nccl nccl = loaded();
  return nccl;
}

std::string nccl_version(const Nccl& nccl) {
  int version = 0;
  nccl_check(nccl, "ncclGetVersion", nccl.get_version(&version));
  constexpr int major = 10000, minor = 100;  // since 2.9; before, 1000 and 100
  const int unit = version < major ? 1000 : major;
  return fmt::format("{}.{}.{}", version / unit, version % unit / minor, version % minor);
}

}  // namespace sotto
