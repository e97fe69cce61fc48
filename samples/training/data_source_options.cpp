// The options of data_source.h: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/training/data_source.h"

namespace sotto::samples {

void add_files_option(CommandLine& line, const char* name, DataSource& source,
                      std::string Files::*path, const std::string& text, const char* type) {
  const auto read = [&source, path](const std::string& given) {
    if (files_of(source) == nullptr) source = Files{};
    std::get<Files>(source).*path = given;
  };
  line.parsed(name, read, "", text, type);
}

}  // namespace sotto::samples
