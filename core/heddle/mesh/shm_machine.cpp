// Two exchanges of texts: who is where, and whether all could map the others' memory.
#include "heddle/mesh/shm_machine.h"

#include <cstdlib>
#include <random>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/mesh/process.h"

namespace heddle::mesh {
namespace {

enum class Wish { shared, apart };

Wish wish(size_t most) {
  const char* value = std::getenv("HEDDLE_SHM");
  const std::string given = value == nullptr ? "1" : value;
  if (given == "1" || given.empty()) return most > 0 ? Wish::shared : Wish::apart;
  if (given == "0") return Wish::apart;
  throw Error(ErrorCode::usage, "HEDDLE_SHM", "'" + given + "' is neither 1 nor 0",
              "0 makes the ranks of one machine talk over Gloo; leave it unset for shared memory");
}

uint64_t random_number() {
  std::random_device source;
  return static_cast<uint64_t>(source()) << 32 | source();
}

// What a rank tells of itself, a line each.
struct Card {
  std::string table, path, nonce, why;  // no path: it has no memory to share; and no why: by wish
};

std::string write(const Card& card) {
  return card.table + "\n" + card.path + "\n" + card.nonce + "\n" + card.why;
}

Card read(const std::string& text) {
  std::istringstream lines(text);
  Card card;
  for (std::string* part : {&card.table, &card.path, &card.nonce, &card.why}) std::getline(lines, *part);
  return card;
}

std::string blame(int rank, const std::string& why) {
  return "rank " + std::to_string(rank) + ": " + why;
}

}  // namespace

SharedMachine share_memory(int rank, size_t most, const ExchangeTexts& exchange) {
  const uint64_t nonce = random_number();
  Card own{this_process().table, "", std::to_string(nonce), ""};
  std::shared_ptr<Arena> arena;
  if (wish(most) == Wish::shared && !own.table.empty()) arena = Arena::make(nonce, most, own.why);
  if (arena) own.path = arena->path();
  std::map<int, Card> here;
  const auto cards = exchange("machine", write(own));
  for (int other = 0; other < static_cast<int>(cards.size()); ++other) {
    const Card card = read(cards[other]);
    if (card.table == own.table && !own.table.empty()) here[other] = card;
  }
  SharedMachine shared;
  std::string trouble;
  bool wished = here.size() > 1;
  for (const auto& [other, card] : here) {
    wished = wished && !(card.path.empty() && card.why.empty());
    if (!card.why.empty() && trouble.empty()) trouble = blame(other, card.why);
  }
  for (const auto& [other, card] : here) {
    if (!wished || !trouble.empty()) break;
    std::string why;
    shared.arenas[other] = other == rank ? arena : Arena::open(card.path, std::stoull(card.nonce), why);
    if (!why.empty()) trouble = blame(rank, why);
  }
  const auto troubles = exchange("memory", trouble);
  trouble.clear();
  for (const auto& [other, card] : here)
    if (trouble.empty()) trouble = troubles[other];
  if (!wished || !trouble.empty()) shared.arenas.clear();
  if (wished && !here.empty() && here.begin()->first == rank) shared.why = trouble;
  return shared;
}

}  // namespace heddle::mesh
