// Two rendezvous: which rank is on which machine, and whether all could map the others' memory.
#include "lib/transport/shm/shm_machine.h"

#include <cstdlib>
#include <random>
#include <sstream>

#include "core/mesh/packed.h"
#include "heddle/base/error.h"

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

// The report of a rank, one line per member.
struct Card {
  std::string table, path, nonce,
      why;  // no path: it has no memory to share; and no why: disabled by the user
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

// Each rank gets the ranks of its own machine with their reports, rank and text in turn.
std::vector<std::string> by_machine(std::span<const std::string> cards) {
  std::map<std::string, std::vector<std::string>> here;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    std::vector<std::string>& mates = here[read(cards[rank]).table];
    mates.push_back(std::to_string(rank));
    mates.push_back(cards[rank]);
  }
  std::vector<std::string> answers;
  for (const std::string& card : cards) answers.push_back(pack(here[read(card).table]));
  return answers;
}

// Each rank gets the failure of the lowest rank of its machine that has one.
std::vector<std::string> trouble_by_machine(std::span<const std::string> cards) {
  std::map<std::string, std::string> first;
  for (const std::string& text : cards) {
    const Card card = read(text);
    if (std::string& trouble = first[card.table]; trouble.empty()) trouble = card.why;
  }
  std::vector<std::string> answers;
  for (const std::string& text : cards) answers.push_back(first[read(text).table]);
  return answers;
}

// Every rank that shares this one's process table, itself among them; none where it has no table.
std::map<int, Card> mates_of(const Card& own, Rendezvous& rendezvous) {
  const std::vector<std::string> told = unpack(rendezvous.meet("machine", write(own), by_machine));
  std::map<int, Card> here;
  for (size_t i = 0; i + 1 < told.size() && !own.table.empty(); i += 2)
    here[std::stoi(told[i])] = read(told[i + 1]);
  return here;
}

std::string trouble_of(int rank, const std::string& why) {
  return "rank " + std::to_string(rank) + ": " + why;
}

}  // namespace

SharedMachine share_memory(size_t most, Rendezvous& rendezvous, const std::string& table) {
  const int rank = rendezvous.rank();
  const uint64_t nonce = random_number();
  Card own{table, "", std::to_string(nonce), ""};
  std::shared_ptr<Arena> arena;
  if (wish(most) == Wish::shared && !own.table.empty()) arena = Arena::make(nonce, most, own.why);
  if (arena) own.path = arena->path();
  const std::map<int, Card> here = mates_of(own, rendezvous);
  SharedMachine shared;
  std::string trouble;
  bool wished = here.size() > 1;
  for (const auto& [other, card] : here) {
    wished = wished && !(card.path.empty() && card.why.empty());
    if (!card.why.empty() && trouble.empty()) trouble = trouble_of(other, card.why);
  }
  for (const auto& [other, card] : here) {
    if (!wished || !trouble.empty()) break;
    std::string why;
    shared.arenas[other] = other == rank ? arena : Arena::open(card.path, std::stoull(card.nonce), why);
    if (!why.empty()) trouble = trouble_of(rank, why);
  }
  trouble = rendezvous.meet("memory", write({own.table, "", "", trouble}), trouble_by_machine);
  if (!wished || !trouble.empty()) shared.arenas.clear();
  if (wished && !here.empty() && here.begin()->first == rank) shared.why = trouble;
  return shared;
}

}  // namespace heddle::mesh
