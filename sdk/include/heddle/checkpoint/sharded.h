// Sharded checkpoints: ranks save boxes of tensors together, and any other set of ranks can read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/parallel/stages.h"

namespace heddle::checkpoint {

// Writing every tensor once, in boxes.

// This rank's box of a named tensor: [offset[d], offset[d] + tensor.size(d)) along each dim d. A rank may
// have several boxes with the same name, and several ranks may have the same box.
struct Part {
  std::string name;
  at::Tensor tensor;           // on any device
  std::vector<int64_t> shape;  // shape of the whole tensor
  std::vector<int64_t> offset;
  bool only_read = false;  // not written, because an earlier pipeline stage has it (tied embeddings)
};

// Returns the box of a shard, or of a tensor that an optimizer keeps for it, named PREFIX + parameter name.
// Throws Error{internal} if the shapes differ.
HEDDLE_API Part part_of(const Shard& shard, const at::Tensor& tensor, const std::string& prefix = "");

// Returns the parameters of all stages of this rank. Throws Error{input} for a parameter that differs between
// ranks (Shard::differs): only checkpoints of `heddle train` support it.
HEDDLE_API std::vector<Part> model_parts(Stages& stages);

// Returns the state of the strategy (ParallelStage::state), named STRATEGY.NAME. It is saved with the
// optimizer state. A host that reads it calls parameters_changed(ParametersChange::resumed).
HEDDLE_API std::vector<Part> strategy_parts(Stages& stages);

// A box of the plan. `held` is the box that its ranks have; `box` is inside it and differs from it only along
// dim 0.
struct PlannedBox {
  std::string name;
  Box box, held;
  int rank = 0;
  size_t part = 0;  // index among the parts that the rank described
  int again = 0;    // number of boxes with this name before it in the rank's file
};

// Rows of one of a rank's boxes, or the whole box, that the rank writes.
struct WriteShare {
  size_t part = 0;
  int64_t first_row = 0, rows = kAll;
  int again = 0;

  static constexpr int64_t kAll = -1;
};

// Returns the name of a box in its file: the tensor's name, with the suffix "#1" for its second box.
std::string box_key(const std::string& tensor, int again);

// The boxes that the ranks write.
struct WritePlan {
  std::map<std::string, SavedTensor> tensors;  // without boxes
  std::vector<PlannedBox> boxes;               // in the order of the files
};

// Describes the non-empty boxes of one rank that are to be written, in the order of `parts`, without values.
// Takes about 40 bytes per tensor.
HEDDLE_API std::string describe(std::span<const Part> parts);

// Returns the plan from the descriptions of all ranks. Throws Error{internal} if ranks disagree about a
// tensor, or if boxes are missing.
HEDDLE_API WritePlan plan_writing(std::span<const std::string> ranks);

// Returns the message with the shares of each rank, in the order of its file. Takes about 10 bytes per box.
HEDDLE_API std::vector<std::string> shares(const WritePlan& plan, int world_size);
// Parses the message of shares().
HEDDLE_API std::vector<WriteShare> read_shares(const std::string& told);

// Writes one kind of state repeatedly during a run. The ranks agree once on who writes which box, so every
// rank must keep the same boxes. Boxes that several ranks have are distributed over these ranks, and large
// ones are split, so that all ranks write about equal amounts.
class HEDDLE_API ShardedWriter {
 public:
  // word: part of the file names. key: used only once in a run. A collective of all ranks. Throws
  // Error{internal} on every rank if boxes of a tensor are missing.
  ShardedWriter(std::string word, std::span<const Part> parts, Rendezvous& rendezvous,
                const std::string& key);

  // Returns the parts, or rows of parts, that this rank writes, as views in the order of its file. Throws
  // Error{internal} if the parts are not boxes of the plan.
  std::vector<Part> mine(std::span<const Part> parts) const;

  // Writes DIRECTORY/shard-RRRRR-WORD-00001-of-00001.safetensors from the result of mine() or a copy of it,
  // and syncs it. Writes no file if `mine` is empty. Returns the data for write_manifest(). Throws Error{io}.
  std::string write(const std::filesystem::path& directory, std::span<const Part> mine) const;

  // Writes DIRECTORY/manifest.json from the results of write() on all ranks. Called on rank 0. Throws
  // Error{io}.
  void write_manifest(const std::filesystem::path& directory, std::span<const std::string> written) const;

 private:
  std::string file_of(int rank) const;

  std::string word_, described_;
  int rank_;
  WritePlan plan_;                // only on rank 0
  std::vector<WriteShare> mine_;  // in the order of this rank's file
};

// Writes DIRECTORY/shard-RRRRR-WORD-00001-of-00001.safetensors on each rank that has something to write, and
// DIRECTORY/manifest.json on rank 0. Called by every rank. key: used only once in a run. Every failure is
// thrown on every rank: Error{io}, and Error{internal} if boxes of a tensor are missing.
HEDDLE_API void write_sharded(const std::filesystem::path& directory, const std::string& word,
                              std::span<const Part> parts, Rendezvous& rendezvous, const std::string& key);

// Reads boxes of any layout from a sharded directory. Reads only overlapping ranges and verifies their
// checksums. Reads directly into a contiguous CPU tensor of the saved dtype. Each rank has its own reader.
// Throws Error{input} naming the file and, if one is at fault, the tensor.
class HEDDLE_API ShardedReader {
 public:
  explicit ShardedReader(std::filesystem::path directory);
  ~ShardedReader();
  ShardedReader(ShardedReader&&) noexcept;
  bool has(const std::string& name) const { return manifest_.tensors.count(name) != 0; }
  const Manifest& manifest() const { return manifest_; }
  // Fills part.tensor, converting the dtype. On meta only the name and the shape are compared.
  void read(const Part& part);

 private:
  struct Shard;
  const Shard& shard_of(const std::string& name, const SavedTensor& tensor, const SavedBox& saved);
  void fill(at::Tensor target, const Box& inside, const std::string& name, const SavedTensor& tensor,
            const SavedBox& saved);

  std::filesystem::path directory_;
  Manifest manifest_;
  std::map<std::string, Shard> shards_;  // by file, opened on first use
  at::Tensor piece_;                     // buffer of one read
  std::string buffer_;                   // a range of which only a part is needed
};

// Directories that appear under their name only when they are complete and on disk.

// Syncs a file or a directory to disk, so that it survives a power failure. Throws Error{io}.
HEDDLE_API void sync(const std::filesystem::path& path);

// Creates a directory and its missing parents, and syncs them to disk. Throws Error{io}.
HEDDLE_API void make_directories(const std::filesystem::path& path);

// Returns the staging path of a directory before it is published: its name with the suffix ".incomplete".
HEDDLE_API std::filesystem::path stage_of(const std::filesystem::path& directory);

// Creates the empty staging directory (at `stage` if set, on the same file system), and removes one that an
// interrupted save left. Throws Error{io} if the directory itself exists.
HEDDLE_API void open_stage(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Syncs every file and directory of the staging directory, renames it, and syncs the parent directories.
// After an interruption the directory is either complete or absent. Throws Error{io}.
HEDDLE_API void publish(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Returns whether a directory can be renamed from one path to the other: both are, or will be once they
// exist, on the same file system.
HEDDLE_API bool on_one_file_system(const std::filesystem::path& a, const std::filesystem::path& b);

// Creates or replaces the link LINK to the sibling directory TARGET, or a text file LINK.txt on a file system
// without links. A reader sees either the old or the new target. Throws Error{io}.
HEDDLE_API void point(const std::filesystem::path& link, const std::string& target);

// Announces a target before it is published. Once the target exists, the link points to it, even if the
// process or the machine stops before point(). Throws Error{io}.
HEDDLE_API void announce(const std::filesystem::path& link, const std::string& target);

// Points the link to an announced target if it exists (until then only pointed() knows it), or discards the
// announcement. Throws Error{io}.
HEDDLE_API void settle(const std::filesystem::path& link);

// Returns the target of such a link, including an announced target that exists, or "" if there is no link.
HEDDLE_API std::string pointed(const std::filesystem::path& link);

// File operations of all ranks that succeed on all ranks or fail on all ranks.

// Runs `work` and then waits for all ranks. key: used only once in a run. If `work` throws on some ranks, the
// Error of the lowest of these ranks is thrown on every rank. The rendezvous's timeout applies only to ranks
// that send no heartbeat, so `work` may take longer; rank 0 then warns.
HEDDLE_API void on_every_rank(Rendezvous& rendezvous, const std::string& key,
                              const std::function<void()>& work);

// Like on_every_rank(), and returns the results of all ranks, in rank order, on rank 0. Other ranks get
// nothing.
HEDDLE_API std::vector<std::string> gather_on_first(Rendezvous& rendezvous, const std::string& key,
                                                    const std::function<std::string()>& work);

// Like on_every_rank(), with work only on rank 0.
HEDDLE_API void on_first(Rendezvous& rendezvous, const std::string& key, const std::function<void()>& work);

}  // namespace heddle::checkpoint
