#include "nn/data/class_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "nn/data/expect.h"

namespace sotto {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> y;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with('.')) y.push_back(entry.path());
  }
  std::sort(y.begin(), y.end());
  return y;
}

// Adds the files at a path, itself or below; `above` has the folders on the way to it.
void collect(const fs::path& at, std::vector<fs::path>& above, std::vector<std::string>& files) {
  if (fs::is_regular_file(at)) return files.push_back(at.string());
  expect(fs::is_directory(at), "class files: {}: neither a file nor a folder", at.string());
  const fs::path real = fs::canonical(at);
  expect(std::find(above.begin(), above.end(), real) == above.end(),
         "class files: {}: a symbolic link that leads back to {}", at.string(), real.string());
  above.push_back(real);
  for (const fs::path& entry : sorted_entries(at)) collect(entry, above, files);
  above.pop_back();
}

std::string class_name(const fs::path& entry) {
  std::string name = entry.filename().string();
  if (fs::is_directory(entry)) return name;
  for (const std::string_view ending : {".gz", ".txt"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

bool named_as_picture(const fs::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// The files of each class, by its name.
std::map<std::string, std::vector<std::string>> files_by_class(const std::string& folder,
                                                               bool text) {
  std::map<std::string, std::vector<std::string>> by_class;
  std::vector<fs::path> above{fs::canonical(folder)};
  for (const fs::path& entry : sorted_entries(folder)) {
    if (!text && fs::is_regular_file(entry)) {
      expect(!named_as_picture(entry),
             "class files: {}: a picture without a class: it lies beside the classes' folders",
             entry.string());
      continue;
    }
    const std::string name = class_name(entry);
    expect(!by_class.contains(name), "class files: {}: another class is named {}", entry.string(),
           name);
    std::vector<std::string>& files = by_class[name];
    collect(entry, above, files);
    expect(!files.empty(), "class files: {}: the class has no files", entry.string());
  }
  expect(!by_class.empty(), "class files: {}: the folder has no classes", folder);
  return by_class;
}

std::int64_t number_of(const std::string& name, const std::string& path,
                       const std::vector<std::string>& classes) {
  const auto found = std::find(classes.begin(), classes.end(), name);
  expect(found != classes.end(), "class files: {}: {} is not among the {} classes given", path,
         name, classes.size());
  return found - classes.begin();
}

}  // namespace

ClassFiles list_class_files(const std::string& folder, const std::vector<std::string>& classes,
                            bool text) {
  expect(fs::is_directory(folder), "class files: {}: no such folder", folder);
  std::map<std::string, std::vector<std::string>> by_class;
  try {
    by_class = files_by_class(folder, text);
  } catch (const fs::filesystem_error& error) {
    throw SystemFailure(
        fmt::format("class files: {}: {}", error.path1().string(), error.code().message()));
  }
  ClassFiles y{.classes = classes};
  if (classes.empty()) {
    for (const auto& [name, files] : by_class) y.classes.push_back(name);
  }
  for (const auto& [name, files] : by_class) {
    y.labels.insert(y.labels.end(), files.size(), number_of(name, files.front(), y.classes));
    y.paths.insert(y.paths.end(), files.begin(), files.end());
  }
  return y;
}

}  // namespace sotto
