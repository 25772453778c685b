// CLI11 options of `heddle plugins`.
#include "trainer/cli/main/command_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "trainer/cli/plugins/templates.h"

namespace heddle::cli {

CLI::Validator in_range(double least, double most) {
  const CLI::Range range(least, most);
  const auto refuse = [range](std::string& word) {
    return text::lower(word).find("nan") != word.npos ? "'" + word + "' is not a number" : range(word);
  };
  return CLI::Validator(refuse, range.get_description());
}

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
      ->check(in_range(1, 86400));
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
  create
      ->add_option(
          "--from-hf", to.from_hf,
          "config.json of a Hugging Face model, or its directory; a new model family starts with its "
          "keys")
      ->option_text("FILE");
  for (CLI::App* each : {list, inspect, check}) each->add_flag("--json", json, "Print JSON");
  list->callback([&to] { to.action = PluginsCommand::Action::list; });
  inspect->callback([&to] { to.action = PluginsCommand::Action::inspect; });
  check->callback([&to] { to.action = PluginsCommand::Action::check; });
  create->callback([&to] { to.action = PluginsCommand::Action::create; });
}

namespace {

using Format = ScheduleCommand::Format;

void add_sizes(CLI::App& command, ScheduleCommand& to) {
  command.add_option("--ranks", to.ranks, "Number of ranks of the pipeline")->check(CLI::Range(1, 4096));
  command
      .add_option("--stages", to.stages, "Number of stages of the whole pipeline, a multiple of the ranks")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--microbatches", to.microbatches, "Number of microbatches per step")
      ->check(CLI::Range(1, 1 << 20));
}

void add_comparison(CLI::App& command, ScheduleCommand& to) {
  command.add_flag("--compare", to.compare, "Compare all schedules for these sizes, the shortest first");
  command
      .add_option("--times", to.times,
                  "Times of a forward (F), the gradients of inputs (I) and of weights (W) on all layers of a "
                  "rank, and a transfer (C), in any unit (default 1,1,1,0)")
      ->delimiter(',')
      ->expected(4)
      ->check(CLI::NonNegativeNumber)
      ->option_text("F,I,W,C");
  command
      .add_option(
          "--times-from", to.times_from,
          "Trace file of heddle train --trace; use the measured times of its last step instead of --times")
      ->option_text("TRACE")
      ->excludes("--times");
  command
      .add_option("--limit", to.limit, "Maximum number of live microbatches per rank, for auto and --compare")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  command
      .add_option(
          "--memory", to.memory,
          "Memory that one microbatch keeps on all layers of a rank: 3GiB, 800MiB; --compare prints the "
          "peak memory per rank")
      ->transform(CLI::Validator(read_size, ""))
      ->option_text("SIZE");
  command
      .add_option("--trace", to.trace,
                  "Write the simulation to this file as a trace for Perfetto; a unit of time is a "
                  "millisecond")
      ->option_text("FILE");
}

}  // namespace

namespace {

// Parses "12" or "12-14", counted from 1.
bool read_steps(const std::string& word, int64_t& first, int64_t& last) {
  const auto read = [&](std::string_view digits, int64_t& to) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), to);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const std::string_view whole = word;
  const size_t dash = whole.find('-');
  if (!read(whole.substr(0, dash), first)) return false;
  last = first;
  if (dash != whole.npos && !read(whole.substr(dash + 1), last)) return false;
  return first >= 1 && last >= first;
}

}  // namespace

void add_trace(CLI::App& command, TrainCommand& to) {
  CLI::Option* trace =
      command.add_option("--trace", to.trace,
                         "Write a trace of some steps of all ranks to this file, for Perfetto "
                         "(ui.perfetto.dev) or chrome://tracing");
  trace->option_text("FILE");
  command
      .add_option_function<std::string>(
          "--trace-steps",
          [&to](const std::string& word) {
            if (!read_steps(word, to.trace_first, to.trace_last))
              throw CLI::ValidationError("--trace-steps",
                                         "expected a step or a range such as 3 or 3-5, got '" + word + "'");
          },
          "Steps to trace, numbered as in the progress line (default: the second and the third of the "
          "run)")
      ->needs(trace)
      ->option_text("A-B");
  command.add_flag("--trace-operators", to.trace_operators, "Record LibTorch's operators in the trace too")
      ->needs(trace);
}

std::string read_size(std::string& word) {
  const std::string given = word;
  try {
    const std::string wrong = CLI::AsSizeValue(true)(word);
    if (wrong.empty() && word != "0" && !word.starts_with("-")) return "";
  } catch (const CLI::Error&) {
  }
  return "expected a size such as 5GB or 800MiB, got '" + given + "'";
}

void add_schedule(CLI::App& app, ScheduleCommand& to) {
  CLI::App* command = app.add_subcommand(
      "schedule", "Prints a pipeline schedule, compares all schedules, or checks one from a file");
  CLI::Option* name = command->add_option(
      "NAME", to.name, "Name of the schedule, case-insensitive: 1f1b, zb1p, auto, or one of a plugin");
  add_sizes(*command, to);
  add_comparison(*command, to);
  command->add_flag("--lowered", to.lowered, "Include transfers, UNSHARD, RESHARD and REDUCE_GRAD");
  const std::map<std::string, Format> formats = {
      {"table", Format::table}, {"csv", Format::csv}, {"json", Format::json}, {"svg", Format::svg}};
  command
      ->add_option_function<std::string>(
          "--format", [&to, formats](const std::string& word) { to.format = formats.at(word); },
          "Output format: table, csv (as PyTorch writes it), json or svg")
      ->check(CLI::IsMember({"table", "csv", "json", "svg"}))
      ->option_text("table|csv|json|svg");
  command->add_flag_callback(
      "--json", [&to] { to.format = Format::json; }, "Short for --format json");
  CLI::Option* csv =
      command->add_option("--csv", to.csv, "Check and print the table in this file, instead of NAME");
  csv->option_text("FILE")->excludes(name);
  for (const char* other :
       {"--ranks", "--stages", "--microbatches", "--compare", "--times", "--times-from", "--limit"})
    csv->excludes(command->get_option(other));
  for (const char* other : {"--stages", "--lowered"})
    command->get_option("--compare")->excludes(command->get_option(other));
  for (const char* other : {"NAME", "--trace"})
    command->get_option("--compare")->excludes(command->get_option(other));
  command->get_option("--memory")->needs(command->get_option("--compare"));
}

ScheduleCommand checked_schedule(ScheduleCommand asked) {
  std::string missing;
  const bool by_sizes = !asked.name.empty() || asked.compare;
  if (!by_sizes && asked.csv.empty()) missing = "a NAME, or --csv FILE";
  if (by_sizes && asked.ranks == 0) missing = "--ranks R";
  if (by_sizes && asked.ranks > 0 && asked.microbatches == 0) missing = "--microbatches M";
  if (!missing.empty())
    throw Error(ErrorCode::usage, "heddle schedule", missing + " is required",
                std::string("for example: heddle schedule ") + (asked.compare ? "--compare" : "1f1b") +
                    " --ranks 4 --microbatches 8");
  if (asked.compare && asked.format == Format::csv)
    throw Error(ErrorCode::usage, "heddle schedule", "--compare prints a table, JSON or SVG only",
                "remove --format, or use --json or --format svg");
  return asked;
}

namespace {

// Parses words such as "1,2,3". An empty id, as in "1,,2", is an error.
std::vector<int64_t> token_ids(const std::vector<std::string>& words) {
  std::vector<int64_t> ids;
  for (const std::string& word : words)
    for (size_t from = 0; from <= word.size();) {
      const size_t comma = std::min(word.find(',', from), word.size());
      const std::string id = word.substr(from, comma - from);
      const auto [end, failure] = std::from_chars(id.data(), id.data() + id.size(), ids.emplace_back());
      if (id.empty() || failure != std::errc() || end != id.data() + id.size())
        throw CLI::ValidationError("--tokens", "expected whole numbers separated by commas, got '" + word +
                                                   "'" + (id.empty() ? ", which contains an empty id" : ""));
      from = comma + 1;
    }
  return ids;
}

}  // namespace

void add_data(CLI::App& app, DataCommand& to) {
  CLI::App* command = app.add_subcommand("data", "Tokenizes text files into a token file");
  command->add_option("TEXT", to.texts, "Text files (UTF-8) in order; - is standard input")->required();
  command->add_option("--out", to.out, "Token file to write")->required()->option_text("FILE");
  command->add_flag("--force", to.force, "Replace FILE if it exists");
  auto* tokenizer = command
                        ->add_option("--tokenizer", to.tokenizer,
                                     "Model directory with a tokenizer.json (default: tokens are bytes)")
                        ->option_text("DIR");
  auto* lines = command->add_flag("--lines", to.lines, "Treat each line as a document (default: each file)");
  auto* field = command
                    ->add_option("--field", to.field,
                                 "Read JSON Lines, with the document in this field (*.jsonl: text)")
                    ->option_text("NAME");
  auto* end = command
                  ->add_option("--end-token", to.end_token,
                               "Token after each document (default: the model's end token)")
                  ->option_text("TOKEN");
  for (CLI::Option* option : {lines, field, end}) option->needs(tokenizer);
  lines->excludes(field);
  command->footer("heddle data show RUN.yaml prints the samples that heddle prepare has made for a recipe");
}

void add_show(CLI::App& app, ShowCommand& to) {
  CLI::App* command =
      app.add_subcommand("data", "Tokenizes texts and shows prepared samples")
          ->add_subcommand("show",
                           "Prints prepared samples as text, with marks on trained tokens and counts");
  command->add_option("FILE", to.files, "Recipes, whose samples are shown, or NAME.samples files")
      ->required();
  command->add_option("--from", to.first, "First sample to show, counted from 1")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 48));
  command->add_option("--samples", to.count, "Number of samples to show")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--tokenizer", to.tokenizer,
                   "Directory of the tokenizer.json to use (default: the one that made the file)")
      ->option_text("DIR");
  command
      ->add_option("--color", to.colour,
                   "Color output: auto, always or never; without color, trained tokens are in [[...]]")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->option_text("WHEN");
}

namespace {

void add_tokens(CLI::App& command, CLI::Option* prompt, GenerateCommand& to) {
  command
      .add_option_function<std::vector<std::string>>(
          "--tokens", [&to](const std::vector<std::string>& words) { to.tokens = token_ids(words); },
          "Token ids to continue instead of a prompt, separated by commas; prints ids")
      ->type_name("INT")
      ->excludes(prompt);
}

}  // namespace

void add_generate(CLI::App& app, GenerateCommand& to) {
  CLI::App* command = app.add_subcommand("generate", "Generates text with a trained model");
  command
      ->add_option("DIR", to.directory,
                   "Hugging Face directory, checkpoint_dir of a run, or a checkpoint in it")
      ->required();
  command->add_option("--config", to.config, "YAML file of a run, to load its plugins")->option_text("FILE");
  auto* prompt = command->add_option("--prompt", to.prompt, "Text to continue");
  command
      ->add_flag(
          "--chat", to.chat,
          "Render the prompt as a user message with the tokenizer's chat template, and print the answer")
      ->needs(prompt);
  command
      ->add_option("--tokenizer", to.tokenizer,
                   "Directory of the tokenizer.json to use (default: the model's own)")
      ->option_text("DIR");
  add_tokens(*command, prompt, to);
  command->add_option("--max-new-tokens,--max-tokens", to.max_new_tokens, "Maximum number of new tokens")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--temperature", to.temperature, "Sampling temperature; 0 selects the most likely token")
      ->capture_default_str()
      ->check(in_range(0, 100));
  command->add_option("--top-k", to.top_k, "Sample from the k most likely tokens; 0: from all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--top-p", to.top_p,
                   "Sample from the most likely tokens whose probabilities sum to this value; 1: from all")
      ->capture_default_str()
      ->check(in_range(0, 1));
  command->add_option("--seed", to.seed, "Seed of sampling")->capture_default_str();
}

}  // namespace heddle::cli
