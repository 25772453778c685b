#!/usr/bin/env bash
# Runs docs/plugins/tutorial.md unchanged: writes its files, runs its commands, compares the losses. Builds and loads the
# examples of the installed documents.
# Arguments: PAGE PREFIX.
. "$(dirname "$0")/common.sh"
page=$1 prefix=$2
mkdir "$outside/simple"
cd "$outside/simple"

say "the commands of the page run with the files of the page"
python3 - "$page" <<'END'
import pathlib, re, sys
text = pathlib.Path(sys.argv[1]).read_text()
for name, block in re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```$', text, re.M | re.S):
    pathlib.Path(name).write_text(block)
pathlib.Path("commands.sh").write_text("set -eux\n" + "".join(re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)))
END
[ -z "${LAUNCHER:-}" ] || export CMAKE_CXX_COMPILER_LAUNCHER=$LAUNCHER
if [ -n "${SANITIZE:-}" ]; then export CXXFLAGS="-fsanitize=$SANITIZE" LDFLAGS="-fsanitize=$SANITIZE"; fi
PREFIX=$prefix PATH=$prefix/bin:$PATH bash commands.sh >"$outside/out" 2>&1 || { cat "$outside/out" >&2; fail "a command of the page failed"; }
expect "sum_in_float32" "$outside/out"
expect "ok    strategy 'simple' on 2 ranks: owned(): a tied parameter once" "$outside/out"
grep -q '^FAIL' "$outside/out" && { cat "$outside/out" >&2; fail "a conformance kit failed"; }

say "the losses of the page's two runs agree"
losses() { grep -oE '"loss": ?[0-9.]+' "$1" | grep -oE '[0-9.]+$'; }
paste <(losses simple.jsonl) <(losses single.jsonl) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $2) exit 1 } END { if (NR != 10) exit 1 }' ||
  fail "the losses of simple and single differ"

say "the installed examples, each with its own find_package(HeddleSdk)"
documents=$prefix/share/doc/heddle
mkdir "$outside/examples"
cat >"$outside/examples/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(examples LANGUAGES CXX)
foreach(example plugins/freeze plugins/mock plugins/muon plugins/phi3 plugins/squad plugins/tensorboard
                examples/compressed examples/local_sgd examples/schedule examples/walk)
  add_subdirectory($documents/\${example} \${example})
endforeach()
END
build "$outside/examples" "$prefix" build_examples
for name in freeze mock muon phi3 squad tensorboard compressed local_sgd looped overlapped; do
  "$prefix/bin/heddle" plugins inspect "$outside/build_examples/plugins/libheddle_$name.so" >"$outside/out" 2>&1 ||
    { cat "$outside/out" >&2; fail "the example $name does not load"; }
done
[ -e "$outside/build_examples/plugins/squad.py" ] || fail "the script of squad is not beside its library"
