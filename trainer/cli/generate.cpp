// `heddle generate`: generates text with a trained model.
#include "trainer/cli/run_commands.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "lib/data/document_reader.h"
#include "lib/data/tokenizer/end_tokens.h"
#include "lib/data/tokenizer/tokenizer.h"
#include "lib/run/generate/generate.h"
#include "lib/run/generate/loaded_model.h"
#include "lib/run/model/prepared_model.h"
#include "trainer/cli/configuration.h"

namespace heddle::cli {
namespace {

// Converts a prompt to tokens and prints new tokens.
class Text {
 public:
  virtual ~Text() = default;
  virtual std::vector<int64_t> prompt() = 0;  // tokens of the prompt
  virtual void begin() = 0;                   // prints the prompt
  virtual void add(int64_t token) = 0;        // prints a new token
  virtual void end() {}
};

class TextOfIds final : public Text {
 public:
  explicit TextOfIds(const std::vector<int64_t>& tokens) : tokens_(tokens) {}
  std::vector<int64_t> prompt() override { return tokens_; }
  void begin() override {
    for (size_t i = 0; i < tokens_.size(); ++i) std::cout << (i == 0 ? "" : ",") << tokens_[i];
  }
  void add(int64_t token) override { std::cout << ',' << token; }

 private:
  const std::vector<int64_t>& tokens_;
};

class TextOfBytes final : public Text {
 public:
  explicit TextOfBytes(const std::string& prompt) : prompt_(prompt) {}
  std::vector<int64_t> prompt() override {
    std::vector<int64_t> tokens;
    for (const char byte : prompt_) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  void begin() override { std::cout << prompt_ << std::flush; }
  void add(int64_t token) override { std::cout << static_cast<char>(token) << std::flush; }

 private:
  const std::string& prompt_;
};

// Text of a tokenizer. As in transformers, the prompt gets special tokens and the printed text has none.
class TextOfTokens final : public Text {
 public:
  TextOfTokens(Tokenizer& tokenizer, const std::string& prompt) : tokenizer_(tokenizer), prompt_(prompt) {}
  std::vector<int64_t> prompt() override {
    const std::vector<std::string> texts{prompt_};
    const std::vector<uint32_t> ids = tokenizer_.encode(texts).at(0);
    return {ids.begin(), ids.end()};
  }
  void begin() override {
    for (const int64_t token : prompt()) add(token);
  }
  void add(int64_t token) override {
    tokens_.push_back(token);
    const std::string more = tokenizer_.step(token);
    printed_ += more;
    std::cout << more << std::flush;
  }
  // Prints the text that step() held back: an incomplete character at the end.
  void end() override {
    const std::string whole = tokenizer_.decode(tokens_);
    if (whole.starts_with(printed_)) std::cout << whole.substr(printed_.size());
  }

 private:
  Tokenizer& tokenizer_;
  const std::string& prompt_;
  std::vector<int64_t> tokens_;
  std::string printed_;
};

// Chat: renders a user message with the chat template and prints only the answer.
class TextOfChat final : public Text {
 public:
  TextOfChat(Tokenizer& tokenizer, const std::string& message)
      : tokenizer_(tokenizer), prompt_(tokenizer.chat(message)) {}
  std::vector<int64_t> prompt() override { return prompt_; }
  void begin() override {
    for (const int64_t token : prompt_) tokenizer_.step(token);  // so that the answer gets its spaces
  }
  void add(int64_t token) override { std::cout << tokenizer_.step(token) << std::flush; }

 private:
  Tokenizer& tokenizer_;
  const std::vector<int64_t> prompt_;
};

// Returns the tokenizer of the given directory, else the model's own; null if tokens are bytes or ids.
std::unique_ptr<Tokenizer> tokenizer_of(const GenerateCommand& command, const ModelPlace& model) {
  if (!command.tokens.empty()) return nullptr;
  if (command.prompt.empty())
    throw Error(ErrorCode::usage, "heddle generate", "the prompt is empty", "give --prompt TEXT");
  const bool named = !command.tokenizer.empty();
  if (!named && has_byte_tokenizer(model)) return nullptr;
  const std::filesystem::path directory = named ? command.tokenizer : model.notes.string();
  if (!named && !std::filesystem::exists(directory / "tokenizer.json"))
    throw Error(ErrorCode::usage, model.weights.string(),
                "the model has no tokenizer.json and was not trained on bytes of text",
                "set --tokenizer DIR to the directory of one, or give token ids: --tokens 1,2,3");
  if (const size_t valid = valid_utf8(command.prompt); valid != command.prompt.size())
    throw Error(ErrorCode::usage, "heddle generate",
                "byte " + std::to_string(valid + 1) + " of the prompt is not UTF-8");
  return std::make_unique<Tokenizer>(directory);
}

// Returns the stop tokens of the given tokenizer if it has any, else of the model.
std::vector<int64_t> ends_of(const GenerateCommand& command, const ModelPlace& model, Tokenizer* tokenizer) {
  if (!command.tokenizer.empty() && tokenizer != nullptr)
    if (auto ends = stop_tokens(command.tokenizer, tokenizer); !ends.empty()) return ends;
  return stop_tokens(model.notes, tokenizer);
}

std::unique_ptr<Text> make_text(const GenerateCommand& command, Tokenizer* tokenizer) {
  if (!command.tokens.empty()) return std::make_unique<TextOfIds>(command.tokens);
  if (command.chat && tokenizer == nullptr)
    throw Error(ErrorCode::usage, "--chat", "the model was trained on bytes, which have no chat template",
                "remove --chat");
  if (tokenizer == nullptr) return std::make_unique<TextOfBytes>(command.prompt);
  if (command.chat) return std::make_unique<TextOfChat>(*tokenizer, command.prompt);
  return std::make_unique<TextOfTokens>(*tokenizer, command.prompt);
}

void check_tokens(const std::vector<int64_t>& tokens, int64_t vocabulary) {
  for (const int64_t token : tokens)
    if (token < 0 || token >= vocabulary)
      throw Error(ErrorCode::usage, "heddle generate",
                  "token " + std::to_string(token) + " is outside the model's vocabulary of " +
                      std::to_string(vocabulary));
}

}  // namespace

int generate(const GenerateCommand& command) {
  PluginRegistry plugins = plugins_of_file(command.config);
  const PreparedModel model = open_pretrained(command.directory, plugins);
  const ModelFacts facts = model.spec->facts();
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(command, model.place);
  const Sampling sampling{command.temperature, command.top_k, facts.max_positions, command.top_p,
                          ends_of(command, model.place, tokenizer.get())};
  // tensors that a transform added in a run, which this command does not use
  std::vector<std::string> unused;
  warn_of_unused(model, model.make(), unused);
  for (const std::string& warning : unused) std::cerr << "warning: " << warning << std::endl;
  LoadedModel loaded(model);
  const std::unique_ptr<Text> text = make_text(command, tokenizer.get());
  const std::vector<int64_t> prompt = text->prompt();
  check_tokens(prompt, facts.vocabulary);
  if (const std::string& why = loaded.why_no_cache(); !why.empty())
    std::cerr << "warning: no KV cache, so each new token recomputes the whole text: " << why << std::endl;
  bool has_begun = false;
  const auto begin_once = [&] {  // printed after the first answer, so that an error comes before any text
    if (!std::exchange(has_begun, true)) text->begin();
  };
  heddle::generate(loaded.logits(), prompt, command.max_new_tokens, sampling, command.seed, loaded.cache(),
                   [&](int64_t token) {
                     begin_once();
                     text->add(token);
                   });
  begin_once();
  text->end();
  std::cout << std::endl;
  return 0;
}

}  // namespace heddle::cli
