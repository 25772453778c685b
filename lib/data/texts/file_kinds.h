// Formats of data files by extension, and the format of a split, as the library datasets infers it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace heddle {

// `other`: a format that datasets reads and heddle does not.
enum class FileKind { none, json, parquet, arrow, other };

// Extensions that heddle reads, for messages.
inline constexpr const char* kReadEndings = ".json, .jsonl, .ndjson, .parquet, .geoparquet, .gpq and .arrow";

// Returns "JSON", "Parquet", "Arrow" or "other".
std::string kind_name(FileKind kind);

// Whether datasets takes the file for data: one of the extensions in its name ("a.jsonl.gz") is known.
bool is_data_file(std::string_view path);

struct InferredKind {
  FileKind kind = FileKind::none;
  std::string ending;  // ".png"; empty: no file has a known extension
};
// Returns the format of the most frequent extension. Ties are resolved in the order .parquet, .arrow, .jsonl,
// .json. Files that describe other files (metadata.jsonl) have the lowest priority.
InferredKind infer_kind(std::span<const std::string> files);

// Whether the path has an extension of this format, or .zip, which datasets opens.
bool has_ending_of(FileKind kind, std::string_view path);

// Returns the format in which heddle reads the file, from its last extension; JSON for an unknown one
// ("a.jsonl.old").
FileKind kind_of_file(std::string_view path);

}  // namespace heddle
