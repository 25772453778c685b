// A model as it stands in a Hugging Face directory.
#include "trainer/models/pretrained.h"

#include <fstream>
#include <iterator>

#include "heddle/base/error.h"
#include "heddle/checkpoint/hf_source.h"

namespace heddle {

Pretrained open_pretrained(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory))
    throw Error(ErrorCode::input, directory.string(), "is not a directory",
                "name a Hugging Face directory: config.json and safetensors");
  Pretrained out;
  out.config = read_model_config(directory / "config.json");
  std::ifstream stream(directory / "config.json");
  out.config_json.assign(std::istreambuf_iterator<char>(stream), {});
  out.weights = std::make_shared<const HfWeights>(directory);
  out.source = checkpoint::hf_source(directory, out.weights);
  return out;
}

}  // namespace heddle
