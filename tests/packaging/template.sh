#!/usr/bin/env bash
# Builds a new strategy outside the tree with the installed SDK, selects it by name, and trains with it.
# Argument: PREFIX.
. "$(dirname "$0")/common.sh"
prefix=$1
heddle=$prefix/bin/heddle
cd "$outside"
"$heddle" plugins new hello
cd hello

say "the strategy is unknown before it is built"
"$heddle" check hello.yaml --only distributed >"$outside/out" 2>&1 && fail "the check accepts an unknown strategy"
expect "Unknown strategy: hello" "$outside/out"

say "builds it with find_package(HeddleSdk)"
build "$outside/hello" "$prefix"
ln -s ../build "$outside/hello/build"

say "a project for another SDK number is refused, with the list of changes"
cp -r . "$outside/other"
# asks NUMBER: configures the project with another number, which is refused. Prints to $outside/out.
asks() {
  sed -i "s/HeddleSdk [0-9.]*/HeddleSdk $1/" "$outside/other/CMakeLists.txt"
  "$CMAKE_COMMAND" -S "$outside/other" -B "$outside/build_$1" -DCMAKE_PREFIX_PATH="$prefix" >"$outside/out" 2>&1 &&
    fail "number $1 is accepted"
  return 0
}
asks 0.1
expect "this project asks for 0.1, so it was written for number 16 or an earlier one" "$outside/out"
expect 'kits::check_strategy' "$outside/out"
asks 16
expect "this project asks for number 16." "$outside/out"
expect '`plugin.make<OfferedOptimizer, T>(...)` -> `plugin.optimizer<T>(...)`.' "$outside/out"
expect "then write find_package(HeddleSdk 17 REQUIRED)" "$outside/out"
asks 99
expect "this project asks for number 99." "$outside/out"
expect "Install a heddle with this number" "$outside/out"
grep -qF 'Make these changes' "$outside/out" && fail "changes are listed for a newer number"

say "the test of the strategy and the conformance kits pass"
"$CMAKE_COMMAND" -E chdir "$outside/build" ctest --output-on-failure
"$heddle" plugins check build/plugins/libheddle_hello.so --ranks 2 | tee "$outside/out"
expect "ok    strategy 'hello' on 2 ranks: owned(): a tied parameter once" "$outside/out"
"$heddle" plugins inspect ./build/plugins/libheddle_hello.so | tee "$outside/out"
expect "bucket_mb" "$outside/out"

say "a recipe selects the strategy by name"
"$heddle" check hello.yaml --world-size 2 --elsewhere | tee "$outside/out"  # the token file does not exist yet
expect "hello" "$outside/out"
"$heddle" check hello.yaml --world-size 2 --distributed.bucket_md 3 >"$outside/out" 2>&1 && fail "the check accepts the unknown key bucket_md"
expect "did you mean 'bucket_mb'?" "$outside/out"

say "training on 2 ranks equals training on one rank with the strategy single"
"$heddle" data README.md --out tokens.bin
for run in "hello 2" "single 1"; do
  set -- $run
  overrides=(--distributed.strategy "$1" --checkpoint.checkpoint_dir "out_$1")
  [ "$1" = hello ] || sed -i '/bucket_mb/d' hello.yaml
  "$heddle" train hello.yaml --nproc-per-node "$2" "${overrides[@]}" --metrics "$outside/$1.jsonl"
done
[ "$(wc -l <"$outside/hello.jsonl")" -eq 10 ] || fail "the run did not take 10 steps"
losses() { grep -oE '"loss": ?[0-9.]+' "$1" | grep -oE '[0-9.]+$'; }
paste <(losses "$outside/hello.jsonl") <(losses "$outside/single.jsonl") | tee "$outside/out" |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $2) exit 1 } END { if (NR != 10) exit 1 }' ||
  { cat "$outside/out"; fail "the losses of hello and single differ"; }
say "a strategy that is installed with the engine needs no section plugins:"
cp -r "$prefix" "$outside/moved"
"$CMAKE_COMMAND" --install "$outside/build" --prefix "$outside/moved" >/dev/null
sed '/^plugins:/d' hello.yaml >beside.yaml
"$outside/moved/bin/heddle" check beside.yaml --distributed.strategy hello --world-size 2 >/dev/null
