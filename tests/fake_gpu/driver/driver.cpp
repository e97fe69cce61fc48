// A CUDA driver without a GPU that accepts any code to be loaded. cuDNN compiles its kernels for a
// described GPU without having one, and then loads them. With this library in place of the driver,
// that works on any machine, up to the point where a kernel would run.
namespace {

constexpr int success = 0, no_device = 100;
int something = 0;

}  // namespace

extern "C" {

int cuLibraryLoadData(void** library, ...) {
  *library = &something;
  return success;
}
int cuLibraryGetKernel(void** kernel, ...) {
  *kernel = &something;
  return success;
}
int cuLibraryUnload(void*) { return success; }
int cuKernelGetAttribute(int* value, ...) {
  *value = 0;
  return success;
}
int cuKernelSetAttribute(...) { return success; }
int cuOccupancyMaxPotentialClusterSize(int* blocks, ...) {
  *blocks = 8;
  return success;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return success;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_NO_DEVICE";
  return success;
}
int cuGetErrorString(int, const char** text) {
  *text = "a driver without a GPU";
  return success;
}

// Functions that cuDNN looks up before it loads code.
int cuInit(...) { return no_device; }
int cuDeviceGetCount(...) { return no_device; }
int cuDeviceGet(...) { return no_device; }
int cuCtxGetCurrent(...) { return no_device; }
int cuCtxPushCurrent(...) { return no_device; }
int cuCtxPopCurrent(...) { return no_device; }
int cuCtxGetLimit(...) { return no_device; }
int cuStreamGetCtx(...) { return no_device; }
int cuLinkCreate(...) { return no_device; }
int cuLinkAddData(...) { return no_device; }
int cuLinkComplete(...) { return no_device; }
int cuLinkDestroy(...) { return no_device; }
int cuLibraryLoadFromFile(...) { return no_device; }
int cuLaunchKernel(...) { return no_device; }
int cuLaunchKernelEx(...) { return no_device; }
int cuLaunchCooperativeKernel(...) { return no_device; }

}  // extern "C"
