#!/bin/sh
# Installs what is missing, builds everything in release mode, runs all tests and prints
# "N passed, N failed, N skipped". SOTTO_SHARED names a folder with more conformance cases.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build-tests
# shellcheck source=tests/packages.sh
. "$root/tests/packages.sh"

# A line of the summary that `meson test` wrote.
count() {
  sed -n "s/^$1: *\([0-9][0-9]*\).*/\1/p" "$build/meson-logs/testlog.txt" | tail -n 1
}

install_missing "$build_packages
$test_packages"
configure "$build" "$root" -Dbuildtype=release -Dtests=enabled -Dsamples=enabled
ninja -C "$build"

status=0
rm -f "$build/meson-logs/testlog.txt"
meson test -C "$build" --no-rebuild --print-errorlogs || status=1
passed=$(($(count Ok) + $(count 'Expected Fail')))
failed=$(($(count Fail) + $(count 'Unexpected Pass') + $(count Timeout)))
skipped=$(count Skipped)

cases=${SOTTO_SHARED:-$root/../shared}/conformance
if [ -d "$cases" ]; then
  echo "Conformance with $cases:"
  if "$build/tests/conformance/conformance" "$cases"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    status=1
  fi
else
  echo "Conformance: $cases is not there, skipped"
  skipped=$((skipped + 1))
fi

[ "$failed" -eq 0 ] || status=1
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
