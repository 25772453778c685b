#!/usr/bin/env bash
# Runs docs/plugins/tutorial.md unchanged: writes its files, runs its commands and compares the losses.
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
