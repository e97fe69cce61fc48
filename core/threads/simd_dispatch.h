// Loops in the widest vector instructions that the processor has, in builds for any processor.
#pragma once

namespace sotto {

#if defined(__x86_64__)

// f(), compiled for AVX2 with everything it calls.
template <class F>
[[gnu::target("avx2,fma"), gnu::flatten]] void in_avx2(const F& f) {
  f();
}

// The same for AVX-512's F and VL.
template <class F>
[[gnu::target("avx2,fma,avx512f,avx512vl"), gnu::flatten]] void in_avx512(const F& f) {
  f();
}

// Whether simd_dispatch() takes AVX2: the processor has it, and the environment variable
// SOTTO_INSTRUCTIONS is not "portable" at the first call.
bool has_avx2();
// The same of AVX-512 (F and VL) in the loops that have it, for neither "portable" nor "avx2". Both
// throw std::invalid_argument for any other value.
bool has_avx512();

// f(), for loops over arithmetic that is all in inline functions.
template <class F>
void simd_dispatch(const F& f) {
  if (has_avx2()) {
    in_avx2(f);
  } else {
    f();
  }
}

// The same in AVX-512 where there is that, for loops that compute much for each element; those that
// wait for memory gain nothing by it.
template <class F>
void simd_dispatch_avx512(const F& f) {
  if (has_avx512()) {
    in_avx512(f);
  } else {
    simd_dispatch(f);
  }
}

#else

inline bool has_avx2() { return false; }
inline bool has_avx512() { return false; }

template <class F>
void simd_dispatch(const F& f) {
  f();
}

template <class F>
void simd_dispatch_avx512(const F& f) {
  f();
}

#endif

}  // namespace sotto
