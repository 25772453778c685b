// Collectives between processes of one machine: ours over shared memory, ours over Gloo, and PyTorch's
// process group over Gloo, taking turns. Bytes are those of the whole tensor.
//   bench_shared_memory [ranks] [rounds] [most bytes]
#include <ATen/Parallel.h>
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
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "bench/torch_gloo.h"
#include "heddle/mesh/gloo.h"
#include "trainer/cli/launch.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 7> kBytes = {4, 1024, 16384, 262144, 4 << 20, 16 << 20, 256 << 20};
constexpr std::array<const char*, 3> kNames = {"all_gather", "reduce_scatter", "all_reduce"};
constexpr double kTurn = 1.5e-3;  // seconds, about, for one contender's turn

// A second meeting of the same ranks, at a port that rank 0 finds.
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

struct Contender {
  std::function<void(int which, at::Tensor& whole, at::Tensor& part)> run;
  std::vector<double> microseconds = {}, processor = {};  // of the clock; of all threads of a rank
};

void run_ours(Communicator& group, int which, at::Tensor& whole, at::Tensor& part) {
  if (which == 0) group.all_gather(whole, part)->wait();
  if (which == 1) group.reduce_scatter(part, whole, Reduce::sum)->wait();
  if (which == 2) group.all_reduce(whole, Reduce::sum)->wait();
}

void run_torch(bench::TorchGloo& group, int which, at::Tensor& whole, at::Tensor& part) {
  if (which == 0) group.all_gather(whole, part);
  if (which == 1) group.reduce_scatter(part, whole);
  if (which == 2) group.all_reduce(whole);
}

// Of one call, over as many as fill a turn.
struct Seconds {
  double clock, processor;
};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// All ranks do equally many calls.
Seconds time_turn(Communicator& sync, int times, const std::function<void()>& call) {
  auto one = at::ones({1});
  sync.all_reduce(one)->wait();
  const auto start = Clock::now();
  const double processor = processor_seconds();
  for (int i = 0; i < times; ++i) call();
  return {std::chrono::duration<double>(Clock::now() - start).count() / times,
          (processor_seconds() - processor) / times};
}

int times_for(Communicator& sync, const std::function<void()>& call) {
  auto seconds = at::ones({1}, at::kDouble).mul_(time_turn(sync, 2, call).clock);
  sync.all_reduce(seconds, Reduce::max)->wait();
  return std::clamp(static_cast<int>(kTurn / seconds.item<double>()), 1, 2000);
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(int which, int64_t bytes, int rounds, Communicator& sync, std::vector<Contender>& contenders) {
  const int64_t count = std::max<int64_t>(bytes / 4 / sync.size(), 1);
  auto whole = at::ones({which == 2 ? std::max<int64_t>(bytes / 4, 1) : count * sync.size()});
  auto part = at::ones({count});
  std::vector<int> times;
  for (Contender& one : contenders) {
    one.microseconds.clear(), one.processor.clear();
    times.push_back(times_for(sync, [&] { one.run(which, whole, part); }));
    whole.fill_(1), part.fill_(1);
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const auto call = [&] { contenders[i].run(which, whole, part); };
      const Seconds seconds = time_turn(sync, times[i], call);
      contenders[i].microseconds.push_back(1e6 * seconds.clock);
      contenders[i].processor.push_back(1e6 * seconds.processor);
    }
    whole.fill_(1), part.fill_(1);  // sums of sums grow
  }
  if (sync.rank() != 0) return;
  std::array<double, 3> clock{}, processor{};
  for (int i = 0; i < 3; ++i) {
    clock[i] = *std::min_element(contenders[i].microseconds.begin(), contenders[i].microseconds.end());
    processor[i] = median(contenders[i].processor);
  }
  std::printf("| %s | %ld | %.2f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", kNames[which], bytes,
              clock[0], clock[1], clock[2], clock[1] / clock[0], clock[2] / clock[0],
              processor[1] / processor[0], processor[2] / processor[0]);
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

int run_rank(const RankPlace& place, const std::string& file, int rounds, int64_t most) {
  at::set_num_threads(1);
  const auto meeting = mesh::join(place);
  const auto slow = meet_again(*meeting, place);
  keep_to_core(place.rank);
  std::vector<int> ranks(place.world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  {
    const auto shared = meeting->group("shared", ranks), gloo = slow->group("gloo", ranks);
    bench::TorchGloo torch(file, place.rank, place.world_size);
    std::vector<Contender> contenders;
    for (Communicator* group : {shared.get(), gloo.get()})
      contenders.push_back(
          {[=](int which, auto& whole, auto& part) { run_ours(*group, which, whole, part); }});
    contenders.push_back({[&](int which, auto& whole, auto& part) { run_torch(torch, which, whole, part); }});
    for (const int64_t bytes : kBytes) {
      for (int which = 0; which < 3 && bytes <= most; ++which)
        compare(which, bytes, bytes > (32 << 20) ? std::max(rounds / 8, 3) : rounds, *shared, contenders);
    }
  }
  slow->leave();
  meeting->leave();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 60;
  const int64_t most = count > 3 ? std::atoll(arguments[3]) : kBytes.back();
  const std::string file =
      (std::filesystem::temp_directory_path() / ("heddle_bench." + std::to_string(::getpid()))).string();
  std::printf(
      "| %d ranks | bytes | shared, least us | Gloo | torch | Gloo / shared | torch / shared | processor: "
      "Gloo "
      "| "
      "torch |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      ranks);
  std::fflush(stdout);
  const int status =
      launch::run(ranks, [&](const RankPlace& place) { return run_rank(place, file, rounds, most); });
  std::filesystem::remove(file);
  return status;
}
