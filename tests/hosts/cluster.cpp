// A network switch, its hosts, and the ranks that run on the hosts.
#include "cluster.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <thread>

#include "flow/stops/started.h"

namespace hosts {
namespace {

constexpr int kPort = 29500;  // fixed: each cluster has its own network namespaces

std::filesystem::path make_folder() {
  std::string place = (std::filesystem::temp_directory_path() / "heddle_hosts_XXXXXX").string();
  if (mkdtemp(place.data()) == nullptr) throw std::runtime_error("cannot create " + place);
  return place;
}

std::string end_of_text(const std::string& text) {
  constexpr size_t kShown = 1500;
  return text.size() <= kShown ? text : "..." + text.substr(text.size() - kShown);
}

}  // namespace

Cluster::Cluster(ClusterOptions options) : options_(std::move(options)), folder_(make_folder()) {
  static int clusters = 0;
  const std::string prefix = "heddle" + std::to_string(::getpid()) + "-" + std::to_string(++clusters);
  switch_ = std::make_unique<Host>(prefix + "-switch");
  switch_->network_command("ip link add bridge0 type bridge && ip link set bridge0 up");
  for (int host = 0; host < options_.hosts; ++host) {
    hosts_.push_back(std::make_unique<Host>(prefix + static_cast<char>('a' + host)));
    connect_to_switch(host);
  }
  for (int host = 0; host < options_.hosts; ++host) write_names(host);
  ranks_.resize(options_.hosts * options_.ranks_per_host);
  for (int rank = 0; rank < ranks(); ++rank)
    environment(rank) = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(ranks())},
                         {"LOCAL_RANK", std::to_string(rank % options_.ranks_per_host)},
                         {"LOCAL_WORLD_SIZE", std::to_string(options_.ranks_per_host)},
                         {"MASTER_ADDR", address(0)},
                         {"MASTER_PORT", std::to_string(kPort)},
                         {"OMP_NUM_THREADS", "1"}};
}

Cluster::~Cluster() {
  for (const auto& host : hosts_) host->signal_all(SIGKILL);
  // A host terminates when its processes are reaped, which is left to their parent.
  for (const Rank& rank : ranks_)
    if (rank.process > 0) ::waitpid(rank.process, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Cluster::address(int host) const {
  return (options_.ipv4 ? "10.79.0." : "fd79::") + std::to_string(host + 1);
}

void Cluster::connect_to_switch(int host) const {
  const std::string port = "port" + std::to_string(host);
  // `ip` takes the process id on this machine.
  switch_->network_command("ip link add " + port + " type veth peer name eth0 netns " +
                           std::to_string(host_at(host).first_process()) + " && ip link set " + port +
                           " master bridge0 && ip link set " + port + " up");
  std::string set_up =
      "ip link set lo up; ip link set eth0 up; ip -6 addr add fd79::" + std::to_string(host + 1) +
      "/64 dev eth0 nodad";
  if (options_.ipv4) set_up += "; ip addr add " + address(host) + "/24 dev eth0";
  if (!options_.rate.empty())
    set_up += "; tc qdisc add dev eth0 root tbf rate " + options_.rate + " burst 256kb latency 100ms";
  host_at(host).network_command(set_up);
}

void Cluster::write_names(int host) const {
  std::string text = "127.0.0.1 localhost\n::1 localhost\n";
  if (options_.known_names)
    for (size_t other = 0; other < hosts_.size(); ++other)
      text += address(static_cast<int>(other)) + " " + hosts_[other]->name() + "\n";
  write_hosts_file(host, text);
  // No name server: names resolve through /etc/hosts only.
  std::ofstream(folder_ / "resolv.conf") << "";
  if (std::filesystem::exists("/etc/resolv.conf")) bind(host, folder_ / "resolv.conf", "/etc/resolv.conf");
}

void Cluster::set_everywhere(const std::string& variable, const std::string& value) {
  for (Rank& rank : ranks_) rank.environment[variable] = value;
}

void Cluster::bind(int host, const std::string& source, const std::string& place) const {
  command(host, "mount --bind '" + source + "' \"$(readlink -f '" + place + "')\"");
}

void Cluster::write_hosts_file(int host, const std::string& text) const {
  const std::filesystem::path file = folder_ / ("hosts" + std::to_string(host));
  const bool is_bound = std::filesystem::exists(file);
  std::ofstream(file) << text;
  if (!is_bound) bind(host, file, "/etc/hosts");
}

std::filesystem::path Cluster::file(const char* kind, int rank) const {
  return folder_ / (kind + std::to_string(rank));
}

void Cluster::train(const std::string& recipe, const Words& words) {
  const Words command = flow::plus({HEDDLE_BINARY_DIR "/heddle", "train", recipe}, words);
  for (int rank = 0; rank < ranks(); ++rank) {
    if (is_running(rank)) throw std::runtime_error("rank " + std::to_string(rank) + " still runs");
    for (const char* kind : {"output", "errors"}) std::filesystem::remove(file(kind, rank));
    ranks_[rank].process =
        host_at(host_of(rank))
            .start(command, ranks_[rank].environment, file("output", rank), file("errors", rank));
    ranks_[rank].status.reset();
  }
}

bool Cluster::is_running(int rank) {
  return ranks_.at(rank).process > 0 && !status(rank);
}

std::optional<int> Cluster::status(int rank) {
  Rank& of_rank = ranks_.at(rank);
  int state = 0;
  if (of_rank.process > 0 && ::waitpid(of_rank.process, &state, WNOHANG) == of_rank.process) {
    of_rank.process = -1;
    of_rank.status = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
  }
  return of_rank.status;
}

bool Cluster::all_have_status(int status) {
  bool all = true;
  for (int rank = 0; rank < ranks(); ++rank) all = all && this->status(rank) == status;
  return all;
}

std::optional<double> Cluster::seconds_until(double limit, const std::function<bool()>& question) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (question()) return elapsed.count();
    if (elapsed.count() >= limit) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool Cluster::wait(double seconds) {
  return seconds_until(seconds,
                       [&] {
                         bool ended = true;
                         for (int rank = 0; rank < ranks(); ++rank) ended = ended && !is_running(rank);
                         return ended;
                       })
      .has_value();
}

bool Cluster::reaches_step(int step, double limit) {
  return seconds_until(limit, [&] { return steps() >= step || wait(0); }) && steps() >= step;
}

std::string Cluster::output(int rank) const {
  return flow::read_text(file("output", rank));
}

std::string Cluster::errors(int rank) const {
  return flow::read_text(file("errors", rank));
}

int Cluster::steps() const {
  static const std::regex kStep("step ([0-9]+)/");
  const std::string text = output(0) + errors(0);
  int last = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), kStep), end; at != end; ++at)
    last = std::max(last, std::stoi((*at)[1]));
  return last;
}

std::string Cluster::report() {
  std::string text;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::optional<int> ended = status(rank);
    text += "--- rank " + std::to_string(rank) + " on " + name(host_of(rank)) + ", " +
            (ended ? "status " + std::to_string(*ended) : "running") + "\n" + end_of_text(output(rank)) +
            end_of_text(errors(rank));
  }
  return text;
}

void Cluster::signal(int rank, int number) const {
  if (ranks_.at(rank).process > 0) ::kill(ranks_.at(rank).process, number);
}

void Cluster::pause(int host) const {
  host_at(host).signal_all(SIGSTOP);
}

void Cluster::resume(int host) const {
  host_at(host).signal_all(SIGCONT);
}

void Cluster::connect(int host) {
  switch_->network_command("ip link set port" + std::to_string(host) + " up");
}

void Cluster::disconnect(int host) {
  switch_->network_command("ip link set port" + std::to_string(host) + " down");
}

void Cluster::power_off(int host) {
  disconnect(host);
  host_at(host).signal_all(SIGKILL);
}

}  // namespace hosts
