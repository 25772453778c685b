// The environments of torchrun, OpenMPI and Slurm.
#include "heddle/transport/rank_place.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "lib/transport/launch/loopback.h"

namespace heddle {
namespace {

constexpr int kMostRanks = 1 << 24;
constexpr int kFirstPort = 20000, kPorts = 12000;  // below the range that Linux gives to outgoing connections

[[noreturn]] void refuse(const std::string& name, const std::string& what, const std::string& hint = "") {
  throw Error(ErrorCode::usage, "environment " + name, what, hint);
}

class Variables {
 public:
  explicit Variables(const Environment& look) : look_(look) {}

  bool has(const char* name) const { return look_(name) != nullptr; }

  std::string text(const char* name) const {
    const char* value = look_(name);
    return value == nullptr ? "" : value;
  }

  int number(const char* name, int least, int most) const {
    const char* given = look_(name);
    if (given == nullptr) refuse(name, "is not set, although the launcher's other variables are", hint());
    const std::string_view word(given);
    int value = 0;
    const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (fault != std::errc() || end != word.data() + word.size() || value < least || value > most) {
      refuse(name, "is '" + std::string(word) + "'; a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most) + " is needed");
    }
    return value;
  }

  int number_or(const char* name, int otherwise, int least, int most) const {
    return has(name) ? number(name, least, most) : otherwise;
  }

  static std::string hint() {
    return "start the ranks with torchrun, srun or mpirun, or unset its variables and use --nproc-per-node";
  }

 private:
  const Environment& look_;
};

// Returns a port that is equal on every rank of a job and differs between most jobs.
int port_of(const std::string& job) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const unsigned char c : job) hash = (hash ^ c) * 16777619u;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

void read_local(const Variables& variables, RankPlace& place, const char* rank, const char* size) {
  if (!variables.has(rank) && !variables.has(size)) {
    // Without information about machines: one machine if all meet on the loopback address, else one rank per
    // machine.
    const bool together = is_loopback(place.host);
    place.local_rank = together ? place.rank : 0;
    place.local_world_size = together ? place.world_size : 1;
    return;
  }
  place.local_world_size = variables.number(size, 1, place.world_size);
  place.local_rank = variables.number(rank, 0, place.local_world_size - 1);
}

void read_master(const Variables& variables, RankPlace& place) {
  if (variables.has("MASTER_ADDR")) place.host = variables.text("MASTER_ADDR");
  const bool has_port = std::count(place.host.begin(), place.host.end(), ':') == 1;
  if (place.world_size > 1 && (has_port || place.host.find_first_of("[]") != std::string::npos))
    refuse("MASTER_ADDR", "is '" + place.host + "', which is not a name or an address",
           "Set MASTER_ADDR to a name or an address alone, without brackets, and MASTER_PORT to the port.");
  place.port = variables.number_or("MASTER_PORT", place.port, 1, 65535);
}

RankPlace from_torchrun(const Variables& variables) {
  RankPlace place;
  place.launcher = "torchrun";
  place.world_size = variables.number("WORLD_SIZE", 1, kMostRanks);
  place.rank = variables.number("RANK", 0, place.world_size - 1);
  if (place.world_size > 1) {
    if (!variables.has("MASTER_ADDR"))
      refuse("MASTER_ADDR", "is not set, although RANK is", Variables::hint());
    variables.number("MASTER_PORT", 1, 65535);
  }
  read_master(variables, place);
  read_local(variables, place, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  place.store_served = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.session = variables.text("TORCHELASTIC_RESTART_COUNT");
  return place;
}

RankPlace from_openmpi(const Variables& variables) {
  RankPlace place;
  place.launcher = "openmpi";
  place.world_size = variables.number("OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  place.rank = variables.number("OMPI_COMM_WORLD_RANK", 0, place.world_size - 1);
  read_local(variables, place, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (place.local_world_size < place.world_size && !variables.has("MASTER_ADDR")) {
    refuse("MASTER_ADDR", "is not set, and the ranks are on several machines",
           "give every rank the host of rank 0: mpirun -x MASTER_ADDR=HOST ...");
  }
  std::string job = variables.text("PMIX_NAMESPACE");
  if (job.empty()) job = variables.text("OMPI_MCA_ess_base_jobid");
  if (job.empty()) job = std::to_string(::getppid());
  place.port = port_of(job);
  read_master(variables, place);
  return place;
}

// "gpu[003-006,9],login1" -> "gpu003"
std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket + 1);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

// "2(x3),1" -> {2, 2, 2, 1}
std::vector<int> tasks_per_node(const std::string& list) {
  std::vector<int> counts;
  size_t at = 0;
  while (at < list.size()) {
    int count = 0, times = 1;
    const char* end = list.data() + list.size();
    auto read = std::from_chars(list.data() + at, end, count);
    if (read.ec == std::errc() && read.ptr + 1 < end && read.ptr[0] == '(' && read.ptr[1] == 'x') {
      read = std::from_chars(read.ptr + 2, end, times);
      if (read.ec == std::errc() && read.ptr < end && *read.ptr == ')') ++read.ptr;
    }
    at = read.ptr - list.data();
    if (read.ec != std::errc() || count < 1 || times < 1 || times > kMostRanks ||
        (at < list.size() && list[at] != ',')) {
      refuse("SLURM_TASKS_PER_NODE", "is '" + list + "'; counts like '2(x3),1' are needed");
    }
    counts.insert(counts.end(), times, count);
    ++at;
  }
  return counts;
}

int slurm_local_size(const Variables& variables, const RankPlace& place) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (!variables.has(name)) continue;
    const auto counts = tasks_per_node(variables.text(name));
    const int node = variables.number_or("SLURM_NODEID", 0, 0, static_cast<int>(counts.size()) - 1);
    return std::min(counts.at(node), place.world_size);
  }
  if (variables.has("SLURM_NTASKS_PER_NODE")) {
    return std::min(variables.number("SLURM_NTASKS_PER_NODE", 1, kMostRanks), place.world_size);
  }
  if (variables.number_or("SLURM_NNODES", 0, 0, kMostRanks) == 1) return place.world_size;
  refuse("SLURM_NTASKS_PER_NODE", "is not set, nor is SLURM_TASKS_PER_NODE, although SLURM_PROCID is",
         Variables::hint());
}

RankPlace from_slurm(const Variables& variables) {
  RankPlace place;
  place.launcher = "slurm";
  const bool step = variables.has("SLURM_STEP_NUM_TASKS");
  place.world_size = variables.number(step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", 1, kMostRanks);
  place.rank = variables.number("SLURM_PROCID", 0, place.world_size - 1);
  place.local_world_size = slurm_local_size(variables, place);
  place.local_rank = variables.number("SLURM_LOCALID", 0, place.local_world_size - 1);
  if (place.local_world_size < place.world_size) {
    std::string hosts = variables.text("SLURM_STEP_NODELIST");
    if (hosts.empty()) hosts = variables.text("SLURM_NODELIST");
    if (hosts.empty()) hosts = variables.text("SLURM_JOB_NODELIST");
    if (hosts.empty() && !variables.has("MASTER_ADDR")) {
      refuse("SLURM_NODELIST", "is not set, and the ranks are on several machines", Variables::hint());
    }
    place.host = first_host(hosts);
  }
  place.port = port_of(variables.text("SLURM_JOB_ID") + "." + variables.text("SLURM_STEP_ID"));
  read_master(variables, place);
  return place;
}

}  // namespace

std::optional<RankPlace> place_from_environment(const Environment& environment) {
  const Variables variables(environment);
  if (variables.has("RANK") || variables.has("LOCAL_RANK")) return from_torchrun(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("OMPI_COMM_WORLD_SIZE"))
    return from_openmpi(variables);
  if (variables.has("SLURM_PROCID")) return from_slurm(variables);
  if (variables.has("WORLD_SIZE")) return from_torchrun(variables);  // half of an environment: an error
  return std::nullopt;
}

std::optional<RankPlace> place_from_environment() {
  return place_from_environment([](const char* name) -> const char* { return std::getenv(name); });
}

int threads_per_rank(int local_world_size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const long cores = known ? CPU_COUNT(&allowed) : ::sysconf(_SC_NPROCESSORS_ONLN);
  return std::max(1, static_cast<int>(cores) / std::max(1, local_world_size));
}

}  // namespace heddle
