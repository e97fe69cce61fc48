#include "nn/data/class_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include "nn/data/expect.h"

namespace sotto {

namespace {

namespace fs = std::filesystem;

std::string in_small_letters(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

template <std::size_t n>
bool is_one_of(const std::string& name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Files that Windows, macOS and network stores leave in folders.
constexpr std::array<std::string_view, 9> left_by_systems{
    "thumbs.db", "ehthumbs.db", "desktop.ini",  "icon\r",
    "__macosx",  "@eadir",      "$recycle.bin", "system volume information",
    "lost+found"};
constexpr std::array<std::string_view, 4> no_picture_names{"readme", "license", "licence",
                                                           "makefile"};
// Endings of files that are usual beside pictures, and are skipped. Files with any other ending are
// read, so that a picture with an odd name is not skipped in silence.
constexpr std::array<std::string_view, 41> no_picture_endings{
    ".txt",  ".md",   ".rst", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".html", ".htm",  ".yaml",
    ".yml",  ".toml", ".log", ".pdf", ".zip", ".gz",   ".tar",   ".tgz", ".rar",  ".7z",   ".db",
    ".ini",  ".url",  ".lnk", ".py",  ".sh",  ".bat",  ".ipynb", ".exe", ".doc",  ".docx", ".xls",
    ".xlsx", ".npy",  ".npz", ".pkl", ".mat", ".xmp",  ".aae",   ".md5"};

bool passed_over(const fs::path& path, bool text) {
  const std::string name = in_small_letters(path.filename().string());
  if (name.starts_with('.') || is_one_of(name, left_by_systems)) return true;
  if (text || fs::is_directory(path)) return false;
  const std::string ending = fs::path(name).extension().string();
  return is_one_of(name, no_picture_names) || is_one_of(ending, no_picture_endings);
}

std::vector<fs::path> sorted_entries(const fs::path& folder, bool text) {
  std::vector<fs::path> y;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!passed_over(entry.path(), text)) y.push_back(entry.path());
  }
  std::sort(y.begin(), y.end());
  return y;
}

// Collects the files at paths, themselves or below.
class Files {
 public:
  explicit Files(bool text) : text_(text) {}

  void collect(const fs::path& at, std::vector<std::string>& files) {
    if (fs::is_regular_file(at)) return files.push_back(at.string());
    expect(fs::is_directory(at), "class files: {}: neither a file nor a folder", at.string());
    const fs::path real = fs::canonical(at);
    expect(std::find(above_.begin(), above_.end(), real) == above_.end(),
           "class files: {}: a symbolic link that leads back to {}", at.string(), real.string());
    above_.push_back(real);
    for (const fs::path& entry : sorted_entries(at, text_)) collect(entry, files);
    above_.pop_back();
  }
  // Takes a folder for one on the way to the next paths.
  void enter(const fs::path& folder) { above_.push_back(fs::canonical(folder)); }

 private:
  bool text_;
  std::vector<fs::path> above_;  // the folders on the way
};

// Returns f(). An error of the file system names its path.
template <class F>
auto named(const F& f) {
  try {
    return f();
  } catch (const fs::filesystem_error& error) {
    throw SystemFailure(
        fmt::format("class files: {}: {}", error.path1().string(), error.code().message()));
  }
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
  const std::string ending = in_small_letters(file.extension().string());
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// The files of each class, by its name.
std::map<std::string, std::vector<std::string>> files_by_class(const std::string& folder,
                                                               bool text) {
  std::map<std::string, std::vector<std::string>> by_class;
  Files all(text);
  all.enter(folder);
  for (const fs::path& entry : sorted_entries(folder, text)) {
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
    all.collect(entry, files);
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
  const auto by_class = named([&] {
    expect(fs::is_directory(folder), "class files: {}: no such folder", folder);
    return files_by_class(folder, text);
  });
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

std::vector<std::string> list_picture_files(const std::string& folder) {
  std::vector<std::string> files;
  named([&] { Files(/*text=*/false).collect(folder, files); });
  expect(!files.empty(), "class files: {}: no pictures in this folder", folder);
  return files;
}

}  // namespace sotto
