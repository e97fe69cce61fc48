// The part of NCCL's interface that is used, without its header, which few machines have
// (kernels/cuda/runtime/nccl_facts.cpp compares them). Since NCCL 2.7.
#pragma once

#include <cstddef>
#include <string>

namespace sotto {

// The number of a communicator, which its ranks agree on.
struct NcclId {
  char bytes[128];
};

inline constexpr int nccl_success = 0, nccl_in_progress = 7, nccl_uint8 = 1;

// The functions of one library; a communicator and a stream are addresses.
struct Nccl {
  int (*get_version)(int*);
  int (*get_unique_id)(NcclId*);
  int (*comm_init_rank)(void** communicator, int ranks, NcclId, int rank);
  int (*comm_abort)(void* communicator);
  int (*comm_get_async_error)(void* communicator, int* error);
  int (*send)(const void*, std::size_t count, int type, int to, void* communicator, void* stream);
  int (*receive)(void*, std::size_t count, int type, int from, void* communicator, void* stream);
  int (*group_start)();
  int (*group_end)();
  const char* (*get_error_string)(int);
};

// Throws SystemFailure with NCCL's reason.
void nccl_check(const Nccl& nccl, const char* function, int result);

// Loads the library at the first call, from the path in the environment variable
// SOTTO_NCCL_LIBRARY, else from the path that the GPU's runtime names. Throws SystemFailure with
// the reason, in one line, if there is none.
const Nccl& load_nccl();

// "2.28.9".
std::string nccl_version(const Nccl& nccl);

}  // namespace sotto
