// Tables of file extensions.
#include "lib/data/texts/file_kinds.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr std::array<std::pair<std::string_view, FileKind>, 7> kRead = {{{"json", FileKind::json},
                                                                         {"jsonl", FileKind::json},
                                                                         {"ndjson", FileKind::json},
                                                                         {"parquet", FileKind::parquet},
                                                                         {"geoparquet", FileKind::parquet},
                                                                         {"gpq", FileKind::parquet},
                                                                         {"arrow", FileKind::arrow}}};
// Extensions of datasets 5.2 that heddle does not read.
constexpr std::string_view kOthers =
    "csv tsv txt conll conllu tar xml hdf5 h5 eval toml md lance tsfile vortex fa fasta fna ffn faa frn afa "
    "gb "
    "gbk genbank fq fastq cif mmcif zip";
// Extensions of images, audio, video and meshes, which datasets also accepts in upper case.
constexpr std::string_view kMedia =
    "pdb ent blp bmp dib bufr cur pcx dcx dds ps eps fit fits fli flc ftc ftu gbr gif grib png apng jp2 j2k "
    "jpc "
    "jpf jpx j2c icns ico im iim tif tiff jfif jpe jpg jpeg msp pcd pxr pbm pgm ppm pnm psd bw rgb rgba sgi "
    "ras "
    "tga icb vda vst webp wmf emf xbm xpm mpg aiff au avr caf flac htk svx mat4 mat5 mpc2k ogg paf pvf raw "
    "rf64 "
    "sd2 sds ircam voc w64 wav nist wavex wve xi mp3 opus 3gp 3g2 asf flv m4v webm f4v wmv wma ogm mxf nut "
    "mpeg "
    "avi mp4 mov mkv glb gltf ply stl pdf nii";
// Extensions of files next to Lance tables: data files without a format.
constexpr std::string_view kBesideLance = "txn manifest idx";
constexpr std::string_view kCompressed = "gz zst bz2 xz lz4";
constexpr std::array<std::string_view, 6> kMetadata = {"instruction.md",   "latest_version_hint.json",
                                                       "metadata.csv",     "metadata.jsonl",
                                                       "metadata.parquet", "task.toml"};
constexpr std::array<std::string_view, 7> kFavorites = {"csv",    "json",  "jsonl",  "arrow",
                                                        "vortex", "lance", "parquet"};  // the last match wins

bool has_word(std::string_view words, std::string_view word) {
  if (word.empty() || word.find(' ') != word.npos) return false;
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

// Returns the format of a known lowercase extension, else none.
FileKind kind_of_ending(std::string_view ending) {
  for (const auto& [name, kind] : kRead)
    if (name == ending) return kind;
  return has_word(kOthers, ending) || has_word(kMedia, ending) ? FileKind::other : FileKind::none;
}

std::string_view name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// Returns the text after each dot of the name.
std::vector<std::string_view> endings_of(std::string_view path) {
  std::vector<std::string_view> out;
  std::string_view name = name_of(path);
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.')) {
    name.remove_prefix(dot + 1);
    out.push_back(name.substr(0, name.find('.')));
  }
  return out;
}

bool is_known_ending(std::string_view ending) {
  const std::string small = text::lower(ending);
  if (small == ending) return kind_of_ending(ending) != FileKind::none || has_word(kBesideLance, ending);
  const bool is_upper =
      std::none_of(ending.begin(), ending.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return is_upper && has_word(kMedia, small);
}

}  // namespace

std::string kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::json:
      return "JSON";
    case FileKind::parquet:
      return "Parquet";
    case FileKind::arrow:
      return "Arrow";
    default:
      return "other";
  }
}

bool is_data_file(std::string_view path) {
  const auto endings = endings_of(path);
  return std::any_of(endings.begin(), endings.end(), is_known_ending);
}

InferredKind infer_kind(std::span<const std::string> files) {
  std::map<std::pair<std::string, bool>, int64_t> counts;
  for (const std::string& file : files) {
    const bool is_metadata = std::find(kMetadata.begin(), kMetadata.end(), name_of(file)) != kMetadata.end();
    for (const std::string_view ending : endings_of(file)) ++counts[{text::lower(ending), is_metadata}];
  }
  InferredKind out;
  std::tuple<bool, int64_t, std::ptrdiff_t, std::string> best{false, -1, -1, ""};
  for (const auto& [key, count] : counts) {
    const auto& [ending, is_metadata] = key;
    const FileKind kind = kind_of_ending(ending);
    if (kind == FileKind::none) continue;
    const auto* favorite = std::find(kFavorites.begin(), kFavorites.end(), ending);
    std::tuple rank{!is_metadata, count, favorite == kFavorites.end() ? -1 : favorite - kFavorites.begin(),
                    ending};
    if (rank <= best) continue;
    best = std::move(rank);
    out = {kind, "." + ending};
  }
  return out;
}

bool has_ending_of(FileKind kind, std::string_view path) {
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
    const std::string_view rest = path.substr(dot + 1);
    const auto is_ended_by = [&](std::string_view ending) {  // ".ENDING" or ".ENDING.more"
      return rest.starts_with(ending) && (rest.size() == ending.size() ||
                                          (rest[ending.size()] == '.' && rest.size() > ending.size() + 1));
    };
    if (is_ended_by("zip") || std::any_of(kRead.begin(), kRead.end(), [&](const auto& read) {
          return read.second == kind && is_ended_by(read.first);
        }))
      return true;
  }
  return false;
}

FileKind kind_of_file(std::string_view path) {
  const auto endings = endings_of(path);
  const std::string last = endings.empty() ? "" : text::lower(endings.back());
  const FileKind kind = has_word(kCompressed, last) ? FileKind::other : kind_of_ending(last);
  return kind == FileKind::none ? FileKind::json : kind;
}

}  // namespace heddle
