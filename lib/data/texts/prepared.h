// Files of prepared samples: found, or made once for all processes that want them.
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

// What becomes of data sets of texts that are not prepared yet.
struct PreparationOptions {
  bool make = true;                 // false: a set that is not prepared is only said to be so
  std::filesystem::path directory;  // of prepared files, and no other; empty: HEDDLE_DATA, and the run's own
  int jobs = 0;                     // threads of the preparation; 0: as many as cores
  std::function<void(const std::string& line)> say;  // how far it is; empty: nothing is said
};

struct PreparedFile {
  std::filesystem::path file;
  bool is_made = false;  // by this call
  std::vector<std::string> warnings;
};

// Looks for the file of the job in `places`, and makes it in the first of them where options.make is set. Of
// several processes one makes it, the others wait for it; where that one dies, another one begins anew.
// Empty: it is not there. Throws Error{input | config} for what the script refuses, Error{io}.
std::optional<PreparedFile> find_or_prepare(const TextJob& job, const PreparationOptions& options,
                                            std::span<const std::filesystem::path> places);

// texts_checksum() of a job, remembered where find_or_prepare() remembers it.
std::string texts_checksum(const TextJob& job, std::span<const std::filesystem::path> places);

// Converts the first rows of the job and keeps nothing. How many they were; empty: Python or one of its
// packages is not there. Throws what find_or_prepare would throw for these rows.
std::optional<int64_t> probe_texts(const TextJob& job);

}  // namespace heddle
