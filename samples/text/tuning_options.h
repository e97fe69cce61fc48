// Options of `text train --init`, which the help of `text train` lists, too.
#pragma once

#include "samples/text/tuned_text.h"

namespace sotto::samples {
class CommandLine;
}

namespace sotto::text {

// Declares those that plain training lacks: where a model is from and what of it is trained, and
// the columns of a table.
void add_tuning_options(samples::CommandLine& line, TunedText& text);
void add_table_options(samples::CommandLine& line, TunedText& text);
// Their names.
std::vector<const char*> tuning_option_names();

}  // namespace sotto::text
