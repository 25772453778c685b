// `heddle data`: makes a token file from texts.
#include "trainer/cli/data.h"

#include <iostream>

#include "trainer/data/write_tokens.h"

namespace heddle::cli {

int data(const DataCommand& command) {
  const int64_t tokens = write_byte_tokens(command.texts, command.out);
  std::cout << command.out << ": " << tokens << " tokens, one a byte (vocab_size 256)\n";
  return 0;
}

}  // namespace heddle::cli
