#!/usr/bin/env bash
# Installs the wheel into a new virtual environment with torch. Checks that the program runs from PATH, that CMake finds
# its files, and that its RECORD is correct. Arguments: DIST TORCH.
. "$(dirname "$0")/common.sh"
dist=$1 torch=$2
wheel=$(echo "$dist"/heddle-*.whl)
[ -e "$wheel" ] || fail "$dist contains no wheel"
if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then
  [[ $wheel == *manylinux_2_34_* ]] || fail "$wheel has another tag than manylinux_2_34; readelf -VW shows which library needs more"
fi

say "the wheel's record names each file with its hash"
python3 - "$wheel" <<'END'
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = set(wheel.namelist())
assert any(name.endswith(".dist-info/LICENSE") for name in names), "the wheel has no LICENSE"
record = next(name for name in names if name.endswith(".dist-info/RECORD"))
rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
assert {row[0] for row in rows} == names and len(rows) == len(names), "RECORD does not list every file once"
for name, digest, size in rows:
    if name != record:
        data = wheel.read(name)
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), name
        assert int(size) == len(data), name
END

say "pip installs the wheel into a new environment with torch"
venv="$outside/a venv"
python3 -m venv --without-pip "$venv"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
dirname "$torch" >"$site/torch.pth"
python3 -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
clean() { env -i PATH="$venv/bin:/usr/bin:/bin" HOME="$outside" OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= "$@"; }
cd "$outside"
clean heddle --version | tee out
expect "LibTorch 2.11.0" out
expect "in $torch/lib" out
clean heddle help train >out
expect "--nproc-per-node" out
for file in man/man1/heddle.1 bash-completion/completions/heddle zsh/site-functions/_heddle fish/vendor_completions.d/heddle.fish; do
  [ -e "$venv/share/$file" ] || fail "share/$file is not installed"
done

say "the program checks a recipe and trains two steps on two ranks"
tree=$(clean python -c 'import heddle; print(heddle.prefix)')
clean heddle plugins list >out
expect "searched: $tree/lib/plugins" out
clean heddle data "$tree/examples/fsdp2.yaml" --out train.bin
run=("$tree/examples/fsdp2.yaml" --dataset.file_pattern "$outside/train.bin" --dataset.seq_len 16
  --step_scheduler.max_steps 2 --lr_scheduler none --checkpoint.checkpoint_dir "$outside/run")
clean heddle train "${run[@]}" --nproc-per-node 2
[ "$(wc -l <run/training.jsonl)" -eq 2 ] || fail "the run did not take two steps"

say "its libraries need those parts of LibTorch that the builds for the CPU and for CUDA share"
clean python - "$tree" "$torch/lib" <<'END'
import pathlib, subprocess, sys
tree, torch = map(pathlib.Path, sys.argv[1:])
def read(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
def symbols(file, kind):
    return {line.split()[-1].partition("@")[0] for line in read("nm", "-D", kind, file).splitlines()}
shared = set.union(*(symbols(torch / name, "--defined-only") for name in ("libtorch_cpu.so", "libc10.so", "libtorch_python.so")))
of_cuda = set.union(*(symbols(torch / name, "--defined-only") for name in ("libtorch_cuda.so", "libc10_cuda.so"))) - shared
of_cuda = {name for name in of_cuda if any(part in name for part in ("c10", "2at", "torch"))}  # it also defines std's
files = [file for file in tree.rglob("*") if file.is_file() and file.open("rb").read(4) == b"\x7fELF"]
files = [file for file in files if file.name not in ("heddle_nccl_cuda.so", "heddle_gpu_tests")]  # need a GPU
assert len(files) > 50 and len(of_cuda) > 10000, (len(files), len(of_cuda))
for file in files:
    needed = [line.split("[")[1].rstrip("]") for line in read("readelf", "-dW", file).splitlines() if "(NEEDED)" in line]
    cuda = [name for name in needed if any(part in name for part in ("cuda", "cudnn", "nccl", "cublas", "cupti"))]
    assert not cuda, f"{file} needs {cuda}"
    own = symbols(file, "--defined-only")
    assert not (symbols(file, "--undefined-only") - own) & of_cuda, f"{file} calls LibTorch's CUDA library"
END

say "the Python module checks and trains"
clean python - "$tree/examples/fsdp2.yaml" "$outside/train.bin" <<'END'
import sys
import heddle
recipe, data = sys.argv[1:]
changes = {"dataset.file_pattern": data, "dataset.seq_len": 16, "step_scheduler.max_steps": 2, "lr_scheduler": None,
           "checkpoint.enabled": False}
assert heddle.check(recipe, overrides=changes)["strategy"] == "fsdp2"
assert len(heddle.train(recipe, ranks=2, overrides=changes, progress=False).losses) == 2
try:
    import torch
except ImportError as error:
    print("the engine is not tested, because torch cannot be imported:", error)
    sys.exit()
model = heddle.fully_shard(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)), strategy="ddp")
model(torch.ones(2, 4)).sum().backward()
assert all(parameter.grad is not None for parameter in model.parameters())
END

say "the project of a plugin finds the SDK of the wheel"
clean heddle plugins new mine >/dev/null
HEDDLE_TORCH=$torch "${CMAKE_COMMAND:-cmake}" -S mine -B built -DCMAKE_PREFIX_PATH="$tree" >out 2>&1 || { cat out; fail "CMake cannot configure the project"; }
grep -E '^(Heddle|HeddleSdk)_DIR:PATH=' built/CMakeCache.txt | tee out
expect "=$tree/lib/cmake/Heddle" out

say "pip uninstalls every file"
python3 -m pip --python "$venv/bin/python" uninstall --quiet --yes --disable-pip-version-check heddle
[ ! -e "$venv/bin/heddle" ] && [ ! -e "$site/heddle/bin" ] || fail "pip left files"
