// The options of the commands that take text: data and generate.
#include "trainer/cli/main/text_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

namespace heddle::cli {
namespace {

// Of each word, "1,2,3". An id that is empty, as in "1,,2", is refused.
std::vector<int64_t> token_ids(const std::vector<std::string>& words) {
  std::vector<int64_t> ids;
  for (const std::string& word : words)
    for (size_t from = 0; from <= word.size();) {
      const size_t comma = std::min(word.find(',', from), word.size());
      const std::string id = word.substr(from, comma - from);
      const auto [end, failure] = std::from_chars(id.data(), id.data() + id.size(), ids.emplace_back());
      if (id.empty() || failure != std::errc() || end != id.data() + id.size())
        throw CLI::ValidationError("--tokens", "expected whole numbers separated by commas, got '" + word +
                                                   "'" + (id.empty() ? ", which has an empty one" : ""));
      from = comma + 1;
    }
  return ids;
}

}  // namespace

void add_data(CLI::App& app, DataCommand& to) {
  CLI::App* command =
      app.add_subcommand("data", "Makes a token file of texts: of a model's tokenizer, or of bytes");
  command->add_option("TEXT", to.texts, "Text files (UTF-8), in this order; - is standard input")->required();
  command->add_option("--out", to.out, "The token file to write")->required()->option_text("FILE");
  command->add_flag("--force", to.force, "Replace FILE where it exists");
  auto* tokenizer =
      command
          ->add_option("--tokenizer", to.tokenizer,
                       "A model directory with its tokenizer.json; without it a token is a byte")
          ->option_text("DIR");
  auto* lines = command->add_flag("--lines", to.lines, "Each line is a document (default: each file)");
  auto* field = command
                    ->add_option("--field", to.field,
                                 "Each line is a JSON object, and this field the document (*.jsonl: text)")
                    ->option_text("NAME");
  auto* end = command
                  ->add_option("--end-token", to.end_token,
                               "The token after each document (default: the model's end token)")
                  ->option_text("TOKEN");
  for (CLI::Option* option : {lines, field, end}) option->needs(tokenizer);
  lines->excludes(field);
  command->footer("heddle data show RUN.yaml shows what heddle prepare has made for a recipe, as text");
}

void add_show(CLI::App& app, ShowCommand& to) {
  CLI::App* command =
      app.add_subcommand("data", "Texts and tokens")
          ->add_subcommand("show", "Shows prepared samples as text: what is trained on, and counts");
  command->add_option("FILE", to.files, "Recipes, whose own samples are shown, or files NAME.samples")
      ->required();
  command->add_option("--from", to.first, "The first sample to show, counted from 1")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 48));
  command->add_option("--samples", to.count, "How many to show")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--tokenizer", to.tokenizer,
                   "A directory with the tokenizer.json to use (default: the one that made the file)")
      ->option_text("DIR");
  command->add_option("--color", to.colour, "auto, always or never; without colour [[...]] is trained on")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->option_text("WHEN");
}

namespace {

void add_tokens(CLI::App& command, CLI::Option* prompt, GenerateCommand& to) {
  command
      .add_option_function<std::vector<std::string>>(
          "--tokens", [&to](const std::vector<std::string>& words) { to.tokens = token_ids(words); },
          "Token ids to continue, separated by commas; ids are printed")
      ->type_name("INT")
      ->excludes(prompt);
}

}  // namespace

void add_generate(CLI::App& app, GenerateCommand& to) {
  CLI::App* command = app.add_subcommand("generate", "Continues a text with a trained model");
  command
      ->add_option("DIR", to.directory,
                   "A Hugging Face directory, the checkpoint directory of a run, or a checkpoint in it")
      ->required();
  command->add_option("--config", to.config, "The YAML file of a run: its plugins are known too")
      ->option_text("FILE");
  auto* prompt = command->add_option("--prompt", to.prompt, "The text to continue");
  command
      ->add_flag(
          "--chat", to.chat,
          "The prompt is a user's message: the tokenizer's chat template renders it, the answer is printed")
      ->needs(prompt);
  command
      ->add_option("--tokenizer", to.tokenizer,
                   "A directory with the tokenizer.json to use (default: the model's own)")
      ->option_text("DIR");
  add_tokens(*command, prompt, to);
  command
      ->add_option("--max-new-tokens,--max-tokens", to.max_new_tokens,
                   "How many tokens to add, where no end token comes before")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command->add_option("--temperature", to.temperature, "0: the likeliest token each time")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-k", to.top_k, "Choose among the k likeliest; 0: among all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--top-p", to.top_p,
                   "Choose among the likeliest that together have this probability; 1: among all")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", to.seed, "Seed of the choice")->capture_default_str();
}

}  // namespace heddle::cli
