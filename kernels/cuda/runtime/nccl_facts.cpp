// Checks core/cuda/nccl.h against NCCL's own header, where that is installed.
#if __has_include(<nccl.h>)

#include <type_traits>

#include <nccl.h>

#include "core/cuda/nccl.h"

namespace sotto {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId) && alignof(NcclId) == alignof(ncclUniqueId));
static_assert(nccl_success == ncclSuccess && nccl_in_progress == ncclInProgress);
static_assert(nccl_uint8 == ncclUint8 && sizeof(ncclDataType_t) == sizeof(int));
static_assert(sizeof(ncclResult_t) == sizeof(int));
static_assert(std::is_pointer_v<ncclComm_t> && std::is_pointer_v<cudaStream_t>);
static_assert(
    std::is_same_v<decltype(ncclCommInitRank), ncclResult_t(ncclComm_t*, int, ncclUniqueId, int)>);
static_assert(std::is_same_v<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);
static_assert(
    std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(
    std::is_same_v<decltype(ncclSend), ncclResult_t(const void*, std::size_t, ncclDataType_t, int,
                                                    ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclRecv), ncclResult_t(void*, std::size_t, ncclDataType_t,
                                                              int, ncclComm_t, cudaStream_t)>);

}  // namespace sotto

#endif
