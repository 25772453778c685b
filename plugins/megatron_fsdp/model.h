// The units of one stage, and the buckets of their parameters.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradients.h"

namespace heddle::megatron_fsdp {

class Model {
 public:
  // Throws Error{config} for unit classes that the model does not have, Error{input} for a parameter that
  // cannot be tied.
  Model(Units units, std::span<const Placed> placed, const Options& options, const Ranks& ranks);

  struct Run {  // one unit's turn in the forward
    Unit* unit;
    std::vector<Bucket*> buckets;  // that hold a parameter of it
    std::vector<Gradients*> sums;  // of these, whose memory is there only now and then
    bool freed = true;             // after its forward and its backward; else at the end of the step
    bool uses(const Bucket* bucket) const {
      return std::find(buckets.begin(), buckets.end(), bucket) != buckets.end();
    }
  };
  std::vector<Run> runs;
  std::deque<Bucket> buckets;       // addresses stay
  std::deque<Gradients> gradients;  // of the buckets that train
  std::vector<Gradients*> order;    // in which buckets are expected to be ready
  std::vector<Shard> shards;        // in execution order

  int64_t largest_unit() const;  // elements of what is freed after its forward
  int64_t largest_bucket() const;

 private:
  using Slots = std::vector<ParameterSlot>;
  struct Home {
    Bucket* bucket = nullptr;
    size_t member = 0;
  };
  void find_units(const Options& options);
  std::vector<Slots> by_kind(const Slots& slots, std::span<const Placed> placed, bool one_each) const;
  Slots new_slots(Slots slots);
  void add_unit_buckets(std::span<const Placed> placed, const Options& options, const Ranks& ranks);
  void add_flat_buckets(std::span<const Placed> placed, const Options& options, const Ranks& ranks);
  void add_flat_buffer(const Slots& slots, std::span<const Placed> placed, const Options& options,
                       const Ranks& ranks);
  Bucket& add_bucket(Slots slots, std::span<const Placed> placed, BucketPlace place, const Options& options,
                     const Ranks& ranks, at::Tensor gradients);
  void tie(const Options& options);
  void order_reductions();
  void list_shards();
  void assign_double_buffers(const Options& options, const Ranks& ranks);

  Units units_;
  std::map<std::string, Home> homes_;
  std::map<std::string, int> users_;  // units of each parameter
  std::vector<std::string> names_;    // of the parameters, in execution order
  std::deque<DoubleBuffer> double_buffers_;
};

// "transformers.models.llama.modeling_llama.LlamaDecoderLayer" names modules of the kind "decoder_layer": its
// last word, in small letters, is the kind or ends in it.
bool names_kind(const std::string& class_name, std::string_view kind);

}  // namespace heddle::megatron_fsdp
