// The units of one stage and the groups of their parameters.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gradients.h"
#include "group.h"

namespace heddle::fsdp2 {

// Over which ranks a parameter is sharded, by its name.
using Places = std::function<Place(const std::string& parameter)>;

// Units, and the groups of their parameters in execution order; a group is owned by the first unit that uses
// it.
class Model {
 public:
  Model(Units units, std::span<const Placed> placed, const Places& places, std::vector<Stay> stays,
        Frozen frozen);

  struct Run {  // one unit's turn in the forward
    Unit* unit;
    std::vector<Group*> groups;  // its own, and those of earlier units that it shares a tied parameter with
    Stay stay;
    bool pinned = false;  // its model chose the dtype of every parameter: inputs and outputs stay as well
    bool uses(const Group* group) const {
      return std::find(groups.begin(), groups.end(), group) != groups.end();
    }
  };
  void place_gradients();               // gives the sums to the shards, and returns when they are there
  std::vector<WholeParameter> whole();  // the leaves; a tied one once

  std::vector<Run> runs;
  std::deque<Group> groups;         // addresses stay
  std::deque<Gradients> gradients;  // of the groups that train
  std::vector<Shard> shards;

 private:
  struct Maker;
  Units units_;
};

}  // namespace heddle::fsdp2
