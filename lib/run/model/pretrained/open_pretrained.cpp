// Opens a model on disk: a Hugging Face directory, a sharded model, or a base with adapters.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/checkpoint/quantized/quantization.h"
#include "lib/checkpoint/sharded/sharded_source.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/overridden.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/model/pretrained/own_head.h"

namespace heddle {
namespace {

// Replaces the tied head that config.json describes by a separate one. `why`: reason for the warning.
// `untied`: keys of the untied model.
void keep_own_head(PreparedModel& model, const std::string& why, const Node& untied) {
  Node keys = Node::map({});
  for (const char* key : {"tie_word_embeddings", "text_config"})
    if (const Node* value = untied.find(key)) keys = keys.with(key, *value);
  add_to_config(model.origin.files["config.json"], keys);
  model.own_head = (model.place.notes / "config.json").string() + " says tie_word_embeddings: true, but " +
                   why +
                   ". The head becomes a separate parameter, and exports have tie_word_embeddings: false";
}

// Opens a model on disk step by step.
class Opener {
 public:
  Opener(const std::filesystem::path& path, PluginRegistry& plugins) : plugins_(plugins) {
    out_.directory = path;
    out_.place = find_model(path);
    is_hugging_face_ = place().kind == ModelPlace::Kind::hugging_face;
  }

  PreparedModel open(const ConfigOverrides& overrides, std::vector<std::string>& warnings) {
    if (overrides.empty()) out_.spec = read_saved_model(place(), plugins_);
    own_ = dequantized_keys(place().notes / "config.json");
    if (is_hugging_face_) {
      weights_ = std::make_shared<const HfWeights>(place().weights);
      form_ = checkpoint::quantization_in(place().weights);
      if (form_) out_.dequantized = form_->name();
    }
    see_head();
    if (!overrides.empty()) {
      Overridden read = read_overridden(own_, place().notes / "config.json", overrides, plugins_, warnings);
      out_.spec = std::move(read.spec);
      out_.idle_keys = std::move(read.idle);
    } else if (!why_.empty()) {
      out_.spec = tied_.untied;
    }
    out_.dtype = out_.spec->facts().dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
    read_origin();
    if (!why_.empty()) keep_own_head(out_, why_, own_);
    add_adapters();
    if (overrides.exported) {
      out_.exported_keys = overrides.keys.where();
      add_to_config(out_.origin.files["config.json"], overrides.keys);
    }
    return std::move(out_);
  }

 private:
  const ModelPlace& place() const { return out_.place; }

  // Finds out whether the files or an adapter make the head differ from what config.json says.
  void see_head() {
    try {
      plain_ = out_.spec ? out_.spec : engine::read_model(own_, plugins_, UnknownKeys::passed_over);
    } catch (const Error&) {
      return;  // read_overridden() reports the error in the keys
    }
    if (weights_ || !place().adapters.empty()) tied_ = find_tied_head(own_, *plain_, plugins_);
    if (tied_.head.empty()) return;
    if (weights_) {
      in_files_ = head_in_files(tied_, {place().weights, weights_, form_});
      if (in_files_.differs)
        why_ = in_files_.head + " and " + in_files_.embedding +
               " have different values in the files, and transformers 5 does not tie them";
    }
    for (const std::filesystem::path& adapter : place().adapters)
      if (!in_files_.differs && adapts_head(tied_, adapter)) {
        head_is_copied_ = true;
        why_ =
            "the adapter in " + adapter.string() + " changes " + tied_.head + " without " + tied_.embedding;
      }
    if (!why_.empty()) own_ = untied_keys(own_);
  }

  void read_origin() {
    // A head that is copied from the embedding is not in the files.
    const auto in_files = head_is_copied_ ? plain_ : out_.spec;
    if (is_hugging_face_) {
      out_.origin = checkpoint::read_origin(place().weights, *weights_);
      for (const auto& [name, tensor] : out_.origin.tensors)
        if (in_files_.differs || name != in_files_.head) out_.tensors.push_back(name);  // otherwise a copy
      out_.source = checkpoint::hf_source(place().weights, weights_, in_files);
    } else {
      out_.origin = checkpoint::kept_origin(place().notes);
      for (const auto& [name, tensor] :
           checkpoint::read_manifest(place().weights / checkpoint::kManifest).tensors)
        out_.tensors.push_back(name);
      out_.source = checkpoint::sharded_source(place().weights, place().optimizer, in_files);
    }
    if (head_is_copied_) out_.source = with_head_of_embedding(std::move(out_.source), tied_);
  }

  void add_adapters() {
    for (const std::filesystem::path& adapter : place().adapters)
      out_.source = with_adapter(std::move(out_.source), adapter, out_.spec);
    if (!place().adapters.empty())  // a base that is saved with its adapter
      std::erase_if(out_.tensors, [](const std::string& name) { return name.find(".lora_") != name.npos; });
  }

  PluginRegistry& plugins_;
  PreparedModel out_;
  bool is_hugging_face_ = false;
  Node own_;                                // keys of config.json, as corrected by the files
  std::shared_ptr<const ModelSpec> plain_;  // the model of config.json; null: it cannot be read
  std::shared_ptr<const HfWeights> weights_;
  std::optional<checkpoint::Quantization> form_;  // format of the weights; empty: not quantized
  TiedHead tied_;
  HeadInFiles in_files_;
  bool head_is_copied_ = false;  // the files contain only the embedding
  std::string why_;              // why the head is separate; empty: it is tied, or config.json says so
};

namespace fs = std::filesystem;

// Returns the configuration of the checkpoint that contains the model; empty: none.
fs::path saved_configuration(const fs::path& weights) {
  for (fs::path at = weights; at.has_relative_path(); at = at.parent_path()) {
    std::error_code ignored;
    if (fs::is_regular_file(at / "config.yaml", ignored)) return at / "config.yaml";
    if (at.filename() != "model" && at.filename() != "consolidated") break;
  }
  return {};
}

std::vector<std::string> plugins_in(const fs::path& file) {
  static const std::array<std::string, 1> kRead = {"plugins"};
  std::vector<std::string> out;
  const Node root = config::read_only(file.string(), kRead);
  const Node* section = root.find("plugins");
  if (section == nullptr || !section->is_list()) return out;
  for (const Node& item : section->items()) out.push_back(item.as_text());
  return out;
}

std::string hint_of(const ModelPlace& place) {
  const std::string option =
      "--config RUN.yaml opens the plugins that the run's file names; HEDDLE_PLUGIN_PATH=DIR sets "
      "their directory";
  const fs::path file = saved_configuration(place.weights);
  const std::vector<std::string> named = file.empty() ? std::vector<std::string>() : plugins_in(file);
  if (named.empty()) return option;
  return "the run that saved it had plugins: " + text::join(named) +
         ", and heddle does not load code that a saved file names without being asked: " + option;
}

bool is_offered(const fs::path& config_json, PluginRegistry& plugins) {
  const Node keys = checkpoint::read_config_json(config_json);
  const Node* type = keys.find("model_type");
  return type == nullptr || type->kind() != Node::Kind::text || plugins.model(type->as_text()) != nullptr;
}

}  // namespace

PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins) {
  std::vector<std::string> none;
  return open_pretrained(path, plugins, {}, none);
}

PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins,
                              const ConfigOverrides& overrides, std::vector<std::string>& warnings) {
  return Opener(path, plugins).open(overrides, warnings);
}

std::shared_ptr<const ModelSpec> read_saved_model(const ModelPlace& place, PluginRegistry& plugins) {
  const fs::path file = place.notes / "config.json";
  try {
    return engine::read_model(file, plugins);
  } catch (const ErrorList&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::input || is_offered(file, plugins)) throw;
    throw Error(error.code(), error.where(), error.message(), hint_of(place));
  }
}

}  // namespace heddle
