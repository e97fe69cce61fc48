// The features of a model that does not learn them, kept in a file for the next run.
#pragma once

#include <string>

#include "samples/images/image_network.h"
#include "samples/training/task.h"

namespace sotto::images {

// Replaces the pictures of both parts by the network's inputs. With a path these come from the file
// if it exists; otherwise they are computed, and the result is what identifies them in the file
// that save_inputs() writes, and empty without a path. Throws SystemFailure for a file that has not
// the features of these pictures by these options, or cannot be read.
std::string replace_by_inputs(samples::Data& data, const ImageNetworkOptions& options,
                              const std::string& path);
// Writes the inputs unless `computed`, a result of replace_by_inputs(), is empty, for the owner of
// the file alone: features are as private as the pictures. Throws SystemFailure if it cannot.
void save_inputs(const samples::Data& data, const std::string& computed, const std::string& path);

}  // namespace sotto::images
