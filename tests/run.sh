#!/bin/sh
# run.sh            installs what is missing, builds everything in release mode, runs all tests but the
#                   suite `long`, and prints "N passed, N failed, N skipped".
# run.sh FILTER...  builds what is needed for the tests whose names contain a FILTER, and runs these.
# SOTTO_SHARED names a folder with more conformance cases. SOTTO_UNITY_BUILD=true compiles many sources in one go,
# which is faster once, and slower after each change.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build-tests
# shellcheck source=tests/scripts/packages.sh
. "$root/tests/scripts/packages.sh"

if [ $# -eq 0 ] || [ ! -f "$build/build.ninja" ]; then
  optional_packages="$optional_packages
$optional_test_packages"
  install_missing "$build_packages
$test_packages"
  # shellcheck disable=SC2046 # options
  configure "$build" "$root" -Dbuildtype=release -Dtests=enabled -Dsamples=enabled \
    ${SOTTO_UNITY_BUILD:+-Dunity_build=$SOTTO_UNITY_BUILD} $(cuda_options)
fi
[ $# -eq 0 ] || exec python3 "$root/tests/scripts/run_matching.py" "$build" "$@"
ninja -C "$build"

log=$build/meson-logs/testlog.json
rm -f "$log"
status=0
meson test -C "$build" --no-rebuild --print-errorlogs || status=1
python3 "$root/tests/scripts/summary.py" "$log" || status=1
exit $status
