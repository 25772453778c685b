// The units of one stage, and the buckets of their parameters.
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

// Parameters with one reduction.
struct Ranks {
  sharding::Groups groups;
  std::shared_ptr<Shared> shared;
};

// What is split over which ranks, and the options.
struct Place {
  const Options& options;
  std::span<const Placed> placed;
  std::function<const Ranks&(const std::string& parameter)> ranks;
  const DeviceMesh& mesh;
};

// Units whose parameters are freed after their forward and their backward; others stay to the end of the
// step. Throws Error{config} for unit classes that the model does not have.
std::vector<sharding::Reshard> find_units(const Units& units, const Options& options);

// Throws Error{config} for unit classes that the model does not have, Error{input} for a parameter that
// cannot be tied.
sharding::Model make_model(Units units, const Place& place);

int64_t largest_unit(const sharding::Model& model);  // elements that are freed after their forward
int64_t largest_bucket(const sharding::Model& model);

// If configured, units share two buffers alternately.
std::deque<sharding::DoubleBuffer> assign_double_buffers(const sharding::Model& model, const Options& options,
                                                         c10::Device device);

// "transformers.models.llama.modeling_llama.LlamaDecoderLayer" names modules of the kind "decoder_layer": its
// last word, in small letters, is the kind or ends in it.
bool names_kind(const std::string& class_name, std::string_view kind);

}  // namespace heddle::megatron_fsdp
