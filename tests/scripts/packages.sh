# What building sotto needs, and how to get it. Sourced by scripts; needs a POSIX shell.
# shellcheck shell=sh disable=SC2034

# Debian package, and how its presence is seen: a program, a header, a pkg-config module or a library of clang's own.
build_packages="g++:program:c++
meson:program:meson
ninja-build:program:ninja
python3:program:python3
libeigen3-dev:header:eigen3/Eigen/Core
libfmt-dev:header:fmt/format.h
zlib1g-dev:header:zlib.h
libcsv-dev:header:csv.h
libpng-dev:header:png.h
libjpeg62-turbo-dev:header:jpeglib.h
libzip-dev:header:zip.h
libpcre2-dev:header:pcre2.h
libutf8proc-dev:header:utf8proc.h
nlohmann-json3-dev:header:nlohmann/json.hpp
libcli11-dev:header:CLI/CLI.hpp"
test_packages="catch2:catch:-"
nightly_packages="clang:program:clang++
libclang-rt-14-dev:runtime:fuzzer
clang-tidy:program:clang-tidy
cppcheck:program:cppcheck"
# Faster with oneDNN; our own loops do the work without. Runs of several processes need one of the MPIs, which only
# pkg-config finds; the tests run with both.
optional_packages="pkg-config:program:pkg-config
libdnnl-dev:header:oneapi/dnnl/dnnl.hpp
libopenmpi-dev:module:ompi-c
openmpi-bin:program:mpirun.openmpi
libmpich-dev:module:mpich
mpich:program:mpirun.mpich"
# Whose tests are left out without: the CMake package, and the site of pages and reference.
optional_test_packages="cmake:program:cmake
doxygen:program:doxygen"

# have KIND NAME: whether it is there.
have() {
  case $1 in
    program) command -v "$2" >/dev/null 2>&1 ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
    header) printf '#include <cstdio>\n#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' "$2" | c++ -E -x c++ - >/dev/null 2>&1 ;;
    runtime) ls "$(clang++ -print-runtime-dir 2>/dev/null)/libclang_rt.$2"-*.a >/dev/null 2>&1 ;;
    catch) have header catch2/catch.hpp || have header catch2/catch_all.hpp ;;
  esac
}

# missing LIST: the packages of the list whose contents are not there, in one line.
missing() {
  for entry in $1; do
    package=${entry%%:*}
    probe=${entry#*:}
    have "${probe%%:*}" "${probe#*:}" || printf '%s ' "$package"
  done
}

# install_missing LIST: installs what is missing of it, and of the optional packages, with apt; or
# says what is missing, and fails unless that is optional.
install_missing() {
  required=$(missing "$1")
  optional=$(missing "$optional_packages")
  [ -n "$required$optional" ] || return 0
  as_root=
  [ "$(id -u)" -eq 0 ] || as_root=sudo
  if ! command -v apt-get >/dev/null 2>&1; then
    cannot_install "with this system's package manager; here are the names that Debian uses"
  elif [ -n "$as_root" ] && ! command -v sudo >/dev/null 2>&1; then
    cannot_install "as root; there is no sudo"
  elif [ -n "$required" ]; then
    apt_install
  else
    apt_install || echo "Missing, but not needed: $optional" >&2
  fi
}

# cannot_install HOW: says what is to be done by hand; fails when something required is missing.
cannot_install() {
  [ -z "$required" ] || echo "Missing: $required" >&2
  [ -z "$optional" ] || echo "Missing, but not needed: $optional" >&2
  [ -n "$required" ] || return 0
  echo "Install it $1. Then run this script again." >&2
  return 1
}

apt_install() {
  echo "Installing with ${as_root:+$as_root }apt-get: $required$optional"
  $as_root apt-get update -qq
  for package in $optional; do
    apt-cache show "$package" >/dev/null 2>&1 && required="$required$package "
  done
  [ -n "$required" ] || return 0
  # shellcheck disable=SC2086 # a list of packages
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $required
}

# cuda_options: the GPU part is built wherever there is a compiler for it; for one kind of GPU, since
# every kind takes minutes.
cuda_options() {
  if command -v nvcc >/dev/null 2>&1; then
    echo "-Dcuda=enabled -Dgpu_targets=90"
  else
    echo "-Dcuda=disabled"
  fi
}

# configure BUILD SOURCE OPTION...: a Meson build folder with these options and those of SOTTO_SETUP; made anew when it is
# not whole. gold, part of binutils, links in a third of the time.
configure() {
  ! command -v ld.gold >/dev/null 2>&1 || export CXX_LD="${CXX_LD:-gold}"
  # shellcheck disable=SC2086 # options
  set -- "$@" ${SOTTO_SETUP:-}
  if [ -f "$1/build.ninja" ]; then
    meson setup --reconfigure "$@"
  else
    rm -rf "$1"
    meson setup "$@"
  fi
}
