# Helpers of the packaging tests: a directory outside the tree, and the build of an external project there.
set -euo pipefail
: "${CMAKE_COMMAND:=cmake}"

say() { printf '== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# expect TEXT FILE: checks that the file contains the text.
expect() { grep -qF -- "$1" "$2" || { cat "$2" >&2; fail "the output above does not contain '$1'"; }; }

# A temporary directory outside the tree, removed on exit.
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT

# build SOURCE PREFIX [FOLDER]: configures and builds SOURCE in $outside/FOLDER (default: build), with the engine in PREFIX.
build() {
  local flags=() into=$outside/${3:-build}
  [ -z "${LAUNCHER:-}" ] || flags+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$LAUNCHER")
  [ -z "${SANITIZE:-}" ] || flags+=("-DCMAKE_CXX_FLAGS=-fsanitize=$SANITIZE" "-DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=$SANITIZE")
  "$CMAKE_COMMAND" -S "$1" -B "$into" -DCMAKE_PREFIX_PATH="$2" "${flags[@]}" >"$outside/configure.log" 2>&1 ||
    { cat "$outside/configure.log" >&2; fail "CMake cannot configure $1"; }
  "$CMAKE_COMMAND" --build "$into" -j2 >"$outside/build.log" 2>&1 ||
    { cat "$outside/build.log" >&2; fail "$1 does not build"; }
}
