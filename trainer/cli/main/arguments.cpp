// The commands and options of the program, declared for CLI11.
#include "trainer/cli/main/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/run/recipe/section_names.h"
#include "trainer/cli/main/command_arguments.h"
#include "trainer/cli/main/pages/pages.h"
#include "trainer/cli/main/torch.h"

namespace heddle::cli {
namespace {

constexpr const char* kOverrides =
    "--SECTION.KEY VALUE overrides one value of the configuration: --distributed.tp_size 2, --lr_scheduler "
    "none";

// Structs that the options write into, one per command.
struct Parsed {
  TrainCommand train;
  CheckCommand check;
  PlanCommand plan;
  PluginsCommand plugins;
  DataCommand data;
  GenerateCommand generate;
  ConvertCommand convert;
  ScheduleCommand schedule;
  PrepareCommand prepare;
  ShowCommand show;
  PagesAsked pages;
  std::string only;
  bool json = false;
};

void add_train(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("train", "Trains the model that a configuration describes");
  command->add_option("CONFIG", parsed.train.config, "YAML configuration file")->required();
  command
      ->add_option("--nproc-per-node", parsed.train.nproc_per_node,
                   "Number of local ranks to start without a launcher (default 1)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option(
          "--max-restarts", parsed.train.max_restarts,
          "Maximum number of restarts of all local ranks after a rank is lost; they resume from the newest "
          "checkpoint (default 0)")
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--metrics", parsed.train.metrics,
                   "Metrics file (default: training.jsonl in checkpoint.checkpoint_dir)")
      ->option_text("FILE");
  command
      ->add_option("--peak-flops", parsed.train.peak_flops,
                   "Peak FLOP/s per rank for MFU, such as 989e12 (default: from a "
                   "table for GPUs; measured on a CPU)")
      ->check(in_range(1, 1e30));
  command->add_flag("--json", parsed.json, "Print errors on standard output too, as JSON");
  add_trace(*command, parsed.train);
  command->footer(kOverrides);
}

void add_check(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("check", "Validates configurations and prints what they resolve to");
  command->add_option("CONFIG", parsed.check.configs, "YAML configuration files")->required();
  command->add_option("--world-size", parsed.check.world_sizes, "World sizes, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--only", parsed.only, "Read only this section; the file may be any recipe")
      ->check(CLI::IsMember({"distributed"}));
  command->add_flag("--elsewhere", parsed.check.elsewhere,
                    "Check for another machine: a model, data or device that is missing here is a warning");
  command
      ->add_option("--cost", parsed.check.cost,
                   "Also predict the cost of a step on this device: "
                   "cpu, or a GPU such as H100, which may be on another machine; implies --elsewhere")
      ->check([](const std::string& device) { return device.empty() ? "expected the name of a device" : ""; })
      ->option_text("DEVICE");
  command
      ->add_option("--row-length", parsed.check.row_length,
                   "Tokens per row in that step (default: the longest row of the data)")
      ->needs("--cost")
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--json", parsed.json, "Print one JSON object per line for each file and world size");
  command->add_flag("--verbose", parsed.check.verbose, "Print the reason for each skipped section and key");
  command->footer(kOverrides);
}

void add_plan_files(CLI::App* command, PlanCommand& to) {
  command
      ->add_option("--picture", to.picture,
                   "Draw a step of the layout of --explain (default: the first) to an SVG file")
      ->option_text("FILE");
  command
      ->add_option("--trace", to.trace,
                   "Write a trace of a step of that layout to a file, for ui.perfetto.dev")
      ->option_text("FILE");
  command->add_option("--write", to.write, "Write the recipe with that layout to a file")
      ->option_text("FILE");
  command
      ->add_option("--measure", to.measure,
                   "Measure this machine with --world-size ranks and write its machine file; needs no CONFIG")
      ->option_text("FILE");
}

void add_plan(CLI::App& app, Parsed& parsed) {
  PlanCommand& to = parsed.plan;
  CLI::App* command = app.add_subcommand(
      "plan", "Finds the layouts of a run that fit a machine, and predicts their step times");
  command->add_option("CONFIG", to.config, "YAML configuration file");
  command->add_option("--world-size", to.world_size, "Number of ranks of the run")
      ->required()
      ->check(CLI::Range(1, 1 << 16));
  CLI::Option* device =
      command->add_option("--device", to.device, "Device of the machine, such as H100 (default H100)")
          ->option_text("NAME");
  command
      ->add_option("--machine", to.machine,
                   "Machine file, instead of --device, or several files with the ranks on each: "
                   "a.yaml:8,b.yaml:8")
      ->excludes(device)
      ->option_text("FILE");
  CLI::Option* nodes =
      command->add_option("--nodes", to.nodes, "Number of nodes (default: from the machine file)")
          ->check(CLI::Range(1, 1 << 16));
  command->add_option("--gpus-per-node", to.gpus_per_node, "Number of devices per node, joined by fast links")
      ->excludes(nodes)
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--network", to.network,
                   "Bytes per second that a device sends to other nodes, such as 45e9")
      ->check(in_range(1, 1e15));
  command->add_option("--memory", to.memory, "Share of device memory for tensors (default 0.9)")
      ->check(in_range(0.01, 1));
  command->add_option("--row-length", to.row_length, "Tokens per row (default: the longest row of the data)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seconds", to.seconds, "Time limit of the search in seconds (default 20)")
      ->check(in_range(0.1, 1e6));
  command->add_option("--top", to.top, "Number of layouts to print (default 10)")
      ->check(CLI::Range(1, 10000));
  command->add_option("--explain", to.explain, "Explain the layout in this row of the table")
      ->check(CLI::Range(1, 10000));
  command->add_option("--fix", to.fixed, "Fix a value of all layouts, such as tp_size=4")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--allow", to.allowed,
                   "Also try layouts with products in lower precision, which changes losses: fp8 (linear "
                   "layers) or te_fp8 (linear layers and experts)")
      ->check(CLI::IsMember({"fp8", "te_fp8"}))
      ->allow_extra_args(false)
      ->option_text("PRECISION");
  add_plan_files(command, to);
  command->add_flag("--json", parsed.json, "Print one JSON object on one line");
  command->footer(kOverrides);
}

void add_prepare(CLI::App& app, PrepareCommand& to) {
  CLI::App* command = app.add_subcommand(
      "prepare", "Prepares the samples of a run's texts, as train does before its first step");
  command->add_option("CONFIG", to.config, "YAML configuration file")->required();
  command
      ->add_option(
          "--out", to.out,
          "Directory of the prepared files (default: HEDDLE_DATA, else data in checkpoint.checkpoint_dir)")
      ->option_text("DIR");
  command->add_option("--jobs", to.jobs, "Number of threads (default: number of cores)")
      ->check(CLI::Range(1, 1024));
  command->footer(kOverrides);
}

void add_convert(CLI::App& app, Parsed& parsed) {
  ConvertCommand& to = parsed.convert;
  CLI::App* command = app.add_subcommand(
      "convert", "Converts a checkpoint to a Hugging Face directory, or such a directory to a sharded model");
  command
      ->add_option(
          "SRC", to.source,
          "checkpoint_dir of a run (its LATEST), a checkpoint, its model/, or a Hugging Face directory")
      ->required();
  command->add_option("DST", to.destination, "Directory to write, which must be absent or empty")->required();
  command
      ->add_option(
          "--dtype", to.dtype,
          "Dtype of the Hugging Face directory: float32, bfloat16 or float16 (default: the original's, else "
          "as saved)")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->option_text("DTYPE");
  command
      ->add_option("--max-shard-size", to.max_shard_size,
                   "Maximum size of a file of the Hugging Face directory: 5GB, 800MiB (default: the "
                   "original's files, else "
                   "5GiB)")
      ->transform(CLI::Validator(read_size, ""))
      ->option_text("SIZE");
  command->add_option("--config", to.config, "YAML file of a run, to load its plugins")->option_text("FILE");
  command
      ->add_option("--nproc-per-node", to.nproc_per_node,
                   "Number of local ranks that share the work (default 1)")
      ->check(CLI::Range(1, 1024));
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == name) return command;
  return nullptr;
}

// Returns the candidates for the first unknown word: options, or the subcommands of a command.
std::string nearest_word(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options({}))
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  if (command.get_footer() == kOverrides)
    for (const std::string_view section : kSections) known.push_back("--" + std::string(section));
  for (const CLI::App* below : command.get_subcommands({})) known.push_back(below->get_name());
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (!name.starts_with("--") && command.get_subcommands({}).empty()) continue;
    if (std::string nearest = text::nearest(name, known); !nearest.empty()) return nearest;
  }
  return "";
}

// Returns the message of CLI11, which says of an option without a value "--memory: 1 required UINT missing".
std::string complaint(const CLI::ParseError& error) {
  const std::string said = error.what();
  const bool misses =
      dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && said.ends_with(" missing");
  return text::excerpt(misses ? said.substr(0, said.find(':')) + " needs a value" : said, 400);
}

Error usage_error(const CLI::App& app, const std::vector<std::string>& words, const std::string& what) {
  const bool has_command = !words.empty() && !words[0].starts_with("-");
  const CLI::App* command = has_command ? find_command(app, words[0]) : &app;
  if (command != nullptr) {
    std::string name = has_command ? "heddle " + words[0] : "heddle";
    for (const CLI::App* below : command->get_subcommands({}))  // heddle data show
      if (words.size() > 1 && below->get_name() == words[1]) {
        command = below;
        name += " " + words[1];
        break;
      }
    const std::string nearest = nearest_word(*command, words);
    return Error(ErrorCode::usage, name, what,
                 nearest.empty() ? "run: " + name + " --help" : "did you mean '" + nearest + "'?");
  }
  return unknown_command(app, words[0]);
}

Command command_of(const CLI::App& app, Parsed parsed, std::vector<Override> overrides) {
  parsed.train.json = parsed.check.json = parsed.plan.json = parsed.plugins.json = parsed.json;
  parsed.check.only_distributed = !parsed.only.empty();
  parsed.train.overrides = parsed.check.overrides = parsed.plan.overrides = parsed.prepare.overrides =
      parsed.show.overrides = std::move(overrides);
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "train") return parsed.train;
  if (name == "check") return parsed.check;
  if (name == "plan") return parsed.plan;
  if (name == "plugins") return parsed.plugins;
  if (name == "data" && !parsed.show.files.empty()) return parsed.show;
  if (name == "data") return parsed.data;
  if (name == "prepare") return parsed.prepare;
  if (name == "generate") return parsed.generate;
  if (name == "convert") return parsed.convert;
  return checked_schedule(std::move(parsed.schedule));
}

// Declares all commands and their options. `heddle data` takes files where a subcommand may stand, so `data
// show` is declared instead of it.
void declare(CLI::App& app, Parsed& parsed, bool is_show) {
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text);
  add_train(app, parsed);
  add_check(app, parsed);
  add_plan(app, parsed);
  add_plugins(app, parsed.plugins, parsed.json);
  if (is_show)
    add_show(app, parsed.show);
  else
    add_data(app, parsed.data);
  add_prepare(app, parsed.prepare);
  add_generate(app, parsed.generate);
  add_convert(app, parsed);
  add_schedule(app, parsed.schedule);
  add_pages(app, parsed.pages);
}

constexpr const char* kAbout =
    "heddle trains large language models in parallel; strategies are plugins found by name.";

Answer answer_pages(const PagesAsked& asked) {
  Parsed ignored, ignored_show;
  CLI::App app(kAbout, "heddle"), with_show(kAbout, "heddle");
  declare(app, ignored, false);
  declare(with_show, ignored_show, true);
  return {page(asked, app, with_show, kOverrides)};
}

}  // namespace

std::variant<Answer, Command> parse(std::span<const std::string> given) {
  std::vector<std::string> words(given.begin(), given.end());
  const bool is_show = words.size() > 1 && words[0] == "data" && words[1] == "show";
  std::vector<Override> overrides;
  if (!words.empty() &&
      (words[0] == "train" || words[0] == "check" || words[0] == "plan" || words[0] == "prepare" || is_show))
    overrides = take_overrides(words);

  CLI::App app(kAbout, "heddle");
  Parsed parsed;
  declare(app, parsed, is_show);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return Answer{app.help()};
  } catch (const CLI::CallForAllHelp&) {
    return Answer{app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion& version) {
    return Answer{std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    throw usage_error(app, words, complaint(error));
  }
  if (parsed.pages.is_asked) return answer_pages(parsed.pages);
  return command_of(app, std::move(parsed), std::move(overrides));
}

}  // namespace heddle::cli
