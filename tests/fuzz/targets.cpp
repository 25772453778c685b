// Map from names to fuzzing targets.
#include "fuzz/targets.h"

namespace heddle::fuzz {

const std::map<std::string, void (*)(std::string_view)>& targets() {
  static const std::map<std::string, void (*)(std::string_view)> all{{"config_json", config_json},
                                                                     {"hf_index", hf_index},
                                                                     {"hf_notes", hf_notes},
                                                                     {"manifest", manifest},
                                                                     {"megatron_index", megatron_index},
                                                                     {"position", position},
                                                                     {"safetensors", safetensors},
                                                                     {"token_file", token_file},
                                                                     {"yaml", yaml}};
  return all;
}

}  // namespace heddle::fuzz
