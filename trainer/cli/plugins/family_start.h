// Starts of model families for `heddle plugins new --from-hf`: C++ text from the keys of a config.json.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// The parts of a model family that come from a config.json.
struct FamilyStart {
  std::filesystem::path file;
  std::string model_type;
  std::string architecture;  // class in transformers; empty: the file names none
  std::string source;        // definitions of Keys, keys() and model_of()
};

// Reads a config.json, or the one of a directory. The source describes Llama's layers with the common keys of
// decoders. Other keys become fields with the type and the value of the file, which no layer uses. Throws
// Error{input} or Error{config} for a file that does not describe a decoder.
FamilyStart read_family_start(const std::filesystem::path& path);

}  // namespace heddle::cli
