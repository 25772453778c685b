// Parsed commands of the `heddle` program, which its small executable passes to libheddle_trainer.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle::cli {

// An override such as "--distributed.tp_size 2". The value is read as YAML.
struct Override {
  std::string key, value;
};

struct TrainCommand {
  std::string config;
  std::optional<Node> configuration;  // the file, already parsed by main; empty: not read yet
  std::optional<int> nproc_per_node;  // local ranks; empty: 1, or the launcher's number
  int max_restarts = 0;               // restarts of all local ranks after a rank is lost
  std::string metrics;                // empty: training.jsonl in checkpoint_dir
  std::optional<double> peak_flops;   // FLOP/s per rank; empty: from a table, or measured
  bool json = false;                  // print errors on standard output too, as JSON
  std::string trace;                  // trace file; empty: none
  // step numbers from 1; 0: the second and the third step of the run
  int64_t trace_first = 0, trace_last = 0;
  bool trace_operators = false;
  std::vector<Override> overrides;
};

// Sections that --only distributed reads.
inline const std::array<std::string, 2> kEngineSections = {"distributed", "dist_env"};

struct CheckCommand {
  std::vector<std::string> configs;
  std::vector<int> world_sizes;   // empty: WORLD_SIZE of the environment, else 1
  bool only_distributed = false;  // the files may be recipes of another trainer
  bool elsewhere = false;  // the run is for another machine: files and devices missing here are warnings
  bool json = false;
  bool verbose = false;    // print the reason for each skipped section and key
  std::string cost;        // device to predict the cost of a step for
  int64_t row_length = 0;  // tokens per row in that step; 0: of the data
  std::vector<Override> overrides;
};

struct PlanCommand {
  std::string config;
  int world_size = 1;
  std::string device = "H100";       // name of a machine file
  std::string machine;               // machine file; empty: that of `device`
  int nodes = 0, gpus_per_node = 0;  // 0: from the machine file
  double network = 0;                // bytes per second of a device between nodes; 0: from the machine file
  double memory = 0.9;               // share of device memory for tensors
  int64_t row_length = 0;            // tokens per row; 0: of the data
  double seconds = 20;               // no new layout is tried after this time
  int top = 10;
  int explain = 0;                   // table row of the layout to explain; 0: none
  std::string picture, trace;        // files for one step of that layout, or of the fastest; empty: none
  std::vector<std::string> fixed;    // KEY=VALUE
  std::vector<std::string> allowed;  // "fp8": layouts with this section too
  std::string write;                 // file for a recipe with that layout; empty: none
  std::string measure;               // machine file to write for this machine, instead of a plan; empty: none
  bool json = false;
  std::vector<Override> overrides;
};

struct PluginsCommand {
  enum class Action { list, inspect, check, create } action = Action::list;
  // list: directories; inspect: names or files; check: files; create: a name
  std::vector<std::string> arguments;
  bool json = false;
  bool markdown = false;          // inspect: print the table as Markdown
  std::vector<int> ranks;         // check: numbers of data-parallel ranks; empty: the kits' default
  std::string kind = "strategy";  // create: name of the template
  std::string from_hf;            // create: config.json that a model family starts from; empty: none
  std::string config;             // inspect: configuration of a run, for its `plugins:`
  std::string fields;             // check: fields of the plugin's strategies as YAML; empty: defaults
  double time_limit = 60;         // check: seconds per kit
  std::string device = "cpu";     // check: device to train on
};

struct DataCommand {
  std::vector<std::string> texts;
  std::string out;
  bool force = false;     // replace an existing `out`
  std::string tokenizer;  // directory of a tokenizer.json; empty: tokens are bytes
  std::string end_token;  // token after each document; empty: the model's end token
  std::string field;      // JSON Lines: field that contains the text
  bool lines = false;     // each line is a document
};

struct PrepareCommand {
  std::string config;
  std::string out;  // directory of prepared files; empty: HEDDLE_DATA, else data in checkpoint_dir
  int jobs = 0;     // number of threads; 0: number of cores
  std::vector<Override> overrides;
};

struct ShowCommand {
  std::vector<std::string> files;   // files of prepared samples, or recipes
  std::vector<Override> overrides;  // overrides of the recipes
  std::string tokenizer;            // directory of a tokenizer.json; empty: the one that made the samples
  int64_t first = 1, count = 3;
  std::string colour = "auto";
};

struct GenerateCommand {
  std::string directory;  // anything that find_model() accepts
  std::string config;     // configuration of a run, for its `plugins:`
  std::string tokenizer;  // directory of a tokenizer.json; empty: the model's own
  std::string prompt;
  bool chat = false;            // render the prompt as a user message
  std::vector<int64_t> tokens;  // token ids to use instead of the prompt
  int64_t max_new_tokens = 200;
  double temperature = 0.8;  // 0: the most likely token (greedy)
  int64_t top_k = 40;        // 0: all
  double top_p = 1.0;        // 1: all
  uint64_t seed = 42;
};

struct ConvertCommand {
  std::string source, destination;
  std::string config;  // configuration of a run, for its `plugins:`
  std::string dtype;   // dtype to write; empty: unchanged
  // maximum bytes per file; empty: the files of the original, or 5 GiB
  std::optional<uint64_t> max_shard_size;
  std::optional<int> nproc_per_node;
};

struct ScheduleCommand {
  enum class Format { table, csv, json, svg } format = Format::table;
  std::string name;  // name of the schedule; empty: a table from a file
  std::string csv;
  int ranks = 0, microbatches = 0;
  int stages = 0;  // stages of the whole pipeline; 0: the schedule's minimum
  bool lowered = false;
  bool compare = false;         // compare all schedules for these sizes
  std::vector<double> times;    // F, I, W of all layers of a rank, and of a transfer; empty: equal times
  std::string times_from;       // trace file of a run to take the times from
  std::optional<double> limit;  // maximum number of live microbatches per rank
  uint64_t memory = 0;          // bytes per microbatch on a rank; 0: unknown
  std::string trace;            // file for a trace of the simulation; empty: none
};

// An invalid command line of a rank, whose error is sent to the other ranks.
struct RefusedCommand {
  Error error;
};

using Command =
    std::variant<TrainCommand, CheckCommand, PlanCommand, PluginsCommand, DataCommand, GenerateCommand,
                 ConvertCommand, ScheduleCommand, PrepareCommand, ShowCommand, RefusedCommand>;

// The function of libheddle_trainer that the executable calls, and its name. Returns the exit status; throws
// Error.
using RunCommand = int(const Command& command);
inline constexpr const char* kRunCommand = "heddle_run_command";
// Version and digest of this file, built into both sides (HEDDLE_COMMANDS). If they differ, the structs above
// may differ too.
inline constexpr const char* kCommandsStamp = "heddle_commands_stamp";

}  // namespace heddle::cli
