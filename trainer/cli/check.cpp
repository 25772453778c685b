// `heddle check`: validates configurations against numbers of ranks, and prints what they come to.
#include "trainer/cli/check.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>

#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "trainer/loop/job.h"

namespace heddle::cli {
namespace {

// The sections that the engine reads, where the rest belongs to another trainer.
const std::array<std::string, 2> kEngineSections = {"distributed", "dist_env"};

std::vector<int> world_sizes(const CheckCommand& command) {
  if (!command.world_sizes.empty()) return command.world_sizes;
  const char* text = std::getenv("WORLD_SIZE");
  if (text == nullptr || *text == '\0') return {1};
  char* end = nullptr;
  const long size = std::strtol(text, &end, 10);
  if (*end != '\0' || size < 1 || size > 1 << 30)
    throw Error(ErrorCode::usage, "WORLD_SIZE", "expected a number of ranks, got '" + std::string(text) + "'",
                "give --world-size N");
  return {static_cast<int>(size)};
}

// A file without any section of a recipe holds words for the engine alone, and has no model to check.
bool is_recipe(const Node& whole) {
  for (const auto& [key, value] : whole.entries())
    if (key != "distributed" && key != "dist_env" && key != "plugins") return true;
  return false;
}

void check_override(const Override& override_, const CheckCommand& command) {
  const std::string section = override_.key.substr(0, override_.key.find('.'));
  if (!command.only_distributed) return;
  if (std::find(kEngineSections.begin(), kEngineSections.end(), section) != kEngineSections.end()) return;
  throw Error(ErrorCode::usage, "--" + override_.key,
              "with --only distributed, only distributed and dist_env are read",
              "leave --only distributed out to check the whole recipe");
}

// A configuration as it is read, with its plugins; or why it cannot be.
struct Loaded {
  std::optional<Node> configuration;
  std::optional<Recipe> recipe;  // empty: words for the engine alone
  std::shared_ptr<PluginRegistry> plugins;
  std::optional<Error> error;
};

class Checker {
 public:
  explicit Checker(const CheckCommand& command) : command_(command) {}

  int run() {
    const std::vector<int> sizes = world_sizes(command_);
    for (const Override& one : command_.overrides) check_override(one, command_);
    for (const std::string& file : command_.configs) {
      const Loaded loaded = load(file);
      for (const int size : sizes) check(file, size, loaded);
    }
    std::cout.flush();
    if (!std::cout) throw Error(ErrorCode::io, "standard output", "cannot be written");
    return status_;
  }

 private:
  Loaded load(const std::string& file) {
    Loaded out;
    try {
      Node whole = command_.only_distributed ? config::read_only(file, kEngineSections) : config::read(file);
      for (const Override& one : command_.overrides) whole = config::with_override(whole, one.key, one.value);
      if (!command_.only_distributed && is_recipe(whole)) out.recipe = read_recipe(whole);
      out.plugins = plugins_of(whole);
      out.configuration = std::move(whole);
    } catch (const Error& error) {
      out.error = error;
    }
    return out;
  }

  // Files that name no plugins share one registry: each plugin is opened once.
  std::shared_ptr<PluginRegistry> plugins_of(const Node& configuration) {
    const Log log = Log::to_stderr(0);
    if (const Node* own = configuration.find("plugins"); own != nullptr && !own->is_null())
      return std::make_shared<PluginRegistry>(open_plugins(configuration, log));
    if (shared_ == nullptr) shared_ = std::make_shared<PluginRegistry>(open_plugins(Node::map({}), log));
    return shared_;
  }

  void check(const std::string& file, int size, const Loaded& loaded) {
    try {
      if (loaded.error) throw *loaded.error;
      Setup setup = engine::validate(*loaded.configuration, *loaded.plugins, size);
      if (loaded.recipe) {
        check_recipe(*loaded.recipe, setup);
        const std::vector<std::string>& more = loaded.recipe->not_built;
        setup.not_built.insert(setup.not_built.end(), more.begin(), more.end());
      }
      print(file, setup);
    } catch (const Error& error) {
      status_ = 2;
      refuse(file, size, error);
    }
  }

  void print(const std::string& file, const Setup& setup) const {
    if (command_.json) {
      std::cout << "{\"config\": " << text::quoted(file) << ", " << engine::to_json(setup).substr(1) << "\n";
      return;
    }
    const int ranks = setup.sizes.world;
    std::cout << file << " on " << ranks << (ranks == 1 ? " rank\n" : " ranks\n") << engine::to_text(setup)
              << "\n";
  }

  void refuse(const std::string& file, int size, const Error& error) const {
    if (command_.json)
      std::cout << "{\"config\": " << text::quoted(file) << ", \"world_size\": " << size << ", "
                << error.json().substr(1) << "\n";
    else
      std::cout << file << " on " << size << (size == 1 ? " rank: refused\n\n" : " ranks: refused\n\n");
    std::cout.flush();
    std::cerr << error.what() << std::endl;
  }

  const CheckCommand& command_;
  std::shared_ptr<PluginRegistry> shared_;
  int status_ = 0;
};

}  // namespace

int check(const CheckCommand& command) {
  return Checker(command).run();
}

}  // namespace heddle::cli
