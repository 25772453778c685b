// What a checkpoint holds of a model that transforms have changed.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// This rank's shards of the model, without those of PreparedModel::elsewhere().
std::vector<const Shard*> saved_shards(const RunSpec& run, Stages& stages);
// Their boxes. Where ranks hold other values of a box (Shard::differs), `means` has their mean in its place,
// which is a collective of these ranks.
enum class Differing { own, means };
std::vector<checkpoint::Part> saved_parts(const RunSpec& run, engine::Model& model, Differing differing);

// What a checkpoint holds beside the model: the optimizer's state, the strategy's, and parameters "own.NAME"
// of which ranks hold other values; of these all state is each rank's own.
std::vector<checkpoint::Part> state_parts(const RunSpec& run, Step& step, engine::Model& model);
inline constexpr const char* kOwnPrefix = "own.";
// The part as this rank has it, where ranks along `axes` differ; else the part.
checkpoint::Part part_of_rank(const DeviceMesh& mesh, std::span<const std::string> axes,
                              checkpoint::Part part);

// The files of what transforms added (PreparedModel::added_files()) and the tokenizer beside them, from the
// sharded files in `directory`, where they are put; nothing where there are none. On rank 0. Throws
// Error{io | input}.
void write_added(const PreparedModel& model, const std::filesystem::path& directory);

}  // namespace heddle
