// What it costs a step that all ranks are asked whether the run should end: bench_stop [RANKS [ROUNDS]].
// Steps with and without the question take turns; a step multiplies matrices and sums a gradient over the
// ranks twice.
#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "heddle/mesh/gloo.h"
#include "trainer/cli/launch.h"
#include "trainer/loop/stop.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 50;  // of a turn

struct Bench {
  Communicator& group;
  StopAgreement& stop;
  at::Tensor matrix = at::ones({192, 192}), gradient = at::ones({16384});

  void step(bool asks) {
    if (asks) stop.begin();
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) at::mm(matrix, matrix);
      group.all_reduce(gradient, Reduce::average)->wait();
    }
    if (asks && stop.end() != 0) std::abort();
  }
  // Microseconds of a step.
  double turn(bool asks) {
    step(asks);
    const auto begin = Clock::now();
    for (int i = 0; i < kSteps; ++i) step(asks);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kSteps;
  }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int run_rank(const RankPlace& place, int rounds) {
  at::set_num_threads(1);
  const auto meeting = mesh::join(place);
  std::vector<int> all(place.world_size);
  std::iota(all.begin(), all.end(), 0);
  const auto group = meeting->group("dp", all);
  StopWish wish;
  StopAgreement stop(*meeting, wish);
  Bench bench{*group, stop};
  std::vector<double> without, with, more;
  for (int round = 0; round < rounds; ++round) {
    without.push_back(bench.turn(false));
    with.push_back(bench.turn(true));
    more.push_back(with.back() - without.back());
  }
  if (place.rank == 0) {
    const auto least = [](const std::vector<double>& all) {
      return *std::min_element(all.begin(), all.end());
    };
    std::printf(
        "%d ranks: a step of %.1f us, with the question %.1f us (least: %.1f and %.1f); median of the "
        "differences %.1f us\n",
        place.world_size, median(without), median(with), least(without), least(with), median(more));
  }
  meeting->leave();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const int ranks = count > 1 ? std::atoi(words[1]) : 2, rounds = count > 2 ? std::atoi(words[2]) : 200;
  return launch::run(ranks, [&](const RankPlace& place) { return run_rank(place, rounds); });
}
