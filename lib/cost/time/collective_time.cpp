// Times of rings and trees over the links within and between nodes, after NCCL's own model
// (src/graph/tuning.cc).
#include "lib/cost/time/collective_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

namespace heddle {
namespace {

// Shares of bandwidth and step latency of NCCL's protocols: LL (words with flags), LL128 (lines of 128 bytes
// with flags) and Simple (chunks).
struct Protocol {
  double bandwidth, base, step, network_step;
};
constexpr std::array kRings = {Protocol{0.3, 0.79, 0.18, 0.19}, Protocol{0.92, 1.67, 0.56, 0.29},
                               Protocol{1, 1, 1, 1}};
constexpr std::array kTrees = {Protocol{0.27, 0.81, 0.18, 0.36}, Protocol{0.83, 1.67, 0.37, 0.61},
                               Protocol{0.9, 1, 1.18, 1}};
constexpr double kPairwise = 0.8;  // share of the bandwidth in all-to-all and pairwise transfers
constexpr double kPeer = 0.5e-6;   // seconds per peer of an all-to-all
// Maximum size of a group of CPU ranks whose ranks send their parts to all others (lib/transport/gloo).
constexpr int kFewRanks = 16;

struct Links {
  const GroupPlace& place;
  const MachineFile& machine;

  bool crosses() const { return place.nodes > 1; }
  // Bandwidth of a rank in a ring, with the node's network shared by its ranks.
  double bandwidth() const {
    return crosses() ? std::min(machine.node_bandwidth, place.on_node * machine.network_bandwidth)
                     : machine.node_bandwidth;
  }

  // Time in which each rank sends a part of `bytes` to each other rank, or null for a group that uses rings.
  std::optional<double> direct(double bytes) const {
    if (!crosses() || machine.device != "cpu" || place.ranks > kFewRanks) return std::nullopt;
    return machine.collective_seconds + machine.network_latency +
           bytes * (place.ranks - place.on_node) / place.ranks / machine.network_bandwidth;
  }

  double ring(double rounds, double bytes) const {
    double best = 0;
    for (const Protocol& protocol : kRings) {
      const double between = crosses() ? place.nodes - 1 : 0, within = place.ranks - 1 - between;
      const double seconds = machine.collective_seconds * protocol.base +
                             rounds * (within * machine.node_latency * protocol.step +
                                       between * machine.network_latency * protocol.network_step) +
                             bytes / (bandwidth() * protocol.bandwidth);
      if (best == 0 || seconds < best) best = seconds;
    }
    return best;
  }

  double tree(double bytes) const {
    double best = 0;
    for (const Protocol& protocol : kTrees) {
      const double within = std::max(1, place.ranks / place.nodes) - 1, between = std::log2(place.nodes);
      const double seconds = machine.collective_seconds * protocol.base +
                             2 * (within * machine.node_latency * protocol.step +
                                  between * machine.network_latency * protocol.network_step) +
                             bytes / (bandwidth() * protocol.bandwidth);
      if (best == 0 || seconds < best) best = seconds;
    }
    return best;
  }

  double all_to_all(double bytes) const {
    const double within = bytes * (place.on_node - 1) / place.ranks / (machine.node_bandwidth * kPairwise);
    const double between =
        crosses() ? bytes * (place.ranks - place.on_node) / place.ranks / machine.network_bandwidth : 0;
    return machine.collective_seconds + place.ranks * kPeer + std::max(within, between);
  }
};

}  // namespace

GroupPlace group_place(std::span<const int> ranks, const MachineFile& machine) {
  std::map<int64_t, int> on;
  GroupPlace place{std::max(1, static_cast<int>(ranks.size()))};
  for (const int rank : ranks) place.on_node = std::max(place.on_node, ++on[rank / machine.node_devices]);
  place.nodes = std::max(1, static_cast<int>(on.size()));
  return place;
}

double collective_seconds(const DryEntry& entry, const GroupPlace& place, const MachineFile& machine) {
  if (entry.on_host || place.ranks == 1 || machine.node_bandwidth <= 0) return 0;
  const Links links{place, machine};
  const auto bytes = static_cast<double>(entry.bytes);
  const double others = bytes * (place.ranks - 1) / place.ranks;
  using mesh::Operation;
  switch (entry.operation) {
    case Operation::all_gather:
    case Operation::reduce_scatter:
      return links.direct(bytes).value_or(links.ring(1, others));
    case Operation::all_reduce:
      if (const auto once = links.direct(bytes)) return 2 * *once;
      return std::min(links.ring(2, 2 * others), links.tree(2 * others));
    case Operation::all_to_all:
      return links.all_to_all(bytes);
    case Operation::broadcast:
      return links.ring(1, bytes);
    default:
      return machine.collective_seconds +
             bytes / (links.crosses() ? machine.network_bandwidth : machine.node_bandwidth * kPairwise);
  }
}

}  // namespace heddle
