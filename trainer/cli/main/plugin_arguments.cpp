// CLI11 options of `heddle plugins`.
#include "trainer/cli/main/plugin_arguments.h"

#include <CLI/CLI.hpp>

#include "heddle/base/text.h"
#include "trainer/cli/plugins/templates.h"

namespace heddle::cli {

void add_plugins(CLI::App& app, PluginsCommand& to, bool& json) {
  CLI::App* command = app.add_subcommand("plugins", "Lists, inspects, tests and creates plugins");
  command->require_subcommand(1);
  auto* list = command->add_subcommand("list", "Lists the available plugins and their files");
  list->add_option("DIR", to.arguments, "Directories to search in addition to the search path");
  auto* inspect = command->add_subcommand("inspect", "Prints the configuration fields of a plugin");
  inspect->add_option("NAME", to.arguments, "Name or file of a plugin")->required();
  inspect->add_option("--config", to.config, "YAML file of a run, to load its plugins")->option_text("FILE");
  auto* check = command->add_subcommand("check", "Runs the conformance kits on a plugin");
  check->add_option("FILE", to.arguments, "File of the plugin")->required();
  check->add_option("--ranks", to.ranks, "Numbers of ranks to train on, separated by commas (default 1,2,3)")
      ->delimiter(',')
      ->check(CLI::Range(1, 12));
  check->add_option("--fields", to.fields,
                    "Fields of the plugin's strategies, or keys of its models, as YAML: '{bucket_mb: 1}' "
                    "(default: their defaults)");
  check->add_option("--time-limit", to.time_limit, "Time limit per kit in seconds (default 60)")
      ->check(CLI::Range(1.0, 86400.0));
  check
      ->add_option(
          "--device", to.device,
          "Device to train on besides the CPU (default cpu). simulated: GPUs simulated in memory, whose "
          "work runs late, with a race detector")
      ->option_text("cpu|cuda|simulated");
  inspect->add_flag("--markdown", to.markdown, "Print the tables of fields as Markdown");
  auto* create = command->add_subcommand("new", "Creates a plugin project in the directory NAME");
  create->add_option("NAME", to.arguments, "Directory to create; its name is the plugin's name")
      ->required()
      ->expected(1);
  create->add_option("--kind", to.kind, "Kind of plugin to create (default strategy)")
      ->option_text(text::join(template_names(), "|"));
  for (CLI::App* each : {list, inspect, check}) each->add_flag("--json", json, "Print JSON");
  list->callback([&to] { to.action = PluginsCommand::Action::list; });
  inspect->callback([&to] { to.action = PluginsCommand::Action::inspect; });
  check->callback([&to] { to.action = PluginsCommand::Action::check; });
  create->callback([&to] { to.action = PluginsCommand::Action::create; });
}

}  // namespace heddle::cli
