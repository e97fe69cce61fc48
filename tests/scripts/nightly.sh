#!/bin/sh
# Runs what takes too long for every commit: all tests, the suite `long` with them; each fuzzer for a minute, from small
# files of every kind that corpus.py writes and from what earlier nights found; and the analyzers of clang, gcc and cppcheck
# over core and dp. Installs what is missing. Ends with status 1 when anything failed, after everything was tried.
#
# usage: nightly.sh [tests] [fuzzers] [analyzers]     all of them if left out
#
# SOTTO_FUZZ_SECONDS is the time for each fuzzer (60). Inputs that break one are in build-fuzz/found.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=$root/build-fuzz
status=0
# shellcheck source=tests/scripts/packages.sh
. "$root/tests/scripts/packages.sh"

# failed WHAT: says it, and goes on.
failed() {
  echo "nightly: failed: $1" >&2
  status=1
}

# A build with clang, without what the fuzzers and analyzers do not look at.
configure_with_clang() {
  CXX=clang++ configure "$build" "$root" -Doptimization=1 -Db_ndebug=false -Dcpp_args=-g1 -Dfuzzers=true \
    -Dtests=enabled -Dsamples=disabled -Dcuda=disabled -Donednn=disabled -Db_pch=false
}

# fuzz NAME: the parser of that name.
fuzz() {
  mkdir -p "$build/found"
  "$build/tests/fuzz_$1" -max_total_time="${SOTTO_FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$build/found/$1-" "$build/corpus/$1" >"$build/fuzz_$1.log" 2>&1 || {
    tail -n 40 "$build/fuzz_$1.log" >&2
    failed "fuzz_$1"
  }
  echo "fuzz_$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz_$1.log") inputs"
}

fuzz_all() {
  configure_with_clang
  python3 "$root/tests/fuzz/corpus.py" "$build/corpus"
  for source in "$root"/tests/fuzz/*_fuzz.cpp; do
    name=$(basename "$source" _fuzz.cpp)
    ninja -C "$build" "tests/fuzz_$name"
    fuzz "$name"
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
    xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet --warnings-as-errors='*' || failed clang-tidy
  (cd "$root" && cppcheck --std=c++20 --language=c++ --enable=warning,performance,portability --quiet -I . \
    --suppressions-list=tests/checks/cppcheck.supp --error-exitcode=1 core dp) || failed cppcheck
  analyze_with_gcc
}

install_missing "$build_packages
$test_packages
$nightly_packages"
[ $# -gt 0 ] || set -- tests fuzzers analyzers
for part in "$@"; do
  case $part in
    tests)
      "$root/tests/run.sh" || failed tests
      meson test -C "$root/build-tests" --no-rebuild --print-errorlogs --suite long || failed "long tests"
      ;;
    fuzzers) fuzz_all ;;
    analyzers) analyze ;;
    *) echo "usage: nightly.sh [tests] [fuzzers] [analyzers]" >&2 && exit 2 ;;
  esac
done
[ $status -ne 0 ] || echo "nightly: $*: passed"
exit $status
