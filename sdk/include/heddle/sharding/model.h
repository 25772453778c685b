// The units of one stage, the buckets of their parameters, and which unit uses which bucket.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/sharding/bucket.h"

namespace heddle::sharding {

// How long the whole parameters of a unit stay after its forward. With after_backward they are freed after
// the forward if no backward comes.
enum class Reshard { after_forward, after_backward, after_last_backward };

using Slots = std::vector<ParameterSlot>;

// For each unit, the slots of parameters that no earlier unit has, each name once: its buckets are made from
// these.
std::vector<Slots> new_slots(const Units& units);

// How many units use each parameter.
std::map<std::string, int> users_of(const Units& units);

struct Model {
  Model() = default;
  // Every parameter of the units is in one bucket. Further slots of a parameter get its leaf. `reshard`: one
  // per unit. `strategy` is for messages. Throws Error{input} for a parameter of two foreign tensors, and
  // Error{internal} for one without a bucket.
  Model(Units units, std::vector<std::unique_ptr<Bucket>> buckets, std::vector<Reshard> reshard,
        std::string strategy);
  // Makes the turns anew for a forward that runs the units in this order, each at least once. around[i]: unit
  // i runs others inside. The owned shards keep their order.
  void arrange(const std::vector<size_t>& units_in_order, const std::vector<char>& around);

  struct Use {
    Bucket* bucket;
    size_t next;  // the next unit that uses it; none: the number of units
  };
  struct Turn {  // one unit's turn in the forward
    Unit* unit;
    size_t index;  // of the unit
    bool around;   // it runs others inside
    Reshard reshard;
    std::vector<Use> uses;
    std::vector<Gradients*> opens;  // gradients that are opened before its backward
  };
  Units units;
  std::vector<std::unique_ptr<Bucket>> buckets;
  std::string strategy;
  std::vector<Turn> turns;
  std::vector<Parameter> parameters;  // in execution order; a tied one once
  std::vector<Shard> shards;          // of those
  // Of the buckets that train, in the order in which a backward completes them: by the first unit that uses
  // them, from the last unit to the first; those of one unit in the order of `buckets`.
  std::vector<Gradients*> order;

 private:
  void link();
};

}  // namespace heddle::sharding
