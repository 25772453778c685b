// Parts of a transformed model that a checkpoint contains.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Returns this rank's shards of the model, without those of PreparedModel::elsewhere().
std::vector<const Shard*> saved_shards(const RunSpec& run, Stages& stages);
// The values of shards that differ between ranks (Shard::differs): this rank's values, or the mean over these
// ranks, which is a collective.
enum class Differing { own, means };
// Returns the boxes of saved_shards().
std::vector<checkpoint::Part> saved_parts(const RunSpec& run, engine::Model& model, Differing differing);

// Returns what a checkpoint contains besides the model: the state of the optimizer and of the strategy, and
// "own.NAME", this rank's values of parameters that differ between ranks. The optimizer state of such a
// parameter is stored per rank too.
std::vector<checkpoint::Part> state_parts(const RunSpec& run, Step& step, engine::Model& model);
inline constexpr const char* kOwnPrefix = "own.";
// Returns the part as this rank's value of one that differs between ranks along `axes` (see rank_state()), or
// the part itself without axes.
checkpoint::Part part_of_rank(const DeviceMesh& mesh, std::span<const std::string> axes,
                              checkpoint::Part part);

// Writes the files of added parameters (PreparedModel::added_files()) and the tokenizer files into
// `directory`, from the sharded files there. Does nothing if no transform adds parameters. On rank 0. Throws
// Error{io | input}.
void write_added(const PreparedModel& model, const std::filesystem::path& directory);

}  // namespace heddle
