#!/usr/bin/env python3
"""Times `heddle check`: check_time.py [BUILD] [RUNS]

Alternates between the check of examples/quickstart.yaml (with the data of scripts/quickstart) and a process that only
loads LibTorch's CPU library, which every check needs. Prints wall time and CPU time (user + system)."""
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "build").resolve()
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 30
heddle = build / "heddle"
torch = subprocess.run([heddle, "--version"], check=True, capture_output=True, text=True).stdout.split(" in ")[-1].strip()
opens = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1]); os._exit(0)"
contenders = {
    "heddle check": [heddle, "check", root / "examples/quickstart.yaml"],
    "LibTorch opened": [sys.executable, "-S", "-c", opens, f"{torch}/libtorch_cpu.so"],
}


def timed(command):
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env=os.environ | {"LD_LIBRARY_PATH": torch})
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


times = {name: [] for name in contenders}
for _ in range(runs):
    for name, command in contenders.items():
        times[name].append(timed(command))
print("| | wall, least s | wall, median s | CPU, least s | CPU, median s |\n|---|--:|--:|--:|--:|")
for name, of in times.items():
    wall, processor = zip(*of)
    print(f"| {name} | {min(wall):.3f} | {statistics.median(wall):.3f} | {min(processor):.3f} | "
          f"{statistics.median(processor):.3f} |")
