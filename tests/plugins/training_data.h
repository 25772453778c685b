// The sequences that every topology of the test world trains on.
#pragma once

#include <vector>

#include "plugins/training_world.h"

namespace heddle::tests {

// Returns this rank's batches of a step. Some sequences have few labels, and one has none.
std::vector<Batch> deal(const Training& run, int step, const DeviceMesh& mesh);

// Packs each row differently; some rows are one document. For Training::change_batch.
void pack(Batch& batch, int slice);
// Puts each document of pack() in its own row.
void unpack(Batch& batch, int slice);

}  // namespace heddle::tests
