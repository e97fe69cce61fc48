// Turns texts or pictures into vectors by a published model; see --help.
#include <algorithm>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "nn/data/tokenizer/tokenizer.h"
#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/embed/embed.h"
#include "samples/images/picture_data.h"

namespace sotto::embed {

namespace {

struct Options {
  std::string init, architecture, tokenizer, data, out, schema, pooling = "mean";
  TextColumns columns;
  std::int64_t context = 128, size = 0;
};

bool parse(int argc, const char* const* argv, Options& o) {
  samples::CommandLine line(
      "Turns texts or pictures into vectors by a published model: a table, on which sotto-tabular "
      "trains.",
      "  sotto-embed --init minilm/ --data reviews.tsv --label-column label \\\n"
      "      --out vectors.csv --schema vectors.json\n"
      "  sotto-tabular train --data vectors.csv --schema vectors.json --epsilon 3\n");
  line.group("Options");
  line.option("--init", o.init, "published model: an encoder of texts, or a model of pictures",
              "PATH");
  line.option("--architecture", o.architecture, "its architecture, of files that do not say it",
              "NAME");
  line.option("--tokenizer", o.tokenizer, "folder or file, if it is not that of --init", "PATH");
  line.option("--data", o.data,
              "texts: a table (.tsv, .csv), a file of lines, or a folder of classes; pictures: a "
              "folder of classes, CIFAR's or MNIST's files",
              "PATH");
  line.option("--text-column", o.columns.text, "a table's column of texts", "NAME");
  line.option("--label-column", o.columns.label, "its column of classes, whose names are public",
              "NAME");
  line.option("--user-column", o.columns.user, "its column that tells whose a row is", "NAME");
  line.option("--context", o.context, "tokens that are read of a text", "N");
  line.option(
      "--pooling", o.pooling,
      "vector of a text: the mean over its tokens, or the token at a position, counted from "
      "0; behind a colon the number of blocks that are computed; several are joined: "
      "mean,1:4",
      "LIST");
  line.option("--size", o.size, "side that pictures are resized to; 0: the model's", "N");
  line.option("--out", o.out, "table of vectors, CSV: as PRIVATE as the data", "FILE");
  line.option("--schema", o.schema, "the table's schema for sotto-tabular, which is public",
              "FILE");
  if (!line.parse(argc, argv)) return false;
  samples::require_given("--init", o.init);
  samples::require_given("--data", o.data);
  samples::require_given("--out", o.out);
  samples::require(o.context >= 1, "--context", o.context, "at least 1");
  samples::require(o.size >= 0, "--size", o.size, "at least 0");
  text_parts(o.pooling);
  samples::check_writable("--out", o.out);
  samples::check_writable("--schema", o.schema);
  return true;
}

// The texts' vectors; fills in the records.
Tensor of_texts(const Options& o, TextRecords& records) {
  records = is_text_table(o.data) ? read_text_table(o.data, o.columns)
                                  : read_text_units(o.data, {.unit = TextUnit::line});
  check(!records.texts.empty(), "--data: {} has no text", o.data);
  const Tokenizer tokenizer = load_tokenizer(o.tokenizer.empty() ? o.init : o.tokenizer);
  const Dataset rows = classifier_rows(tokenizer, records, {.context = o.context});
  std::vector<Tensor> parts;
  for (const TextPart& part : text_parts(o.pooling)) {
    const nn::Pretrained pretrained =
        nn::load_pretrained(o.init, {.architecture = o.architecture, .blocks = part.blocks});
    parts.push_back(text_vectors(dynamic_cast<nn::TextEncoder&>(*pretrained.model), part, rows));
  }
  return joined(parts);
}

Tensor of_pictures(nn::ImageModel& model, const nn::Pretrained& pretrained, const Options& o,
                   TextRecords& records) {
  check(o.pooling == "mean", "--pooling: {} is of texts, and {} is a model of pictures", o.pooling,
        o.init);
  const images::ModelPictures inputs(nn::image_input(o.init, pretrained), o.size);
  model.resize_images({inputs.size(), inputs.size()});
  const images::PictureFiles kind = images::kind_of(o.data);
  const images::PictureShape shape = kind == images::PictureFiles::folders
                                         ? images::PictureShape{.size = inputs.size()}
                                         : images::shape_of(kind);
  images::LabelledPictures pictures = images::read_pictures({o.data}, shape);
  records.classes = pictures.classes;
  records.labels = pictures.data.targets.to_vector<std::int64_t>();
  return picture_vectors(model, inputs, pictures.data.inputs);
}

void embed(const Options& o) {
  const nn::Pretrained pretrained = nn::load_pretrained(o.init, {.architecture = o.architecture});
  nn::PretrainedModel* const model = pretrained.model.get();
  TextRecords records;
  Tensor vectors;
  if (dynamic_cast<nn::TextEncoder*>(model) != nullptr) {
    vectors = of_texts(o, records);
  } else if (auto* const images = dynamic_cast<nn::ImageModel*>(model)) {
    vectors = of_pictures(*images, pretrained, o, records);
  } else {
    fail(fmt::format("--init: {} is a model that writes, and has no vectors of texts", o.init));
  }
  check(o.schema.empty() || !records.classes.empty(),
        "--schema: needs classes (--label-column names the column)");
  const std::string csv = table(vectors, records);
  samples::write_result(o.out, [&](const std::string& path) {
    const auto write = [&](FileWriter& writer) { writer.write(csv); };
    write_file_atomically(path, write, FileKind::other, Readers::owner);
  });
  samples::print("{} vectors of {} numbers in {}, which is as SECRET as the data\n",
                 vectors.size(0), vectors.size(1), o.out);
  if (!o.schema.empty()) samples::write_text({o.schema, schema(vectors, records)});
}

}  // namespace

}  // namespace sotto::embed

int main(int argc, char** argv) {
  using namespace sotto::embed;
  return sotto::samples::ending("embed", [&] {
    Options options;
    if (parse(argc, argv, options)) embed(options);
    return 0;
  });
}
