// Run-time SIMD dispatch: a loop is compiled for baseline x86-64, AVX2 and AVX-512, and the best
// version that the CPU supports is called.
#pragma once

namespace sotto {

#if defined(__x86_64__)

// Calls f(), compiled for AVX2 together with everything it calls.
template <class F>
[[gnu::target("avx2,fma"), gnu::flatten]] void in_avx2(const F& f) {
  f();
}

// Calls f(), compiled for AVX-512 F and VL together with everything it calls.
template <class F>
[[gnu::target("avx2,fma,avx512f,avx512vl"), gnu::flatten]] void in_avx512(const F& f) {
  f();
}

// True if simd_dispatch() uses AVX2: the CPU supports it, and the environment variable
// SOTTO_SIMD was not "portable" at the first call. Throws std::invalid_argument if its
// value is neither "portable" nor "avx2".
bool has_avx2();
// True if simd_dispatch_avx512() uses AVX-512 (F and VL): the CPU supports it, and
// SOTTO_SIMD is neither "portable" nor "avx2". Throws as has_avx2().
bool has_avx512();

// Calls f() in AVX2 if has_avx2(). For loops over arithmetic that is all in inline functions.
template <class F>
void simd_dispatch(const F& f) {
  if (has_avx2()) {
    in_avx2(f);
  } else {
    f();
  }
}

// Calls f() in AVX-512 if has_avx512(), else as simd_dispatch(). Use it for loops that compute much
// per element; memory-bound loops do not gain.
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
