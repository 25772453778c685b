// The sequences that every topology of the test world trains on.
#pragma once

#include <vector>

#include "plugins/training_world.h"

namespace heddle::tests {

// This rank's batches of a step. Some sequences have few labels, one has none.
std::vector<Batch> deal(const Training& run, int step, const DeviceMesh& mesh);

// Each row is packed otherwise; some rows are one document. For Training::change_batch.
void pack(Batch& batch, int slice);
// The documents of pack(), each in a row of its own.
void unpack(Batch& batch, int slice);

}  // namespace heddle::tests
