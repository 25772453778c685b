// Hosts on a simulated network, and heddle runs on those hosts.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flow/program.h"
#include "host.h"

namespace hosts {

using flow::Words;

struct ClusterOptions {
  int hosts = 2;
  int ranks_per_host = 2;
  std::string rate = {};    // bandwidth of each host, as tc writes it ("100mbit"); empty: not limited
  bool ipv4 = true;         // false: hosts have IPv6 addresses only
  bool known_names = true;  // false: no host resolves the name of any host
};

// Hosts with one network interface each (eth0), connected by a switch. Host names resolve to
// addresses. Usage: `TwoHosts hosts;`, then hosts.train(recipe). Failing methods throw
// std::runtime_error.
class Cluster {
 public:
  explicit Cluster(ClusterOptions options = {});
  ~Cluster();  // kills every process of every host

  int ranks() const { return static_cast<int>(ranks_.size()); }
  int host_of(int rank) const { return rank / options_.ranks_per_host; }
  const std::string& name(int host) const { return host_at(host).name(); }
  std::string address(int host) const;

  // Call the following four methods before train(). environment(rank): variables of a rank, by default those
  // that torchrun sets. An empty value stays empty.
  Variables& environment(int rank) { return ranks_.at(rank).environment; }
  void set_everywhere(const std::string& variable, const std::string& value);
  // Runs a shell command on a host.
  void command(int host, const std::string& shell) const { host_at(host).command(shell); }
  // Bind-mounts the file or directory `source` at `place` on a host.
  void bind(int host, const std::string& source, const std::string& place) const;
  // Replaces /etc/hosts of a host.
  void write_hosts_file(int host, const std::string& text) const;

  // Starts `heddle train RECIPE WORDS` on every rank, after the ranks of an earlier call have exited.
  void train(const std::string& recipe, const Words& words = {});

  // Waits until all ranks have exited. Returns false if some rank still runs after `seconds`.
  bool wait(double seconds);
  // Polls `question` every 10 ms. Returns the seconds until it is true, or nullopt after `limit` seconds.
  std::optional<double> seconds_until(double limit, const std::function<bool()>& question);
  // Waits until rank 0 has printed this step. Returns false if the run exits first or after `limit` seconds.
  bool reaches_step(int step, double limit);
  bool is_running(int rank);
  // Exit status of a rank, 128 + N if signal N killed it, nullopt while it runs.
  std::optional<int> status(int rank);
  bool all_have_status(int status);
  std::string output(int rank) const;  // standard output so far
  std::string errors(int rank) const;  // standard error so far
  // Number of steps that rank 0 has printed.
  int steps() const;
  // Returns the status and the last output of every rank, for the message of a failed check.
  std::string report();

  void signal(int rank, int number) const;
  void pause(int host) const;   // stops all processes of the host with SIGSTOP
  void resume(int host) const;  // continues all processes of the host
  void connect(int host);       // plugs in the host's network cable
  void disconnect(int host);    // unplugs it: the host keeps its addresses and gets no notification
  // Kills all processes of the host at once, as a power failure does. No packet leaves the host.
  void power_off(int host);

 private:
  struct Rank {
    Variables environment = {};
    pid_t process = -1;
    std::optional<int> status = {};
  };

  const Host& host_at(int host) const { return *hosts_.at(host); }
  void connect_to_switch(int host) const;
  void write_names(int host) const;
  std::filesystem::path file(const char* kind, int rank) const;

  const ClusterOptions options_;
  const std::filesystem::path folder_;
  std::unique_ptr<Host> switch_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Rank> ranks_;
};

class TwoHosts : public Cluster {
 public:
  explicit TwoHosts(int ranks_per_host = 2) : Cluster({.ranks_per_host = ranks_per_host}) {}
};

}  // namespace hosts
