// The gated delta rule, forward and backward of one layer's node: for delta_net.py, which runs the other
// side.
//   bench_delta_net sequence key_heads value_heads width [threads]      prints milliseconds of both
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "lib/decoder/delta_net/delta_rule.h"
#include "trainer/cli/main/memory_settings.h"

namespace {

// Processor time, without other programs of the machine.
double milliseconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace heddle::decoder;
  heddle::cli::keep_memory_between_steps();
  if (argc < 5)
    return std::fprintf(stderr, "usage: see the first lines of bench/delta_net/delta_net.cpp\n"), 2;
  const int64_t sequence = std::atoll(argv[1]);
  const DeltaHeads heads{std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[4])};
  at::set_num_threads(argc > 5 ? std::atoi(argv[5]) : 1);
  at::manual_seed(1);
  const auto leaf = [](at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); };
  const DeltaInputs in{leaf({sequence, heads.key_heads * heads.key}),
                       leaf({sequence, heads.key_heads * heads.key}),
                       leaf({sequence, heads.value_heads * heads.value}),
                       leaf({sequence, heads.value_heads}),
                       leaf({sequence, heads.value_heads}),
                       leaf({heads.value_heads}),
                       leaf({heads.value_heads})};
  const at::Tensor d_out = at::randn({sequence, heads.value_heads * heads.value});
  for (int round = 0; round < 2; ++round) {  // the first warms up
    const double start = milliseconds();
    const at::Tensor out = delta_rule(in, heads, {1, sequence, {}});
    const double middle = milliseconds();
    out.backward(d_out);
    if (round > 0) std::printf("%.3f %.3f\n", middle - start, milliseconds() - middle);
  }
  return 0;
}
