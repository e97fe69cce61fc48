// File tags: [sanitized]
#include "nn/data/images/image_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "tests/support/catch.h"

#include "core/error.h"
#include "nn/data/batch_loader.h"
#include "tests/support/picture_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

namespace fs = std::filesystem;

std::string flat(std::uint8_t value) {
  return PngFile{.height = 4, .width = 4, .bytes = std::vector<std::uint8_t>(16, value)}.encoded();
}

constexpr ImageOptions small{.height = 2, .width = 2};

bool refused(const TemporaryFolder& folder, const std::string& why) {
  return throws<SystemFailure>([&] { read_image_folder(folder.path(), small); }, why);
}

}  // namespace

TEST_CASE("a sub-folder is a class, in the order of the names") {
  const TemporaryFolder folder;
  folder.write("dogs/2.png", flat(20));
  folder.write("dogs/1.jpg", jpeg_file(8, 8, 3, std::vector<std::uint8_t>(192, 128)));
  folder.write("cats/deep/er/a.PNG", flat(51));
  folder.write("cats/.thumbnails", "no picture");
  folder.write(".cache/x", "no class");
  folder.write("README.txt", "not a picture either");
  const ImageFolder read = read_image_folder(folder.path(), small);
  CHECK(read.classes == std::vector<std::string>{"cats", "dogs"});
  CHECK(read.data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 1});
  CHECK(read.data.inputs.shape() == Shape{3, 3, 2, 2});
  CHECK(read.paths[1] == folder.path("dogs/1.jpg"));
  CHECK(read.data.inputs.at({0, 2, 1, 1}) == Approx(0.2));
  CHECK(read.data.inputs.at({1, 0, 0, 0}) == Approx(128.0 / 255).margin(0.01));
  CHECK(read_image_folder(folder.path(), {.height = 3, .width = 5, .grey = true})
            .data.inputs.shape() == Shape{3, 1, 3, 5});
}

TEST_CASE("classes that are given decide the numbers") {
  const TemporaryFolder folder;
  folder.write("b/1.png", flat(1));
  folder.write("a/1.png", flat(2));
  const ImageFolder read = read_image_folder(folder.path(), small, {"c", "b", "a"});
  CHECK(read.classes == std::vector<std::string>{"c", "b", "a"});
  CHECK(read.data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 1});
  CHECK(throws<SystemFailure>(
      [&] {
        read_image_folder(folder.path(), small, {"a", "c"});
      },
      "b is not among the 2 classes given"));
}

TEST_CASE("pictures decoded when they are asked for are those of the whole folder") {
  const TemporaryFolder folder;
  for (int k = 0; k < 12; ++k)
    folder.write(fmt::format("{}/{}.png", k % 3, k), flat(static_cast<std::uint8_t>(20 * k)));
  const ImageFolder read = read_image_folder(folder.path(), small);
  const ImageFiles files = list_image_folder(folder.path(), small);
  CHECK(files.paths == read.paths);
  CHECK(files.classes == read.classes);
  BatchLoader loader([&](auto rows) { return files.batch(rows); }, cpu);
  const std::vector<std::int64_t> rows{11, 0, 5, 5, 7, 2};
  loader.prefetch(rows);
  for (std::size_t k = 0; k < rows.size(); k += 2) {
    const auto part = std::span(rows).subspan(k, 2);
    const Dataset batch = loader.batch(part), expected = read.data.batch(part);
    CHECK(batch.inputs.to_vector<float>() == expected.inputs.to_vector<float>());
    CHECK(batch.targets.to_vector<std::int64_t>() == expected.targets.to_vector<std::int64_t>());
  }
  CHECK(loader.hits() == 2);
  CHECK(throws([&] { files.batch(std::vector<std::int64_t>{12}); }, "row 12 of 12 pictures"));
}

TEST_CASE("pictures decoded together are those decoded alone") {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int k = 0; k < 40; ++k) {
    const std::string name = std::to_string(k) + ".png";
    folder.write(name, flat(static_cast<std::uint8_t>(k)));
    paths.push_back(folder.path(name));
  }
  const Tensor all = read_images(paths, small);
  for (std::size_t k = 0; k < paths.size(); ++k) {
    const Tensor one = read_images(std::span(paths).subspan(k, 1), small);
    REQUIRE(one[0].to_vector<float>() == all[static_cast<std::int64_t>(k)].to_vector<float>());
  }
}

TEST_CASE("a folder that is not one of pictures by class is refused by the path") {
  CHECK(throws<SystemFailure>([] { read_image_folder("/nowhere"); }, "/nowhere: no such folder"));
  const TemporaryFolder folder;
  CHECK(refused(folder, "the folder has no classes"));
  fs::create_directories(folder.path("empty"));
  CHECK(refused(folder, "empty: the class has no files"));
  folder.write("empty/1.png", flat(3));
  CHECK(read_image_folder(folder.path(), small).data.size() == 1);
  folder.write("2.JPEG", "");
  CHECK(refused(folder, "2.JPEG: a picture without a class"));
  fs::remove(folder.path("2.JPEG"));
  folder.write("empty/2.dat", "text");
  CHECK(refused(folder, "empty/2.dat: neither a PNG nor a JPEG file"));
  folder.write("empty/2.dat", flat(3).substr(0, 50));
  CHECK(refused(folder, "empty/2.dat: the file ends early"));
  CHECK(throws([&] { read_image_folder(folder.path(), {.height = 0}); }, "0 x 32 pixels"));
}

TEST_CASE("files that are no pictures by name, and those that systems leave, are passed over") {
  const TemporaryFolder folder;
  folder.write("cat/1.png", flat(3));
  for (const char* name :
       {"cat/Thumbs.db", "cat/desktop.ini", "cat/.DS_Store", "cat/._1.png", "cat/notes.TXT",
        "cat/labels.json", "cat/README", "cat/deep/@eaDir/1.png", "__MACOSX/cat/._1.png",
        "__MACOSX/1.png", "$RECYCLE.BIN/1.png", "Thumbs.db", "labels.csv"})
    folder.write(name, "no picture");
  CHECK(read_image_folder(folder.path(), small).classes == std::vector<std::string>{"cat"});
  CHECK(list_images(folder.path()) == std::vector<std::string>{folder.path("cat/1.png")});
  folder.write("dog/Thumbs.db", "no picture");
  CHECK(refused(folder, "dog: the class has no files"));
  CHECK(throws<SystemFailure>([&] { list_images(folder.path("dog")); }, "dog: no pictures"));
  folder.write("dog/1.png.json/1", flat(4));  // a folder may have any name
  CHECK(read_image_folder(folder.path(), small).data.size() == 2);
}

TEST_CASE("all unreadable files are named at once, or left out and named") {
  const TemporaryFolder folder;
  for (int k = 0; k < 6; ++k)
    folder.write(fmt::format("{}/{}.png", k % 2, k), flat(static_cast<std::uint8_t>(40 * k)));
  folder.write("0/2.png", "GIF89a");
  folder.write("1/1.png", flat(3).substr(0, 40));
  CHECK(refused(folder, "2 of 6 files cannot be read: picture: " + folder.path("0/2.png") +
                            ": neither a PNG nor a JPEG file (it looks like a GIF picture); png: " +
                            folder.path("1/1.png") + ": "));
  ImageOptions skip = small;
  skip.skip_unreadable = true;
  const ImageFolder read = read_image_folder(folder.path(), skip);
  CHECK(read.paths == std::vector<std::string>{folder.path("0/0.png"), folder.path("0/4.png"),
                                               folder.path("1/3.png"), folder.path("1/5.png")});
  CHECK(read.data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0, 1, 1});
  REQUIRE(read.unreadable.size() == 2);
  CHECK(read.unreadable[0].find("0/2.png") != std::string::npos);
  const Tensor alone = read_images(read.paths, small);
  CHECK(read.data.inputs.to_vector<float>() == alone.to_vector<float>());
  CHECK(throws([&] { list_image_folder(folder.path(), skip); }, "is not known before"));
  for (int k = 0; k < 30; ++k) folder.write(fmt::format("0/bad{}.png", k), "GIF89a");
  CHECK(refused(folder, "32 of 36 files cannot be read: "));
  CHECK(refused(folder, "; and 12 more"));
  for (int k = 0; k < 6; ++k) folder.write(fmt::format("{}/{}.png", k % 2, k), "GIF89a");
  CHECK(throws<SystemFailure>([&] { read_image_folder(folder.path(), skip); }, "36 of 36 files"));
}

TEST_CASE("links are followed, and those that lead back are refused") {
  const TemporaryFolder folder;
  folder.write("class/1.png", flat(3));
  folder.write(".elsewhere/2.png", flat(4));
  fs::create_symlink(folder.path(".elsewhere"), folder.path("class/linked"));
  CHECK(read_image_folder(folder.path(), small).data.size() == 2);
  fs::create_symlink(folder.path(), folder.path("class/back"));
  CHECK(refused(folder, "class/back: a symbolic link that leads back"));
  CHECK(throws<SystemFailure>([&] { list_images(folder.path()); },
                              "class/back: a symbolic link that leads back"));
  fs::remove(folder.path("class/back"));
  fs::create_symlink(folder.path("class/self"), folder.path("class/self"));
  CHECK(refused(folder, "class/self: Too many levels of symbolic links"));
  CHECK(throws<SystemFailure>([&] { list_images(folder.path()); },
                              "class/self: Too many levels of symbolic links"));
  fs::remove(folder.path("class/self"));
  fs::create_symlink("/nowhere", folder.path("class/gone"));
  CHECK(refused(folder, "class/gone: neither a file nor a folder"));
  fs::remove(folder.path("class/gone"));
  REQUIRE(::mkfifo(folder.path("class/fifo").c_str(), 0600) == 0);
  CHECK(refused(folder, "class/fifo: neither a file nor a folder"));
}
