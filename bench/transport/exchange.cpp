// The exchanges of tokens between the processes of one machine, as expert parallelism asks for them: rows to
// their experts' ranks and back (all_to_all), all rows to all ranks (all_gather), sums back (reduce_scatter),
// against a mere copy of as many bytes in each rank: out of its own memory, and out of the memory of all
// ranks in the same parts, which is the least that an exchange can cost. The contenders take turns.
//   bench_exchange [ranks] [rounds] [width] [least rows] [most rows]
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "heddle/transport/join.h"
#include "trainer/cli/launch/launch.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 6> kRows = {64, 256, 1024, 4096, 16384, 65536};
constexpr std::array<const char*, 4> kNames = {"all_to_all", "all_to_all, uneven", "all_gather",
                                               "reduce_scatter"};
constexpr double kTurn = 2e-3;  // seconds, about, of one contender's turn

// `rows` is what a rank has after the exchange (all_to_all, all_gather) or before it (reduce_scatter).
class Exchange {
 public:
  Exchange(size_t which, int64_t rows, int64_t width, Communicator& group) : which_(which), group_(group) {
    const int64_t ranks = group.size(), share = rows / ranks;
    // Three quarters of the rows stay, or leave.
    const int64_t most = which == 1 ? share * 3 / 2 : share;
    for (int64_t peer = 0; peer < ranks; ++peer)
      sent_.push_back(ranks == 2 && which == 1 ? (peer == group.rank() ? rows - most : most) : share);
    const int64_t whole = share * ranks;
    large_ = at::ones({whole, width});
    other_ = at::ones({which < 2 ? whole : share, width});
  }
  void touch() { (which_ == 2 ? other_ : large_).fill_(1); }
  void run() {
    if (which_ < 2) group_.all_to_all(other_, large_, sent_, sent_)->wait();
    if (which_ == 2) group_.all_gather(large_, other_)->wait();
    if (which_ == 3) group_.reduce_scatter(other_, large_)->wait();
  }
  // From or to each rank; also where the collective takes no counts.
  std::vector<int64_t> parts() const {
    std::vector<int64_t> out;
    for (const int64_t rows : sent_) out.push_back(rows * large_.size(1) * 4);
    return out;
  }
  int64_t bytes() const { return static_cast<int64_t>(large_.nbytes()); }

 private:
  size_t which_;
  Communicator& group_;
  std::vector<int64_t> sent_;
  at::Tensor large_, other_;
};

// Seconds of one call. What it reads is written anew before it, untimed, as in training.
double time_turn(Communicator& sync, int times, const std::function<void()>& touch,
                 const std::function<void()>& call) {
  auto one = at::ones({1});
  Clock::duration spent{};
  for (int i = 0; i < times; ++i) {
    touch();
    sync.all_reduce(one)->wait();
    const auto start = Clock::now();
    call();
    spent += Clock::now() - start;
  }
  return std::chrono::duration<double>(spent).count() / times;
}

struct Times {
  std::vector<double> exchange, copy, theirs;
};

// Memory of all ranks, made before they are forked: a range for each.
struct Mapped {
  Mapped(int ranks, int64_t bytes)
      : each(bytes),
        start(static_cast<char*>(::mmap(nullptr, static_cast<size_t>(ranks * bytes), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (start == MAP_FAILED) throw std::bad_alloc();
  }
  char* of(int rank) const { return start + rank * each; }
  const int64_t each;
  char* const start;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return 1e6 * values[values.size() / 2];
}

double least(const std::vector<double>& values) {
  return 1e6 * *std::min_element(values.begin(), values.end());
}

void compare(size_t which, int64_t rows, int64_t width, int rounds, const Mapped& mapped,
             Communicator& group) {
  Exchange exchange(which, rows, width, group);
  const at::Tensor from = at::ones({exchange.bytes() / 4}), to = at::ones({exchange.bytes() / 4});
  const auto run = [&] { exchange.run(); };
  const auto touch = [&] { exchange.touch(); };
  const auto copy = [&] {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), static_cast<size_t>(exchange.bytes()));
  };
  const auto touch_copy = [&] { at::Tensor(from).fill_(1); };
  const std::vector<int64_t> parts = exchange.parts();
  const auto copy_theirs = [&] {
    int64_t at = 0;
    for (int step = 1; step <= group.size(); ++step) {
      const int peer = (group.rank() + step) % group.size();
      std::memcpy(to.mutable_data_ptr<float>() + at / 4, mapped.of(peer) + at,
                  static_cast<size_t>(parts[peer]));
      at += parts[peer];
    }
  };
  const auto touch_theirs = [&] {
    std::fill_n(reinterpret_cast<float*>(mapped.of(group.rank())), exchange.bytes() / 4, 1.0F);
  };
  auto estimate = at::full({1}, time_turn(group, 3, touch, run), at::kDouble);
  group.all_reduce(estimate, Reduce::max)->wait();
  const int times = std::clamp(static_cast<int>(kTurn / estimate.item<double>()), 1, 500);
  Times all;
  for (int round = 0; round < rounds; ++round) {
    all.exchange.push_back(time_turn(group, times, touch, run));
    all.copy.push_back(time_turn(group, times, touch_copy, copy));
    all.theirs.push_back(time_turn(group, times, touch_theirs, copy_theirs));
  }
  if (group.rank() != 0) return;
  const double ours = least(all.exchange), own = least(all.copy), theirs = least(all.theirs);
  std::printf("| %s | %ld | %ld | %.1f | %.1f | %.1f | %.2f | %.2f | %.1f | %.2f | %.2f |\n", kNames[which],
              rows, exchange.bytes(), ours, own, theirs, ours / own, ours / theirs, median(all.exchange),
              median(all.exchange) / median(all.copy), median(all.exchange) / median(all.theirs));
  std::fflush(stdout);
}

// Cores are dealt in turn.
void keep_to_core(int rank) {
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank % cores, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

int run_rank(const RankPlace& place, const Mapped& mapped, int rounds, int64_t width,
             std::pair<int64_t, int64_t> range) {
  at::set_num_threads(1);
  const auto rendezvous = mesh::join(place);
  keep_to_core(place.rank);
  std::vector<int> ranks(static_cast<size_t>(place.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  {
    const auto group = rendezvous->group("ep", ranks);
    for (const int64_t rows : kRows)
      for (size_t which = 0; which < kNames.size() && rows >= range.first && rows <= range.second; ++which)
        compare(which, rows, width, rows >= 16384 ? std::max(rounds / 4, 3) : rounds, mapped, *group);
  }
  rendezvous->leave();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 60;
  const int64_t width = count > 3 ? std::atoll(arguments[3]) : 256;
  std::printf(
      "| %d ranks, width %ld | rows | bytes | least us | a copy | of all ranks' memory | ratio | ratio | "
      "median us "
      "| ratio | ratio |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      ranks, width);
  std::fflush(stdout);
  const std::pair<int64_t, int64_t> range(count > 4 ? std::atoll(arguments[4]) : 0,
                                          count > 5 ? std::atoll(arguments[5]) : kRows.back());
  const Mapped mapped(ranks, kRows.back() * width * 4);
  return launch::run(ranks,
                     [&](const RankPlace& place) { return run_rank(place, mapped, rounds, width, range); });
}
