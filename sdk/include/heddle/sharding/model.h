// The units of one stage, the buckets of their parameters, and the buckets that each unit uses.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/sharding/bucket.h"

namespace heddle::sharding {

// How long the whole parameters of a unit stay after its forward. after_backward frees them after a forward
// without backward.
enum class Reshard { after_forward, after_backward, after_last_backward };

using Slots = std::vector<ParameterSlot>;

// Returns, for each unit, the slots of parameters that no earlier unit has, each name once. Buckets are made
// from these slots.
std::vector<Slots> new_slots(const Units& units);

// Returns how many units use each parameter.
std::map<std::string, int> users_of(const Units& units);

// The units of a stage, their buckets, and the turns of a forward.
struct Model {
  Model() = default;
  // Every parameter of the units is in one bucket. All slots of a parameter get its leaf. reshard: one
  // element per unit. strategy: for messages. Throws Error{input} for a parameter with two foreign tensors,
  // and Error{internal} for a parameter without bucket.
  Model(Units units, std::vector<std::unique_ptr<Bucket>> buckets, std::vector<Reshard> reshard,
        std::string strategy);
  // Rebuilds the turns for a forward that runs the units in this order, each at least once. around[i]:
  // whether unit i runs other units inside. Does not change the order of the owned shards.
  void arrange(const std::vector<size_t>& units_in_order, const std::vector<char>& around);

  struct Use {
    Bucket* bucket;
    size_t next;  // the next unit that uses it, or the number of units if there is none
  };
  struct Turn {  // one unit's turn in the forward
    Unit* unit;
    size_t index;  // index of the unit
    bool around;   // the unit runs other units inside
    Reshard reshard;
    std::vector<Use> uses;
    std::vector<Gradients*> opens;  // gradients to open before its backward
  };
  Units units;
  std::vector<std::unique_ptr<Bucket>> buckets;
  std::string strategy;
  std::vector<Turn> turns;
  std::vector<Parameter> parameters;  // in execution order, a tied parameter once
  std::vector<Shard> shards;          // shards of these parameters
  // Gradients of the trainable buckets in the order in which a backward completes them: by the first unit
  // that uses the bucket, from the last unit to the first, then in the order of `buckets`.
  std::vector<Gradients*> order;

 private:
  void link();
};

}  // namespace heddle::sharding
