// The copies of tied parameters, which stay equal from step to step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/build.h"
#include "heddle/parallel/stages.h"

namespace heddle::parallel {

// Each of its stages holds a copy. `has_values`: make_units() gave it values, so it is not on meta.
struct TiedParameter {
  std::string name;
  std::vector<int> stages;  // ascending, at least two
  bool has_values = false;
  bool trains = false;
};

// Returns the parameters that several stages use, equal on every rank.
std::vector<TiedParameter> tied_parameters(const Units& units, const StageMap& map);

// Units of a stage get tensors of their own for parameters that stages in `earlier`, of the same rank, use
// too: strategies free and fill the tensors of each stage alone. Throws Error{config} for a foreign module.
void separate_copies(const Units& units, int stage, std::span<const int> earlier,
                     const std::vector<TiedParameter>& tied);

// Keeps the copies equal: they begin with the values of the first stage, and the gradient of each is the sum
// over all stages (Megatron's all-reduce among the ranks of the embedding), so that equal updates follow.
// Each rank sends the parts of its shards that other stages' ranks hold, whatever the two shards' layouts
// are.
class TiedCopies {
 public:
  // A collective of all ranks. Sets Shard::tied_to_earlier. The shards must outlive this and not move. Throws
  // Error{plugin_failed} on every rank if two stages split a parameter along different axes.
  TiedCopies(const std::vector<TiedParameter>& tied, Stages& stages, const DeviceMesh& mesh);

  // Collectives of the ranks that hold copies.
  void send_values();    // of parameters that are `has_values`
  void add_gradients();  // a copy without a gradient counts as zero

 private:
  struct Holding {  // one shard of one rank
    int rank = 0;   // in `ranks`
    int stage = 0;
    std::vector<int64_t> offset, size;
    Shard* shard = nullptr;  // null: another rank's
  };
  struct Transfer {  // the elements that both hold
    const Holding *from = nullptr, *to = nullptr;
    std::vector<int64_t> offset, size;
  };
  struct Copies {  // of one parameter
    Communicator* ranks = nullptr;
    int first = 0;  // stage
    size_t stages = 0;
    bool has_values = false, trains = false;
    std::vector<Holding> holdings;
    std::vector<Transfer> transfers;  // in one order on every rank
  };
  using Pieces = std::vector<at::Tensor>;  // of each transfer; undefined: it does not reach this rank

  static std::vector<Holding> own_holdings(const TiedParameter& parameter, Stages& stages, int rank);
  static std::vector<Holding> all_holdings(const TiedParameter& parameter, Stages& stages,
                                           const DeviceMesh& mesh, Communicator& ranks,
                                           const std::string& axes);
  static std::vector<Holding> assumed_holdings(const TiedParameter& parameter, std::vector<Holding> own,
                                               const Stages& stages, const DeviceMesh& mesh,
                                               const std::string& axes);
  static void plan(Copies& copies);
  static Pieces exchange(const Copies& copies, bool gradients);
  static void add(const Copies& copies, const Pieces& pieces, const Holding& holding);

  std::vector<Copies> copies_;
};

}  // namespace heddle::parallel
