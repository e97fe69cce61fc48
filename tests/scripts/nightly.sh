#!/bin/sh
# Runs what takes too long for every commit, and ends with status 1 when anything failed, after everything was tried:
#   tests       all suites, and the suite `gate` again on the portable engine; the benchmarks are built, too
#   sanitizers  all tests of the library in a build with sanitizers in everything and without precompiled headers, behind
#               which a missing include hides
#   fuzzers     each for a minute, from small files of every kind that corpus.py writes and from what earlier nights found
#   analyzers   those of clang, gcc and cppcheck over core and dp
#   bundle      what gpu_bundle.sh packs for a machine with a GPU is rehearsed without one; skipped where nvcc is not
# Installs what is missing.
#
# usage: nightly.sh [tests] [sanitizers] [fuzzers] [analyzers] [bundle]     all of them if left out
#
# SOTTO_FUZZ_SECONDS is the time for each fuzzer (60). Inputs that break one are in build-fuzz/found.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
fuzz=$root/build-fuzz
status=0
# shellcheck source=tests/scripts/packages.sh
. "$root/tests/scripts/packages.sh"

# failed WHAT: says it, and goes on.
failed() {
  echo "nightly: failed: $1" >&2
  status=1
}

# A build with clang, without what the fuzzers and analyzers do not look at. The library tells the fuzzers where they are.
configure_with_clang() {
  CXX=clang++ CXX_LD=bfd configure "$fuzz" "$root" -Doptimization=1 -Db_ndebug=false -Db_sanitize=address -Db_lundef=false \
    -Dcpp_args="-g1 -fsanitize=fuzzer-no-link" -Dfuzzers=true -Dtests=enabled -Dsamples=disabled -Dcuda=disabled \
    -Donednn=disabled -Db_pch=false
}

run_tests() {
  "$root/tests/run.sh" || failed "quick and gate"
  meson test -C "$root/build" --no-rebuild --print-errorlogs --suite nightly || failed nightly
  SOTTO_CPU_ENGINE=portable SOTTO_OP_INSTANCES=6 meson test -C "$root/build" --no-rebuild --print-errorlogs \
    --suite gate || failed "portable engine"
  ninja -C "$root/build" benchmarks || failed benchmarks
}

# Checks of every pointer would double the time of compiling; the address sanitizer sees what is behind them. The compiler
# draws false warnings. The MPIs leak, and a test that replaces the operators new and delete meets the sanitizer's own.
run_sanitized() {
  configure "$root/build-sanitize" "$root" -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false -Db_pch=false \
    -Dcpp_args="-g1 -w -fno-sanitize=null,alignment,vptr,object-size" -Dtests=enabled -Dsamples=disabled -Dcuda=disabled \
    -Dmpi=disabled
  ninja -C "$root/build-sanitize" all meson-test-prereq || failed "sanitized build"
  ASAN_OPTIONS=malloc_context_size=6:alloc_dealloc_mismatch=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 SOTTO_OP_INSTANCES=6 \
    LSAN_OPTIONS=suppressions=$root/tests/checks/leaks.supp meson test -C "$root/build-sanitize" --no-rebuild \
    --print-errorlogs --timeout-multiplier 4 || failed "sanitized tests"
}

# Each parser has a fuzzer; as many run at once as there are processors.
fuzz_all() {
  configure_with_clang
  python3 "$root/tests/fuzz/corpus.py" "$fuzz/corpus"
  parsers=$(find "$root/tests/fuzz" -name '*_fuzz.cpp' -exec basename -s _fuzz.cpp {} + | sort)
  # shellcheck disable=SC2046 # targets
  ninja -C "$fuzz" $(for parser in $parsers; do echo "tests/fuzz/fuzz_$parser"; done)
  mkdir -p "$fuzz/found"
  rm -f "$fuzz"/fuzz_*.failed
  export fuzz seconds="${SOTTO_FUZZ_SECONDS:-60}"
  # shellcheck disable=SC2016 # for the shells that it starts
  echo "$parsers" | xargs -P "$(nproc)" -I PARSER sh -c '
    "$fuzz/tests/fuzz/fuzz_PARSER" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$fuzz/found/PARSER-" "$fuzz/corpus/PARSER" >"$fuzz/fuzz_PARSER.log" 2>&1 ||
      touch "$fuzz/fuzz_PARSER.failed"'
  for parser in $parsers; do
    echo "fuzz_$parser: $(sed -n 's/^stat::number_of_executed_units: *//p' "$fuzz/fuzz_$parser.log") inputs"
    [ -e "$fuzz/fuzz_$parser.failed" ] || continue
    tail -n 40 "$fuzz/fuzz_$parser.log" >&2
    failed "fuzz_$parser"
  done
}

# gcc's analyzer is made for C: it follows memory, files and signal handlers, and looks here at the files that ask the
# system for them, or draw secrets. Of its checks three take the C++ library itself for wrong: a result that is returned
# in place, a short string and a growing vector.
analyze_with_gcc() {
  (cd "$root" && find core/io dp/ledger dp/sampling -name '*.cpp' -print0 |
    xargs -0 -n 1 -P "$(nproc)" g++ -std=c++20 -O1 -fopenmp -fanalyzer -Wno-analyzer-use-of-uninitialized-value \
      -Wno-analyzer-malloc-leak -Wno-analyzer-null-dereference -Werror -I . -c -o /dev/null) || failed "g++ -fanalyzer"
}

# In .clang-tidy and cppcheck.supp is what they look for, and what is known to be false.
analyze() {
  configure_with_clang
  find "$root/core" "$root/dp" -name '*.cpp' -print0 |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$fuzz" --quiet --warnings-as-errors='*' || failed clang-tidy
  (cd "$root" && cppcheck --std=c++20 --language=c++ --enable=warning,performance,portability --quiet -I . \
    --suppressions-list=tests/checks/cppcheck.supp --error-exitcode=1 core dp) || failed cppcheck
  analyze_with_gcc
}

rehearse_bundle() {
  command -v nvcc >/dev/null 2>&1 || { echo "nightly: bundle: skipped: nvcc is not here"; return 0; }
  "$root/tests/scripts/gpu_bundle.sh" "$root/build-bundle" || { failed bundle; return 0; }
  python3 "$root/tests/scripts/gpu_rehearsal.py" "$root/build-bundle" || [ $? -eq 77 ] || failed rehearsal
}

install_missing "$build_packages
$test_packages
$nightly_packages"
[ $# -gt 0 ] || set -- tests sanitizers fuzzers analyzers bundle
for part in "$@"; do
  start=$(date +%s)
  case $part in
    tests) run_tests ;;
    sanitizers) run_sanitized ;;
    fuzzers) fuzz_all ;;
    analyzers) analyze ;;
    bundle) rehearse_bundle ;;
    *) echo "usage: nightly.sh [tests] [sanitizers] [fuzzers] [analyzers] [bundle]" >&2 && exit 2 ;;
  esac
  echo "nightly: $part: $(($(date +%s) - start)) s"
done
[ $status -ne 0 ] || echo "nightly: $*: passed"
exit $status
