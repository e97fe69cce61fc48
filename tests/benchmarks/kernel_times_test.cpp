// kernel_times.cpp with a CUPTI of this program's own: its functions come before the library's.
// File tags: [by_hand]
#include <cupti.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "core/io/atomic_file.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace {

CUpti_BuffersCallbackRequestFunc request;
CUpti_BuffersCallbackCompleteFunc complete;
std::vector<CUpti_Activity*> records;

CUpti_ActivityKernel9 kernel(const char* name, std::uint64_t start, std::uint64_t end) {
  CUpti_ActivityKernel9 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = name;
  record.start = start;
  record.end = end;
  return record;
}

}  // namespace

extern "C" {
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete) {
  request = on_request;
  complete = on_complete;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }

CUptiResult cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, CUpti_Activity** record) {
  if (records.empty()) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = records.back();
  records.pop_back();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, max_records = 0;
  request(&buffer, &size, &max_records);
  complete(nullptr, 0, buffer, size, size);
  return CUPTI_SUCCESS;
}
}

TEST_CASE("kernels and copies are added up by name when the program ends, the longest first") {
  const TemporaryFolder folder;
  const std::string path = folder.path("times");
  CUpti_ActivityKernel9 first = kernel("gemm", 1000, 3000), second = kernel("gemm", 6000, 8000);
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.start = 9000;
  copy.end = 20'000;
  for (void* record :
       {static_cast<void*>(&first), static_cast<void*>(&second), static_cast<void*>(&copy)})
    records.push_back(static_cast<CUpti_Activity*>(record));
  if (const pid_t program = fork(); program == 0) {
    setenv("KERNEL_TIMES", path.c_str(), 1);
    void* const library = dlopen(std::getenv("SOTTO_KERNEL_TIMES"), RTLD_NOW);
    void* const start = library ? dlsym(library, "InitializeInjection") : nullptr;
    std::exit(start ? 1 - reinterpret_cast<int (*)()>(start)() : 2);
  } else {
    int status = 0;
    REQUIRE(waitpid(program, &status, 0) == program);
    REQUIRE(status == 0);
  }
  CHECK(sotto::read_file(path) ==
        "# 15 us on the GPU, 19 us from first to last\n# us\tcount\tus each\tname\n"
        "11.0\t1\t11.00\tcopy of kind 1\n4.0\t2\t2.00\tgemm\n");
}
