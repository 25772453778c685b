// Ties slots to the leaves of buckets, and determines the order of units, buckets and shards.
#include "heddle/sharding/model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::sharding {
namespace {

struct Home {
  Bucket* bucket = nullptr;
  Parameter parameter;
};

void tie_slot(ParameterSlot& slot, const at::Tensor& leaf, const std::string& strategy) {
  if (slot.tensor->is_same(leaf)) return;
  if (slot.foreign)
    throw Error(ErrorCode::input, strategy,
                "parameter '" + slot.name + "' has two slots with two tensors, which cannot be tied in place",
                "let both modules hold one tensor, or give the slots two names");
  slot.point(leaf);
}

bool uses(const Model::Turn& turn, const Bucket* bucket) {
  return std::any_of(turn.uses.begin(), turn.uses.end(),
                     [bucket](const Model::Use& use) { return use.bucket == bucket; });
}

// The next unit after each use, from the end; what remains is each bucket's first use.
std::map<const Bucket*, size_t> link_uses(std::vector<Model::Turn>& turns) {
  std::map<const Bucket*, size_t> first;
  for (size_t i = turns.size(); i-- > 0;)
    for (Model::Use& use : turns[i].uses) {
      const auto known = first.try_emplace(use.bucket, turns.size()).first;
      use.next = std::exchange(known->second, i);
    }
  return first;
}

}  // namespace

std::vector<Slots> new_slots(const Units& units) {
  std::set<std::string> seen;
  std::vector<Slots> out;
  for (const auto& unit : units) {
    Slots& fresh = out.emplace_back();
    for (ParameterSlot& slot : unit->parameters())
      if (seen.insert(slot.name).second) fresh.push_back(std::move(slot));
  }
  return out;
}

std::map<std::string, int> users_of(const Units& units) {
  std::map<std::string, int> users;
  for (const auto& unit : units) {
    std::set<std::string> seen;
    for (const ParameterSlot& slot : unit->parameters())
      if (seen.insert(slot.name).second) ++users[slot.name];
  }
  return users;
}

Model::Model(Units given, std::vector<std::unique_ptr<Bucket>> made, std::vector<Reshard> reshard,
             std::string name)
    : units(std::move(given)), buckets(std::move(made)), strategy(std::move(name)) {
  std::map<std::string, Home> homes;
  for (const auto& bucket : buckets)
    for (Parameter& parameter : bucket->parameters())
      homes.emplace(parameter.name, Home{bucket.get(), parameter});
  std::set<std::string> listed;
  for (size_t i = 0; i < units.size(); ++i) {
    Turn& turn = turns.emplace_back(Turn{units[i].get(), i, false, reshard[i], {}, {}});
    for (ParameterSlot& slot : units[i]->parameters()) {
      const auto home = homes.find(slot.name);
      if (home == homes.end())
        throw Error(ErrorCode::internal, strategy, "parameter '" + slot.name + "' lies in no bucket",
                    "make buckets of all that new_slots() gives");
      tie_slot(slot, home->second.parameter.leaf, strategy);
      Bucket* bucket = home->second.bucket;
      if (!uses(turn, bucket)) {
        turn.uses.push_back({bucket, 0});
        ++bucket->users_;
        bucket->stays_ = bucket->stays_ || turn.reshard == Reshard::after_last_backward;
        if (bucket->gradients() != nullptr && bucket->gradients()->opens())
          turn.opens.push_back(bucket->gradients());
      }
      if (!listed.insert(slot.name).second) continue;
      parameters.push_back(home->second.parameter);
      for (const Shard& shard : home->second.parameter.shards) shards.push_back(shard);
    }
  }
  link();
}

void Model::arrange(const std::vector<size_t>& units_in_order, const std::vector<char>& around) {
  const std::vector<Turn> listed = std::exchange(turns, {});
  for (const auto& bucket : buckets) bucket->users_ = 0;
  for (const size_t unit : units_in_order) {
    Turn& turn = turns.emplace_back(listed[unit]);
    turn.around = around[unit] != 0;
    for (const Use& use : turn.uses) {
      ++use.bucket->users_;
      use.bucket->around_ = use.bucket->around_ || turn.around;
    }
  }
  link();
}

void Model::link() {
  order.clear();
  const std::map<const Bucket*, size_t> first = link_uses(turns);
  std::vector<Bucket*> trained;
  for (const auto& bucket : buckets)
    if (bucket->gradients() != nullptr) trained.push_back(bucket.get());
  std::stable_sort(trained.begin(), trained.end(),
                   [&](const Bucket* a, const Bucket* b) { return first.at(a) > first.at(b); });
  for (const Bucket* bucket : trained) order.push_back(bucket->gradients());
}

}  // namespace heddle::sharding
