// Units of one stage, and the buckets of their parameters.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradients.h"
#include "heddle/sharding/model.h"

namespace heddle::megatron_fsdp {

// Ranks of the parameters with one reduction.
struct Ranks {
  sharding::Groups groups;
  std::shared_ptr<Shared> shared;
};

// Ranks of each reduction, and the options.
struct Place {
  const Options& options;
  std::span<const Placed> placed;
  std::function<const Ranks&(const std::string& parameter)> ranks;
  const DeviceMesh& mesh;
};

// Returns the reshard policy of each unit. Units of the configured classes (default: the model's blocks) free
// their parameters after forward and backward, and other units keep them until the end of the step. Throws
// Error{config} for unit classes that the model does not have.
std::vector<sharding::Reshard> find_units(const Units& units, const Options& options);

// Throws Error{config} for unit classes that the model does not have, and Error{input} for a parameter that
// cannot be tied.
sharding::Model make_model(Units units, const Place& place);

int64_t largest_unit(const sharding::Model& model);  // elements that are freed after the forward
int64_t largest_bucket(const sharding::Model& model);

// Lets units share two alternating buffers, if configured.
std::deque<sharding::DoubleBuffer> assign_double_buffers(const sharding::Model& model, const Options& options,
                                                         c10::Device device);

// Returns whether a class name matches a kind: the last part of the name, in lower case, is the kind or ends
// with it. "transformers.models.llama.modeling_llama.LlamaDecoderLayer" matches "decoder_layer".
bool names_kind(const std::string& class_name, std::string_view kind);

}  // namespace heddle::megatron_fsdp
