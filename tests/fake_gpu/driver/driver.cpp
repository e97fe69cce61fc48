// A CUDA driver with no GPU that takes any code to be loaded. cuDNN compiles its kernels for GPUs
// that are described to it without having them, and then loads them: with this library in the
// driver's place that ends well on any machine, up to where something would be run.
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

// What cuDNN wants to find before it loads anything.
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
