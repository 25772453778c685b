// Tensors that ranks hold in boxes: saved by all ranks together, read by any other set of ranks.
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

// What all ranks write together: every tensor once, in boxes, each on one rank.

// This rank's box of a named tensor: along dim d it holds [offset[d], offset[d] + tensor.size(d)). A rank may
// hold several boxes of one name, and several ranks the same box.
struct Part {
  std::string name;
  at::Tensor tensor;           // on any device
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> offset;
  bool only_read = false;  // not written: an earlier stage of the pipeline has the tensor (tied embeddings)
};

// The box of a shard, or of a tensor that an optimizer keeps beside it, named PREFIX + the parameter's name.
// Throws Error{internal} if the shapes differ.
HEDDLE_API Part part_of(const Shard& shard, const at::Tensor& tensor, const std::string& prefix = "");

// The values of all stages of this rank. Throws Error{input} where ranks hold other values of a box
// (Shard::differs): runs of heddle save these, other hosts do not.
HEDDLE_API std::vector<Part> model_parts(Stages& stages);

// What the strategy keeps beside them (ParallelStage::state), "STRATEGY.NAME" each; saved with the
// optimizer's state. A host that reads them calls parameters_changed(resumed).
HEDDLE_API std::vector<Part> strategy_parts(Stages& stages);

// A box of the plan: `box` is inside `held`, the box that its ranks hold, and differs from it along dim 0
// only.
struct PlannedBox {
  std::string name;
  Box box, held;
  int rank = 0;
  size_t part = 0;  // index among those that the rank described
  int again = 0;    // how many boxes of this name precede it in the rank's file
};

// What a rank writes: rows of one of its boxes, or all of it.
struct WriteShare {
  size_t part = 0;
  int64_t first_row = 0, rows = kAll;
  int again = 0;

  static constexpr int64_t kAll = -1;
};

// The name of a box in its file: that of its tensor, with the suffix "#1" for the second of that name.
std::string key_of(const std::string& tensor, int again);

struct WritePlan {
  std::map<std::string, SavedTensor> tensors;  // without boxes
  std::vector<PlannedBox> boxes;               // in the order of the files
};

// Describes the non-empty boxes of one rank that are written, in the order of `parts`, without values; about
// 40 bytes a tensor.
HEDDLE_API std::string describe(std::span<const Part> parts);

// The plan from what each rank described. Throws Error{internal} if the ranks disagree about a tensor, or if
// boxes are missing.
HEDDLE_API WritePlan plan_writing(std::span<const std::string> ranks);

// The message for each rank: its shares, in the order of its file; about 10 bytes a box.
HEDDLE_API std::vector<std::string> shares(const WritePlan& plan, int world_size);
HEDDLE_API std::vector<WriteShare> read_shares(const std::string& told);

// The writing of one kind of state, again and again in a run: who writes which box is agreed on once, and
// holds as long as no rank holds other boxes. Boxes that several ranks hold are dealt over them (see deal.h),
// and a large one of those is cut, so that all ranks write about as much.
class HEDDLE_API ShardedWriter {
 public:
  // `word` is part of the files' names. A collective of all ranks; `key` is used once in a run. Throws
  // Error{internal} on every rank if boxes of a tensor are missing.
  ShardedWriter(std::string word, std::span<const Part> parts, Rendezvous& rendezvous,
                const std::string& key);

  // The parts, or rows of parts, that this rank writes: views, in the order of its file. Throws
  // Error{internal} if the parts are not boxes of the plan.
  std::vector<Part> mine(std::span<const Part> parts) const;

  // Writes DIRECTORY/shard-RRRRR-WORD-00001-of-00001.safetensors from the result of mine() or a copy of it,
  // synced; no file if it is empty. Returns what write_manifest() needs from this rank. Throws Error{io}.
  std::string write(const std::filesystem::path& directory, std::span<const Part> mine) const;

  // DIRECTORY/manifest.json, from what write() returned on each rank. On rank 0. Throws Error{io}.
  void write_manifest(const std::filesystem::path& directory, std::span<const std::string> written) const;

 private:
  std::string file_of(int rank) const;

  std::string word_, described_;
  int rank_;
  WritePlan plan_;                // on rank 0
  std::vector<WriteShare> mine_;  // in the order of this rank's file
};

// Does all of it: writes DIRECTORY/shard-RRRRR-WORD-00001-of-00001.safetensors on each rank that has
// something to write and DIRECTORY/manifest.json on rank 0. Called by every rank; `key` is used once in a
// run. Every failure is thrown on every rank: Error{io}, and Error{internal} if boxes of a tensor are
// missing.
HEDDLE_API void write_sharded(const std::filesystem::path& directory, const std::string& word,
                              std::span<const Part> parts, Rendezvous& rendezvous, const std::string& key);

// Reads boxes of any layout from such a directory. Only overlapping ranges are read and checked against their
// checksums; directly into the tensor if it is contiguous, of the saved dtype and on the CPU. Each rank has
// its own reader. Throws Error{input} naming the file, and the tensor if one is at fault.
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
  std::map<std::string, Shard> shards_;  // by file; opened when first needed
  at::Tensor piece_;                     // the buffer of one read
  std::string buffer_;                   // a range of which a part is needed
};

// Directories that appear under their name only when they are complete and on the disk.

// Makes a file or a directory survive a power cut as it is now. Throws Error{io}.
HEDDLE_API void sync(const std::filesystem::path& path);

// Makes a directory and its missing parents so that they survive a power cut. Throws Error{io}.
HEDDLE_API void make_directories(const std::filesystem::path& path);

// Where a directory is written before it is published: its name with the suffix ".incomplete".
HEDDLE_API std::filesystem::path stage_of(const std::filesystem::path& directory);

// Makes the empty stage of a directory (at `stage` if given, on the same file system), and removes one that
// an interrupted save has left. Throws Error{io} if the directory itself exists.
HEDDLE_API void open_stage(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Syncs every file and directory of the stage, renames it, and syncs the directories above. If it is
// interrupted, the directory is either complete or absent. Throws Error{io}.
HEDDLE_API void publish(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Whether a directory can be renamed from one to the other: both are on one file system, or will be once they
// exist.
HEDDLE_API bool on_one_file_system(const std::filesystem::path& a, const std::filesystem::path& b);

// Makes the link LINK name the directory TARGET beside it; a text file LINK.txt if the file system has no
// links. A reader sees the old target or the new one. Throws Error{io}.
HEDDLE_API void point(const std::filesystem::path& link, const std::string& target);

// Called before `target` is published: once it exists the link names it, even if the process or the machine
// stops before point(). Throws Error{io}.
HEDDLE_API void announce(const std::filesystem::path& link, const std::string& target);

// An announced target that exists becomes the link's target (until then only pointed() knows it); one that
// does not exist is forgotten. Throws Error{io}.
HEDDLE_API void settle(const std::filesystem::path& link);

// What such a link names, or will once point() is done; "": no link.
HEDDLE_API std::string pointed(const std::filesystem::path& link);

// A piece of work on disk that every rank does its part of: it succeeds on all ranks or fails on all.

// A rendezvous of all ranks after `work`; `key` is used once in a run. Where the work of some ranks threw,
// the Error of the lowest of them is thrown on every rank, so that none waits for a lost one. The
// work may take longer than the rendezvous's timeout, which is of ranks that give no sign; rank 0 warns then.
HEDDLE_API void together(Rendezvous& rendezvous, const std::string& key, const std::function<void()>& work);

// The same, and rank 0 gets what the work of each rank returned, in rank order; the others get nothing.
HEDDLE_API std::vector<std::string> tell_first(Rendezvous& rendezvous, const std::string& key,
                                               const std::function<std::string()>& work);

// The same for work that rank 0 does alone.
HEDDLE_API void on_first(Rendezvous& rendezvous, const std::string& key, const std::function<void()>& work);

}  // namespace heddle::checkpoint
