#!/bin/sh
# run.sh            installs what is missing, builds everything in `build`, runs the suites `quick` and `gate`, and prints
#                   "N passed, N failed, N skipped".
# run.sh FILTER...  builds what is needed for the tests whose names contain a FILTER, and runs these; =NAME is the test
#                   of that name.
# SOTTO_SHARED names a folder with more conformance cases. SOTTO_SETUP holds options for `meson setup`, as -Dwerror=true.
set -eu

case ${1-} in
-h | --help)
  sed -n 's/^# //; 2,6p' "$0"
  exit
  ;;
esac

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build
# shellcheck source=tests/scripts/packages.sh
. "$root/tests/scripts/packages.sh"

if [ $# -eq 0 ] || [ ! -f "$build/tests/unit_tests.txt" ]; then
  optional_packages="$optional_packages
$optional_test_packages"
  install_missing "$build_packages
$test_packages"
  # shellcheck disable=SC2046 # options
  configure "$build" "$root" -Dtests=enabled -Dsamples=enabled $(cuda_options)
fi
[ $# -eq 0 ] || exec python3 "$root/tests/scripts/run_matching.py" "$build" "$@"
ninja -C "$build" all meson-test-prereq

log=$build/meson-logs/testlog.json
rm -f "$log"
status=0
meson test -C "$build" --no-rebuild --print-errorlogs || status=1
python3 "$root/tests/scripts/summary.py" "$log" || status=1
exit $status
