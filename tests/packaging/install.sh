#!/usr/bin/env bash
# Installs the engine to a prefix and checks the installed files. Arguments: BUILD PREFIX.
set -euo pipefail
build=$1 prefix=$2
rm -rf "$prefix"
"${CMAKE_COMMAND:-cmake}" --install "$build" --prefix "$prefix" >/dev/null
for file in bin/heddle lib/libheddle.so lib/libheddle_base.so lib/libheddle_run.so lib/libheddle_trainer.so include/heddle/sdk.h \
  include/heddle/base/version.h include/heddle/adapters/torch_nn.h include/heddle/testing/conformance.h \
  lib/cmake/Heddle/HeddleConfig.cmake lib/cmake/HeddleSdk/HeddleSdkConfig.cmake share/heddle/template/CMakeLists.txt share/heddle/template/strategy/hello.cpp share/heddle/heddle_tokenizer.py lib/libheddle_kits.so lib/libheddle_sharding.a include/heddle/sharding/stage.h \
  share/bash-completion/completions/heddle share/zsh/site-functions/_heddle share/fish/vendor_completions.d/heddle.fish share/man/man1/heddle.1 \
  share/doc/heddle/LICENSE share/doc/heddle/README.md share/doc/heddle/sdk/README.md share/doc/heddle/docs/embedding.md \
  lib/simulated/libheddle_simulated.so share/doc/heddle/lib/simulated/README.md; do
  [ -e "$prefix/$file" ] || { echo "FAILED: $prefix/$file does not exist" >&2; exit 1; }
done
"$prefix/bin/heddle" plugins list | tee "$prefix/list.txt"
grep -qF "searched: $(realpath "$prefix")/lib/plugins" "$prefix/list.txt"
# Every link of the installed documents leads to an existing file.
find "$prefix/share/doc/heddle" -name '*.md' | while read -r page; do
  awk '/^```/ {code = !code} !code' "$page" | { grep -oE '\]\([^)#: ]+[)#]' || true; } | sed 's/^](//; s/[)#]$//' | while read -r link; do
    [ -e "$(dirname "$page")/$link" ] || { echo "FAILED: $page links to $link, which does not exist" >&2; exit 1; }
  done
done
# The installed program finds the simulated device next to its plugins. If the device is missing, the error names the path.
check=("$prefix/bin/heddle" plugins check "$prefix/lib/plugins/libheddle_adamw.so" --device simulated --ranks 1,2)
"${check[@]}" | tee "$prefix/check.txt"
grep -qF "ok    models are trained on the device 'simulated'" "$prefix/check.txt"
grep -qF "ok    optimizer 'AdamW' on 2 ranks: update(): does not depend on the split" "$prefix/check.txt"
mv "$prefix/lib/simulated" "$prefix/lib/hidden"
status=0
"${check[@]}" 2>"$prefix/missing.txt" || status=$?
mv "$prefix/lib/hidden" "$prefix/lib/simulated"
place=$(realpath "$prefix")/lib
diff "$prefix/missing.txt" - <<END
error[plugin_missing] heddle plugins check --device: libheddle_simulated.so is not in $place/plugins, $place/simulated
  hint: build the target heddle_simulated, or add its directory to HEDDLE_PLUGIN_PATH
END
[ "$status" -eq 2 ] || { echo "FAILED: the status is $status, expected 2" >&2; exit 1; }
