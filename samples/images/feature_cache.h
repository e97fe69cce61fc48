// The features of a model that does not learn them, kept in a file for the next run.
#pragma once

#include <string>

#include "samples/images/image_network.h"
#include "samples/training/task.h"

namespace sotto::images {

// Replaces the pictures of both parts by the network's inputs. With a path these come from the file
// if it exists, and are written to it otherwise, for its owner alone: features are as private as
// the pictures. Throws SystemFailure for a file that has not the features of these pictures by
// these options, or cannot be read or written.
void replace_by_inputs(samples::Data& data, const NetworkOptions& options, const std::string& path);

}  // namespace sotto::images
