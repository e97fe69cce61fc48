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

// Calls f(), compiled for AVX-512 F, VL, BW and DQ together with everything it calls.
template <class F>
[[gnu::target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq"), gnu::flatten]] void in_avx512(
    const F& f) {
  f();
}

// True if the CPU has the instructions, those of the functions above included, and the environment
// variable SOTTO_SIMD, at the first call, named no lesser set: "portable", "avx2", "avx512",
// "avx512_bf16" or "amx". Throws std::invalid_argument if it is none of these.
bool has_avx2();    // and FMA
bool has_avx512();  // F, VL, BW and DQ
bool has_avx512_bf16();
bool has_amx();  // with bf16; the system lets this process use tile registers

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
inline bool has_avx512_bf16() { return false; }
inline bool has_amx() { return false; }

template <class F>
void in_avx512(const F& f) {
  f();
}

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
