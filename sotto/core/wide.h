// Loops in the widest vector instructions that the processor has, in builds for any processor.
#pragma once

namespace sotto {

#if defined(__x86_64__)

// f(), compiled for AVX2 with everything it calls.
template <class F>
[[gnu::target("avx2,fma"), gnu::flatten]] void in_avx2(const F& f) {
  f();
}

inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

// f(), for loops over arithmetic that is all in inline functions.
template <class F>
void widely(const F& f) {
  if (has_avx2()) {
    in_avx2(f);
  } else {
    f();
  }
}

#else

template <class F>
void widely(const F& f) {
  f();
}

#endif

}  // namespace sotto
