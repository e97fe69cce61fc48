#include "nn/data/tokenizer/post_processor.h"

#include <functional>
#include <numeric>

#include "core/io/utf8.h"

namespace sotto {

namespace {

using Kind = TemplatePart::Kind;
using Known = std::function<bool(std::int64_t)>;

std::int64_t known_id(const Field& id, const Known& known) {
  const std::int64_t y = id.number();
  id.expect(known(y), "no token has id {}", y);
  return y;
}

// The ids of ["</s>", 2].
TemplatePart named_special(const Field& pair, const Known& known, std::int64_t type) {
  const std::vector<Field> fields = pair.list();
  pair.expect(fields.size() == 2, "{} values, not a token and its id", fields.size());
  return {Kind::special, {known_id(fields[1], known)}, type};
}

// [CLS] A [SEP] B [SEP] with types, or <s> A </s></s> B </s> of type 0.
Template around(const Field& field, const Known& known, bool roberta) {
  field.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
  const std::int64_t type = roberta ? 0 : 1;
  const TemplatePart cls = named_special(field["cls"], known, 0);
  const TemplatePart sep = named_special(field["sep"], known, 0);
  const TemplatePart last = named_special(field["sep"], known, type);
  Template y;
  y.single = {cls, {Kind::text}, sep};
  y.pair = y.single;
  if (roberta) y.pair.push_back(sep);
  y.pair.push_back({Kind::pair, {}, type});
  y.pair.push_back(last);
  return y;
}

TemplatePart special_part(const Field& special, const Field& field, const Known& known) {
  const Field entry = field["special_tokens"][special["id"].text()];
  TemplatePart y{Kind::special, {}, special.number_or("type_id", 0)};
  for (const Field& id : entry["ids"].list()) y.ids.push_back(known_id(id, known));
  return y;
}

std::vector<TemplatePart> parts_of(const Field& list, const Field& field, const Known& known) {
  std::vector<TemplatePart> y;
  for (const Field& part : list.list()) {
    part.only({"SpecialToken", "Sequence"});
    if (const auto special = part.find("SpecialToken")) {
      y.push_back(special_part(*special, field, known));
      continue;
    }
    const Field sequence = part["Sequence"];
    const std::string id = sequence["id"].text();
    sequence.expect(id == "A" || id == "B", "the sequence {} is neither A nor B", excerpt(id));
    y.push_back({id == "A" ? Kind::text : Kind::pair, {}, sequence.number_or("type_id", 0)});
  }
  return y;
}

Template written(const Field& field, const Known& known) {
  field.only({"single", "pair", "special_tokens"});
  Template y = plain_template();
  y.single = parts_of(field["single"], field, known);
  if (const auto pair = field.find("pair")) y.pair = parts_of(*pair, field, known);
  return y;
}

Template make(const Field& field, const Known& known) {
  const std::string type = field["type"].text();
  if (type == "TemplateProcessing") return written(field, known);
  if (type == "BertProcessing") return around(field, known, false);
  if (type == "RobertaProcessing") return around(field, known, true);
  if (type == "ByteLevel") return plain_template();  // it moves offsets, which we do not give
  field.expect(type == "Sequence", "the post-processor {} is not supported", excerpt(type));
  field.only({"processors"});
  std::optional<Template> y;
  for (const Field& step : field["processors"].list()) {
    if (step["type"].text() == "ByteLevel") continue;
    step.expect(!y, "a second post-processor that adds tokens is not supported");
    y = make(step, known);
  }
  return y.value_or(plain_template());
}

}  // namespace

std::int64_t Template::special_count(bool has_pair) const {
  const std::vector<TemplatePart>& parts = has_pair ? pair : single;
  return std::accumulate(
      parts.begin(), parts.end(), std::int64_t{0},
      [](std::int64_t y, const TemplatePart& part) { return y + std::ssize(part.ids); });
}

Template plain_template() { return {{{Kind::text}}, {{Kind::text}, {Kind::pair, {}, 1}}}; }

Template make_template(const Field& field, const Vocabulary& model, const Vocabulary& added) {
  return make(field, [&](std::int64_t id) {
    return model.token(id) != nullptr || added.token(id) != nullptr;
  });
}

}  // namespace sotto
