// Cost per step of asking all ranks whether the run should end: bench_stop [RANKS [ROUNDS]].
// Steps with and without the question take turns; a step multiplies matrices and sums a gradient over the
// ranks twice.
#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "heddle/transport/join.h"
#include "lib/run/loop/stop.h"
#include "trainer/cli/launch/launch.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 20;  // of a turn

struct Cost {
  double clock, processor;
};

// Processor time of all threads of this process, in microseconds.
double processor() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto microseconds = [](const timeval& time) { return 1e6 * time.tv_sec + time.tv_usec; };
  return microseconds(usage.ru_utime) + microseconds(usage.ru_stime);
}

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
  // Returns the times of a step, in microseconds.
  Cost turn(bool asks) {
    step(asks);
    const auto begin = Clock::now();
    const double busy = processor();
    for (int i = 0; i < kSteps; ++i) step(asks);
    const double clock = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    return {clock / kSteps, (processor() - busy) / kSteps};
  }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int run_rank(const RankPlace& place, int rounds) {
  at::set_num_threads(1);
  const auto rendezvous = mesh::join(place);
  std::vector<int> all(place.world_size);
  std::iota(all.begin(), all.end(), 0);
  const auto group = rendezvous->group("dp", all);
  StopRequest request;
  StopAgreement stop(*rendezvous, request);
  Bench bench{*group, stop};
  std::vector<double> clock[2], busy[2];
  for (int round = 0; round < 2 * rounds; ++round) {
    const Cost cost = bench.turn(round % 2 == 1);
    clock[round % 2].push_back(cost.clock);
    busy[round % 2].push_back(cost.processor);
  }
  const auto least = [](const std::vector<double>& all) { return *std::min_element(all.begin(), all.end()); };
  if (place.rank == 0)
    std::printf(
        "%d ranks: a step of %.0f us, with the question %.0f us (least of all turns: %.0f and %.0f); of the "
        "processor %.0f and %.0f us\n",
        place.world_size, median(clock[0]), median(clock[1]), least(clock[0]), least(clock[1]),
        median(busy[0]), median(busy[1]));
  rendezvous->leave();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const int ranks = count > 1 ? std::atoi(words[1]) : 2, rounds = count > 2 ? std::atoi(words[2]) : 200;
  return launch::run(ranks, [&](const RankPlace& place) { return run_rank(place, rounds); });
}
