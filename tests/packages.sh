# What building sotto needs, and how to get it. Sourced by scripts; needs a POSIX shell.
# shellcheck shell=sh disable=SC2034

# Debian package, and how its presence is seen: a program, a pkg-config module or a header.
build_packages="g++:program:c++
meson:program:meson
ninja-build:program:ninja
pkg-config:program:pkg-config
python3:program:python3
libeigen3-dev:module:eigen3
libfmt-dev:module:fmt
zlib1g-dev:module:zlib
nlohmann-json3-dev:module:nlohmann_json
libcli11-dev:module:CLI11
libdnnl-dev:header:oneapi/dnnl/dnnl.hpp"
test_packages="catch2:catch:-"

# have KIND NAME: whether it is there.
have() {
  case $1 in
    program) command -v "$2" >/dev/null 2>&1 ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
    header) echo "#include <$2>" | c++ -E -x c++ - >/dev/null 2>&1 ;;
    catch) pkg-config --exists catch2 2>/dev/null || pkg-config --exists catch2-with-main 2>/dev/null ;;
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

# install_missing LIST: installs what is missing with apt, or says what is and fails.
install_missing() {
  wanted=$(missing "$1")
  [ -n "$wanted" ] || return 0
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing, by their Debian names: $wanted" >&2
    echo "Install them with this system's package manager and run this script again." >&2
    return 1
  fi
  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "Missing: $wanted" >&2
      echo "Neither root nor sudo: have them installed, and run this script again." >&2
      return 1
    fi
    as_root=sudo
  fi
  echo "Installing with ${as_root:+$as_root }apt-get: $wanted"
  $as_root apt-get update -qq
  # shellcheck disable=SC2086 # a list of packages
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted
}

# configure BUILD SOURCE OPTION...: a Meson build folder with these options; made anew when it is
# not whole.
configure() {
  if [ -f "$1/build.ninja" ]; then
    meson setup --reconfigure "$@"
  else
    rm -rf "$1"
    meson setup "$@"
  fi
}
