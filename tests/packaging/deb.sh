#!/usr/bin/env bash
# Unpacks the Debian package and checks its control data, its paths, and the program. Arguments: DIST TORCH.
. "$(dirname "$0")/common.sh"
dist=$1 torch=$2
command -v dpkg-deb >/dev/null || { say "dpkg-deb is not installed: nothing to test"; exit 0; }
deb=$(echo "$dist"/heddle_*.deb)
[ -e "$deb" ] || fail "$dist contains no Debian package"

say "the control data name the required packages"
dpkg-deb --field "$deb" | tee "$outside/control"
expect "Package: heddle" "$outside/control"
expect "Maintainer: A Maintainer <a@example.org>" "$outside/control"
grep -qE '^Depends: libc6 \(>= 2\.[0-9]+\), libstdc\+\+6 \(>= [0-9]+\), libgcc-s1, libgomp1$' "$outside/control" || fail "Depends has other packages"
dpkg-deb --contents "$deb" | awk '$2 != "root/root" {exit 1}' || fail "root does not own every file"

say "the program runs from the directory to which the package is unpacked"
root="$outside/a root"
dpkg -x "$deb" "$root"
(cd "$root" && dpkg-deb --control "$deb" "$outside/control.d" && md5sum --quiet -c "$outside/control.d/md5sums")
# Every needed library is in the package, in a package of Depends, or in LibTorch.
find "$root/usr/lib/heddle" -type f \( -name '*.so*' -o -path '*/libexec/*' \) -exec readelf -d {} + |
  sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | sort -u | while read -r library; do
  case $library in
    libc.so.6 | libm.so.6 | ld-linux* | libstdc++.so.6 | libgcc_s.so.1 | libgomp*.so.1 | libtorch* | libc10* | libcud* | libnccl*) ;;
    *) [ -e "$root/usr/lib/heddle/lib/$library" ] || fail "neither the package nor Depends contains $library" ;;
  esac
done
for file in usr/share/man/man1/heddle.1.gz usr/share/bash-completion/completions/heddle usr/share/zsh/vendor-completions/_heddle \
  usr/share/fish/vendor_completions.d/heddle.fish usr/share/doc/heddle/README.md usr/share/doc/heddle/copyright usr/lib/heddle/include/heddle/sdk.h; do
  [ -e "$root/$file" ] || fail "the package does not contain $file"
done
cd "$outside"
clean() { env -i PATH="$root/usr/bin:/usr/bin:/bin" HOME="$outside" HEDDLE_TORCH="$torch" OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= "$@"; }
clean heddle --version | tee out
expect "LibTorch 2.11.0" out
clean heddle data control --out train.bin
clean heddle check "$root/usr/share/doc/heddle/examples/fsdp2.yaml" --world-size 2 --dataset.file_pattern "$outside/train.bin" --dataset.seq_len 16 --lr_scheduler none >out
expect "strategy: fsdp2" out

say "an optimizer is checked on simulated GPUs"
clean heddle plugins check "$root/usr/lib/heddle/lib/plugins/libheddle_adamw.so" --device simulated --ranks 1,2 >out || { cat out; fail "the check failed"; }
expect "ok    models are trained on the device 'simulated'" out
