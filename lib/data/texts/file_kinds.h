// The formats of data files by their endings, and the format of a split, as the library datasets infers it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace heddle {

// `other`: a format that datasets reads and heddle does not.
enum class FileKind { none, json, parquet, arrow, other };

// The endings that heddle reads, for messages.
inline constexpr const char* kReadEndings = ".json, .jsonl, .ndjson, .parquet, .geoparquet, .gpq and .arrow";

// "JSON", "Parquet", "Arrow", "other".
std::string kind_name(FileKind kind);

// Whether datasets takes the file for data: one of the endings in its name ("a.jsonl.gz") is known.
bool is_data_file(std::string_view path);

struct InferredKind {
  FileKind kind = FileKind::none;
  std::string ending;  // ".png"; empty: no file has a known ending
};
// The format of the ending that most files have; of endings that are as frequent .parquet, .arrow, .jsonl and
// .json come first. Files that describe others (metadata.jsonl) count last.
InferredKind infer_kind(std::span<const std::string> files);

// Whether the path has an ending of this format, or one of .zip, that datasets opens.
bool has_ending_of(FileKind kind, std::string_view path);

// The format in which heddle reads the file, by its last ending: JSON for an unknown one ("a.jsonl.old").
FileKind kind_of_file(std::string_view path);

}  // namespace heddle
