// The files of labelled data in a folder: a file's sub-folder is its class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sotto {

struct ClassFiles {
  std::vector<std::string> classes = {};  // names, in the order of their numbers
  std::vector<std::string> paths = {};    // by class, then by name
  std::vector<std::int64_t> labels = {};  // labels[k] is the class of paths[k]
};

// Lists the files in the sub-folders of a folder, at any depth: the sub-folder's name is the class.
// With `text` its own files are classes as well, each named by the file without .gz and .txt.
// Classes are numbered as in `classes` (the folder may lack some), or by the order of their names
// if `classes` is empty. Names that begin with a dot are skipped, and files that systems and
// archives leave, such as Thumbs.db, desktop.ini and __MACOSX; without `text` also files with
// endings of no picture, such as .txt and .json. Symbolic links are followed. Throws SystemFailure,
// with the path, for a folder that is missing or cannot be read, a class without files, one that is
// not in `classes`, two of one name, a picture beside the classes, a loop of symbolic links, and an
// entry that is neither a file nor a folder.
ClassFiles list_class_files(const std::string& folder, const std::vector<std::string>& classes,
                            bool text);

// Lists the picture files of a folder, at any depth, by name. Skips and throws as above, and for a
// folder without any.
std::vector<std::string> list_picture_files(const std::string& folder);

}  // namespace sotto
