// Fuzzing targets: readers of untrusted files as functions of arbitrary bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace heddle::fuzz {

// Each target parses the bytes as a run would and reads part of the content. An Error is a valid result. A
// crash, a leak, a hang, another exception, or std::abort() on contradictory content is a defect.
void config_json(std::string_view bytes);     // a model's config.json
void hf_index(std::string_view bytes);        // model.safetensors.index.json, NUL, a.safetensors
void hf_notes(std::string_view bytes);        // .hf_metadata/tensors.json, NUL, config.json beside it
void manifest(std::string_view bytes);        // manifest.json, NUL, a.safetensors
void megatron_index(std::string_view bytes);  // two bytes of length, NAME.idx, NAME.bin
void position(std::string_view bytes);        // step_scheduler.json
void safetensors(std::string_view bytes);     // a safetensors file
void token_file(std::string_view bytes);      // one byte that selects dataset.dtype, then the file
void yaml(std::string_view bytes);            // a configuration

// Returns all targets by name.
const std::map<std::string, void (*)(std::string_view)>& targets();

}  // namespace heddle::fuzz
