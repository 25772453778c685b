// Collectives between processes of one machine: ours over shared memory with plain tensors and with tensors
// that lie in it, ours over Gloo, PyTorch's process group over Gloo, and a mere copy of as many bytes, taking
// turns. Bytes are those of the whole tensor.
//   bench_shared_memory [ranks] [rounds] [most bytes] [least bytes]
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "bench/torch_gloo.h"
#include "heddle/transport/join.h"
#include "heddle/transport/shared_memory.h"
#include "trainer/cli/launch/launch.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 7> kBytes = {4, 1024, 16384, 262144, 4 << 20, 16 << 20, 256 << 20};
constexpr std::array<const char*, 3> kNames = {"all_gather", "reduce_scatter", "all_reduce"};
constexpr int64_t kTouched = 16384;
constexpr double kTurn = 1.5e-3;  // seconds, about, for one contender's turn

// A second rendezvous of the same ranks, at a port that rank 0 finds.
std::unique_ptr<Rendezvous> meet_again(Rendezvous& first, RankPlace place) {
  std::string port = "0";
  if (place.rank == 0) {
    place.listen_fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (::bind(place.listen_fd, raw, length) != 0 || ::listen(place.listen_fd, SOMAXCONN) != 0 ||
        ::getsockname(place.listen_fd, raw, &length) != 0)
      throw std::runtime_error("no port");
    port = std::to_string(ntohs(address.sin_port));
  }
  place.port = std::stoi(first.exchange("port", port)[0]);
  GlooOptions options;
  options.shared_memory = 0;
  return mesh::join(place, options);
}

// Tensors of the contenders of one line. A gather from shared memory takes the part at its place in the
// whole, as a strategy's flat buffer holds it.
struct Tensors {
  at::Tensor whole, part;
};

struct Contender {
  std::function<void(int which, Tensors& on)> run;
  Tensors on = {};
  int times = 0;                                          // calls in a turn
  std::vector<double> microseconds = {}, processor = {};  // of the clock; of all threads of a rank
};

enum Who { kPlain, kShared, kGloo, kTorch, kCopy, kContenders };

void run_ours(Communicator& group, int which, Tensors& on) {
  if (which == 0) group.all_gather(on.whole, on.part)->wait();
  if (which == 1) group.reduce_scatter(on.part, on.whole, Reduce::sum)->wait();
  if (which == 2) group.all_reduce(on.whole, Reduce::sum)->wait();
}

void run_copy(Tensors& on) {
  std::memcpy(on.part.mutable_data_ptr(), on.whole.const_data_ptr(), on.whole.nbytes());
}

void run_torch(bench::TorchGloo& group, int which, Tensors& on) {
  if (which == 0) group.all_gather(on.whole, on.part);
  if (which == 1) group.reduce_scatter(on.part, on.whole);
  if (which == 2) group.all_reduce(on.whole);
}

// Time of one call, averaged over as many as fill a turn.
struct Seconds {
  double clock, processor;
};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// All ranks do equally many calls. What a call reads is written anew before it, as in training: lines that
// nobody changes would be read from the reader's own caches. Not for a few bytes, where two looks at the
// clock would count.
Seconds time_turn(Communicator& sync, int times, const std::function<void()>& touch,
                  const std::function<void()>& call) {
  auto one = at::ones({1});
  sync.all_reduce(one)->wait();
  Clock::duration untimed{};
  double unused = 0;
  const auto start = Clock::now();
  const double processor = processor_seconds();
  for (int i = 0; i < times; ++i) {
    if (touch) {
      const auto before = Clock::now();
      const double used = processor_seconds();
      touch();
      unused += processor_seconds() - used;
      untimed += Clock::now() - before;
    }
    call();
  }
  return {std::chrono::duration<double>(Clock::now() - start - untimed).count() / times,
          (processor_seconds() - processor - unused) / times};
}

int times_for(Communicator& sync, const std::function<void()>& call) {
  auto seconds = at::ones({1}, at::kDouble).mul_(time_turn(sync, 2, {}, call).clock);
  sync.all_reduce(seconds, Reduce::max)->wait();
  return std::clamp(static_cast<int>(kTurn / seconds.item<double>()), 1, 2000);
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Tensors tensors_for(int who, int which, int64_t bytes, Communicator& group) {
  const int64_t parts = group.size(), count = std::max<int64_t>(bytes / 4 / parts, 1);
  const int64_t all = which == 2 ? std::max<int64_t>(bytes / 4, 1) : count * parts;
  if (who == kCopy) return {at::ones({all}), at::ones({all})};
  if (who != kShared) return {at::ones({all}), at::ones({count})};
  auto whole = mesh::shared_empty(group, {all}, at::kFloat).fill_(1);
  return {whole, which == 2 ? whole : whole.narrow(0, group.rank() * count, count)};
}

void print(int which, int64_t bytes, std::vector<Contender>& all) {
  std::array<double, kContenders> clock{}, processor{};
  for (int i = 0; i < kContenders; ++i) {
    clock[i] = *std::min_element(all[i].microseconds.begin(), all[i].microseconds.end());
    processor[i] = median(all[i].processor);
  }
  std::printf("| %s | %ld |", kNames[which], bytes);
  for (int i = 0; i < kContenders; ++i) std::printf(i < 2 ? " %.2f |" : " %.1f |", clock[i]);
  for (const int ours : {kPlain, kShared})
    for (const int peer : {kTorch, kGloo}) std::printf(" %.1f |", clock[peer] / clock[ours]);
  for (const int peer : {kTorch, kGloo}) std::printf(" %.1f |", processor[peer] / processor[kPlain]);
  std::printf("\n");
  std::fflush(stdout);
}

void compare(int which, int64_t bytes, int rounds, Communicator& sync, std::vector<Contender>& contenders) {
  for (int who = 0; who < kContenders; ++who) {
    Contender& one = contenders[who];
    one.microseconds.clear(), one.processor.clear();
    one.on = tensors_for(who, which, bytes, sync);
    one.times = times_for(sync, [&] { one.run(which, one.on); });
  }
  for (int round = 0; round < rounds; ++round) {
    for (Contender& one : contenders) {
      one.on.whole.fill_(1), one.on.part.fill_(1);  // sums of sums grow
      const std::function<void()> touch = [&] { (which == 0 ? one.on.part : one.on.whole).fill_(1); };
      const Seconds seconds =
          time_turn(sync, one.times, bytes < kTouched ? nullptr : touch, [&] { one.run(which, one.on); });
      one.microseconds.push_back(1e6 * seconds.clock);
      one.processor.push_back(1e6 * seconds.processor);
    }
  }
  if (sync.rank() == 0) print(which, bytes, contenders);
  for (Contender& one : contenders) one.on = {};
}

// Cores are dealt in turn.
void keep_to_core(int rank) {
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank % cores, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

int run_rank(const RankPlace& place, const std::string& file, int rounds, int64_t most, int64_t least) {
  at::set_num_threads(1);
  const auto rendezvous = mesh::join(place);
  const auto slow = meet_again(*rendezvous, place);
  keep_to_core(place.rank);
  std::vector<int> ranks(place.world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  {
    const auto shared = rendezvous->group("shared", ranks), gloo = slow->group("gloo", ranks);
    bench::TorchGloo torch(file, place.rank, place.world_size);
    const auto ours = [](Communicator& group) {
      return [&group](int which, Tensors& on) { run_ours(group, which, on); };
    };
    std::vector<Contender> contenders(kContenders);
    contenders[kPlain].run = contenders[kShared].run = ours(*shared);
    contenders[kGloo].run = ours(*gloo);
    contenders[kTorch].run = [&](int which, Tensors& on) { run_torch(torch, which, on); };
    contenders[kCopy].run = [](int, Tensors& on) { run_copy(on); };
    for (const int64_t bytes : kBytes) {
      for (int which = 0; which < 3 && bytes <= most && bytes >= least; ++which)
        compare(which, bytes, bytes > (32 << 20) ? std::max(rounds / 8, 3) : rounds, *shared, contenders);
    }
  }
  slow->leave();
  rendezvous->leave();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 60;
  const int64_t most = count > 3 ? std::atoll(arguments[3]) : kBytes.back();
  const int64_t least = count > 4 ? std::atoll(arguments[4]) : 0;
  const std::string file =
      (std::filesystem::temp_directory_path() / ("heddle_bench." + std::to_string(::getpid()))).string();
  std::printf(
      "| %d ranks | bytes | plain, least us | shared | Gloo | torch | a copy | torch / plain | Gloo / plain "
      "| "
      "torch / shared | Gloo / shared | processor: torch / plain | Gloo / plain |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      ranks);
  std::fflush(stdout);
  const int status =
      launch::run(ranks, [&](const RankPlace& place) { return run_rank(place, file, rounds, most, least); });
  std::filesystem::remove(file);
  return status;
}
