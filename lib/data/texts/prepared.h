// Files of prepared samples: found, or prepared once for all processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/data/texts/text_job.h"

namespace heddle {

// Handling of sets of texts that are not prepared yet.
struct PreparationOptions {
  bool make = true;                 // false: only report that a set is not prepared
  std::filesystem::path directory;  // the only directory to use; empty: HEDDLE_DATA and the run's own
  int jobs = 0;                     // threads; 0: number of cores
  std::function<void(const std::string& line)> say;  // receives progress lines; empty: none
};

struct PreparedFile {
  std::filesystem::path file;
  bool is_made = false;  // by this call
  std::vector<std::string> warnings;
};

// Returns the file of the job from one of `places`. If it is missing and options.make is set, prepares it in
// the first place: one process prepares it while the others wait; if that process dies, another one starts
// over. Empty: the file does not exist. Throws Error{input | config} for errors of the script, and Error{io}.
std::optional<PreparedFile> find_or_prepare(const TextJob& job, const PreparationOptions& options,
                                            std::span<const std::filesystem::path> places);

// Returns texts_checksum() of a job, cached where find_or_prepare() caches it.
std::string texts_checksum(const TextJob& job, std::span<const std::filesystem::path> places);

// Converts the first rows of the job without keeping them, and returns their number; empty: Python or one of
// its packages is missing. Throws the errors of find_or_prepare() for these rows.
std::optional<int64_t> probe_texts(const TextJob& job);

}  // namespace heddle
